// ddpxx/config/show/print_json.hpp — prints a config as JSON that reads back equal, for other programs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <ddpxx/config/files/yaml.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/config/walk.hpp>

namespace ddpxx::detail {

/// A value without quotes becomes a number, a boolean or null if JSON has it, and otherwise a text, such as `.inf`.
inline nlohmann::ordered_json json_of(const RawValue& value) {
  using Json = nlohmann::ordered_json;
  if (value.kind == RawValue::Kind::group) return Json::object();
  if (value.kind == RawValue::Kind::list) {
    auto items = Json::array();
    for (const auto& item : value.items) items.push_back(json_of(item));
    return items;
  }
  if (is_null(value)) return nullptr;
  if (value.quoted) return value.text;
  auto word = Json::parse(value.text, nullptr, false);
  if (word.is_number() || word.is_boolean()) return word;
  return value.text;
}

/// A value as the table prints it, as JSON.
inline nlohmann::ordered_json json_of_yaml(std::string_view yaml) {
  constexpr std::string_view kKey = "value";
  auto entries = nlohmann::ordered_json::object();
  for (const auto& entry : read_yaml_text(std::string{kKey} + ": " + std::string{yaml}, "", 0).list) {
    if (entry.path == kKey) return json_of(entry.value);
    entries[entry.path.substr(kKey.size() + 1)] = json_of(entry.value);  // each entry of a map has its own path
  }
  return entries;
}

/// The active values as JSON. Secrets are left out, as in print_yaml; infinity, which JSON does not have, is the text
/// ".inf".
inline std::string print_json(const ConfigTable& table, const void* config) {
  auto root = nlohmann::ordered_json::object();
  for (const auto& row : table.rows) {
    if (!table.is_active(row, config) || row.facts.is_secret) continue;
    auto* place = &root;
    for (const auto& name : path_segments(row.path)) place = &(*place)[name];
    *place = json_of_yaml(table.print(row, config));
  }
  return root.dump(2) + '\n';
}

template <ConfigStruct Config>
std::string print_json(const Config& config) {
  return print_json(table_of<Config>(), &config);
}

}  // namespace ddpxx::detail
