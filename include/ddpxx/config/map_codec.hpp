// ddpxx/config/map_codec.hpp — maps in a config: the user chooses the keys, and all values have one type.
#pragma once

#include <map>
#include <string>
#include <utility>

#include <ddpxx/config/codec.hpp>
#include <ddpxx/config/raw_value.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/value_shape.hpp>
#include <ddpxx/core/describe.hpp>

namespace ddpxx {

/// A map in a file replaces the whole map; the environment and the command line add, change and remove entries,
/// or replace it by `{...}`.
template <ConfigItem T>
struct ConfigCodec<std::map<std::string, T>> {
  /// Empties the map. Its entries are read one by one, by decode_entry().
  static Decoded decode(std::map<std::string, T>& field, const RawValue& value, const FieldFacts&) {
    if (value.kind != RawValue::Kind::group)
      return {.problem = "is a map; give its entries as `key: value`, or {} for none", .place = value.place};
    field.clear();
    return {};
  }
  static Decoded decode_entry(std::map<std::string, T>& field, const std::string& key, const RawValue& value,
                              const FieldFacts& facts) {
    T entry{};
    auto decoded = ConfigCodec<T>::decode(entry, value, facts);
    if (decoded.problem.empty()) field.insert_or_assign(key, std::move(entry));
    return decoded;
  }
  /// Removes an entry; false if there is none.
  static bool remove_entry(std::map<std::string, T>& field, const std::string& key) { return field.erase(key) > 0; }

  static std::string print(const std::map<std::string, T>& field) {
    std::string text = "{";
    for (const auto& [key, entry] : field)
      text += (text.size() == 1 ? "" : ", ") + yaml_quoted(key) + ": " + ConfigCodec<T>::print(entry);
    return text + '}';
  }
  static ValueShape shape(const FieldFacts& facts) {
    return {.kind = ValueShape::Kind::map, .item = {ConfigCodec<T>::shape(facts)}};
  }
};

}  // namespace ddpxx
