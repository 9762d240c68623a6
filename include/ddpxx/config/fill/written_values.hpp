// ddpxx/config/fill/written_values.hpp — remembers values as the user wrote them, with `${...}`.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <ddpxx/config/files/yaml.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/text/interpolation.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/core/units.hpp>

namespace ddpxx::detail {

/// A value as YAML, on one line. Numbers, true, false and null stay as they are; other values are quoted.
inline std::string yaml_text_of(const RawValue& value) {
  if (value.kind == RawValue::Kind::list) {
    std::string text = "[";
    for (const auto& item : value.items) text += (text.size() == 1 ? "" : ", ") + yaml_text_of(item);
    return text + ']';
  }
  if (is_null(value)) return "null";
  const auto number = parse_decimal(value.text);
  const bool is_word = (number && number->suffix.empty()) || value.text == "true" || value.text == "false";
  return is_word && !value.quoted ? value.text : yaml_quoted(value.text);
}

/// Remembers the written form of values with references.
class WrittenValues {
 public:
  /// Remembers the written form of the value at `index` of the table, or of an entry of the map there.
  void note(std::size_t index, const std::optional<std::string>& entry, const RawValue& value) {
    if (is_interpolated(value))
      texts_[index].insert_or_assign(entry, yaml_text_of(value));
    else if (const auto known = texts_.find(index); known != texts_.end())
      known->second.erase(entry);
  }

  /// The written form of a value that prints as `printed`, or of a map with the written forms of its entries; none if
  /// the value has no references.
  std::optional<std::string> print(std::size_t index, const std::string& printed) const {
    const auto known = texts_.find(index);
    if (known == texts_.end() || known->second.empty()) return std::nullopt;
    if (const auto whole = known->second.find(std::nullopt); whole != known->second.end()) return whole->second;
    std::string text = "{";
    for (const auto& entry : read_yaml_text("map: " + printed, "", 0).list) {
      if (entry.path == "map") continue;  // the map is empty
      const auto key = entry.path.substr(std::string_view{"map."}.size());
      const auto written = known->second.find(key);
      text += (text.size() == 1 ? "" : ", ") + yaml_quoted(key) + ": " +
              (written == known->second.end() ? yaml_text_of(entry.value) : written->second);
    }
    return text + '}';
  }

 private:
  std::map<std::size_t, std::map<std::optional<std::string>, std::string>> texts_;
};

}  // namespace ddpxx::detail
