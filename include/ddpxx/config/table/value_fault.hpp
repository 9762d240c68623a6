// ddpxx/config/table/value_fault.hpp — checks a field that was set in code, with the message for such a value in a
// file.
#pragma once

#include <concepts>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <ddpxx/config/codec.hpp>
#include <ddpxx/config/raw_value.hpp>
#include <ddpxx/core/describe.hpp>

namespace ddpxx::detail {

/// A type whose values are one text: a number, a text, an enum or a duration.
template <class T>
concept HoldsOneText = (std::is_arithmetic_v<T> && !std::same_as<T, bool>) || std::is_enum_v<T> || DurationLike<T> ||
                       std::same_as<T, std::string>;

template <class T>
concept HoldsItems = requires(const T& field) {
  typename T::value_type;
  field.begin();
} && !std::same_as<T, std::string> && !std::same_as<T, std::filesystem::path>;

/// The value as a file would have it.
template <HoldsOneText T>
RawValue given_of(const T& field) {
  RawValue value{.kind = RawValue::Kind::text, .quoted = true};
  if constexpr (std::same_as<T, std::string>) {
    value.text = field;
  } else {
    value.text = ConfigCodec<T>::print(field);
    if (value.text.starts_with('"')) value.text = value.text.substr(1, value.text.size() - 2);  // the name of an enum
  }
  return value;
}

/// Why the value is not allowed; empty if it is.
template <class T>
std::string value_fault(const T& field, const FieldFacts& facts) {
  if constexpr (HoldsOneText<T>) {
    T copy = field;
    return ConfigCodec<T>::decode(copy, given_of(field), facts).problem;
  } else if constexpr (HoldsItems<T>) {
    std::size_t index = 0;
    for (const auto& item : field) {
      std::string fault, name = std::to_string(index++);
      if constexpr (requires { item.second; }) {
        name = item.first;
        fault = value_fault(item.second, facts);
      } else {
        fault = value_fault(static_cast<const typename T::value_type&>(item), facts);
      }
      if (!fault.empty()) return "item " + name + ": " + fault;
    }
    return {};
  } else if constexpr (requires { field.has_value(); }) {
    return field.has_value() ? value_fault(*field, facts) : std::string{};
  } else {
    return {};  // booleans, paths and types with a codec of their own have no limits
  }
}

}  // namespace ddpxx::detail
