// Reads the input as a JSON file of settings, and a valid file with the bytes replaced that the input names. A file
// that nlohmann::json refuses must be refused; an accepted file must give the values that nlohmann::json reads, at the
// right positions.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <ddpxx/config/files/json.hpp>
#include <ddpxx/config/path.hpp>

#include "every.hpp"

namespace {

using ddpxx::RawValue;
using Json = nlohmann::ordered_json;

constexpr std::string_view kSound =
    R"({"flag": true, "maybe": null, "i64": -1, "real": 1.5e3, "text": "\"\u00e9\n", "numbers": [1, 2.5],)"
    R"( "table": [[1], []], "steps": {"a": 1}, "way": {"name": "slow", "names": ["x"]}, "group": {"size": 8}})";

void demand(bool holds) {
  if (!holds) std::abort();
}

/// Demands that the value's text stands at the value's position.
void check_place(const RawValue& value) {
  std::string_view line = value.place.source->lines.at(value.place.line - 1);
  for (std::size_t i = 1; i < value.place.column; ++i) line.remove_prefix(ddpxx::utf8_length(line));
  demand(value.quoted ? line.starts_with('"') : line.starts_with(value.text));
}

void compare(const Json& json, const RawValue& value) {
  if (json.is_array()) {
    demand(value.kind == RawValue::Kind::list && value.items.size() == json.size());
    for (std::size_t i = 0; i < json.size(); ++i) compare(json[i], value.items[i]);
  } else if (json.is_object()) {
    demand(value.kind == RawValue::Kind::group);
  } else if (json.is_null()) {
    demand(value.kind == RawValue::Kind::none);
  } else {
    demand(value.kind == RawValue::Kind::text && value.quoted == json.is_string());
    demand(json.is_string() ? json.get<std::string>() == value.text : Json::parse(value.text) == json);
    check_place(value);
  }
}

void compare_group(const Json& json, const std::string& path, const ddpxx::detail::SourceEntries& entries,
                   std::size_t& at) {
  for (const auto& [key, value] : json.items()) {
    const auto key_path = ddpxx::path_in(path, key);
    if (value.is_object() && !value.empty()) {
      compare_group(value, key_path, entries, at);
    } else {
      demand(at < entries.list.size() && entries.list[at].path == key_path);
      compare(value, entries.list[at++].value);
    }
  }
}

void read(std::string_view text) {
  const auto entries = ddpxx::detail::read_json_text(text, "input.json", 0);
  ddpxx::fill_and_check(entries);
  const bool is_blank = text.find_first_not_of(" \t\r\n") == std::string_view::npos;
  // These files are read differently by ddpxx and nlohmann::json on purpose.
  if (is_blank || text.starts_with('\xEF') || text.find('\r') != std::string_view::npos) return;
  if (!Json::accept(text)) demand(!entries.problems.empty());
  if (!entries.problems.empty()) return;
  std::size_t at = 0;
  const auto json = Json::parse(text);
  if (json.is_object()) compare_group(json, "", entries, at);
  demand(at == entries.list.size());
}

/// Each two bytes of the input are a position and the byte that is written there.
std::string edited(std::string_view input) {
  std::string json{kSound};
  for (std::size_t i = 0; i + 1 < input.size(); i += 2)
    json[static_cast<unsigned char>(input[i]) % json.size()] = input[i + 1];
  return json;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input{reinterpret_cast<const char*>(data), size};
  read(input);
  read(edited(input));
  return 0;
}
