// ddpxx/config/codec.hpp — reads one value of a config from a source into its field, and prints it as YAML.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ddpxx/config/number_text.hpp>
#include <ddpxx/config/raw_value.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/text/whole_limits.hpp>
#include <ddpxx/config/value_shape.hpp>
#include <ddpxx/core/describe.hpp>

namespace ddpxx {

/// The result of reading a value into a field: a problem or a notice, if any. `item` names an item of a list: `[2]`.
struct Decoded {
  std::string problem{};
  std::string notice{};
  std::string item{};
  Position place{};
};

/// Reads, prints and describes values of one type; specialise it for a type of your own. `decode` does not change the
/// field if it reports a problem. The text of `print` reads back equal. `shape` is the form of the values.
template <class T>
struct ConfigCodec;

template <class T>
concept ConfigLeaf = requires(T& field, const T& constant, const RawValue& value, const FieldFacts& facts) {
  { ConfigCodec<T>::decode(field, value, facts) } -> std::same_as<Decoded>;
  { ConfigCodec<T>::print(constant) } -> std::same_as<std::string>;
  { ConfigCodec<T>::shape(facts) } -> std::same_as<ValueShape>;
};

template <>
struct ConfigCodec<bool> {
  static Decoded decode(bool& field, const RawValue& value, const FieldFacts& facts);
  static std::string print(bool field);
  static ValueShape shape(const FieldFacts& facts);
};

template <>
struct ConfigCodec<std::string> {
  static Decoded decode(std::string& field, const RawValue& value, const FieldFacts& facts);
  static std::string print(const std::string& field);
  static ValueShape shape(const FieldFacts& facts);
};

template <>
struct ConfigCodec<std::filesystem::path> {
  static Decoded decode(std::filesystem::path& field, const RawValue& value, const FieldFacts& facts);
  static std::string print(const std::filesystem::path& field);
  static ValueShape shape(const FieldFacts& facts);
};

namespace detail {

/// Reads an integer of at most 64 bits as its two's complement.
Decoded decode_whole(std::uint64_t& bits, const RawValue& value, const FieldFacts& facts, const WholeLimits& limits);

Decoded decode_real(double& field, const RawValue& value, const FieldFacts& facts);
Decoded decode_real(float& field, const RawValue& value, const FieldFacts& facts);

/// Reads one of the names in `choices(...)` as its index.
Decoded decode_choice(std::size_t& index, const RawValue& value, const FieldFacts& facts);

}  // namespace detail

template <class T>
concept ConfigInteger =
    std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char> && !std::same_as<T, wchar_t> &&
    !std::same_as<T, char8_t> && !std::same_as<T, char16_t> && !std::same_as<T, char32_t>;

template <ConfigInteger T>
struct ConfigCodec<T> {
  static Decoded decode(T& field, const RawValue& value, const FieldFacts& facts) {
    constexpr auto kHighest = static_cast<std::uint64_t>(std::numeric_limits<T>::max());
    auto bits = static_cast<std::uint64_t>(field);
    auto decoded = detail::decode_whole(bits, value, facts,
                                        {.lowest = std::is_signed_v<T> ? kHighest + 1 : 0, .highest = kHighest});
    field = static_cast<T>(bits);
    return decoded;
  }
  static std::string print(T field) { return std::to_string(field); }
  static ValueShape shape(const FieldFacts&) {
    return {.kind = ValueShape::Kind::whole,
            .lowest = static_cast<long double>(std::numeric_limits<T>::lowest()),
            .highest = static_cast<long double>(std::numeric_limits<T>::max())};
  }
};

template <class T>
  requires std::same_as<T, double> || std::same_as<T, float>
struct ConfigCodec<T> {
  static Decoded decode(T& field, const RawValue& value, const FieldFacts& facts) {
    return detail::decode_real(field, value, facts);
  }
  static std::string print(T field) { return real_text(field); }
  static ValueShape shape(const FieldFacts&) { return {.kind = ValueShape::Kind::real}; }
};

/// An enum whose names come from `enum_names`, found by argument-dependent lookup (core/describe.hpp).
template <class T>
  requires std::is_enum_v<T> && requires(T value) { enum_names(value); }
struct ConfigCodec<T> {
  static Decoded decode(T& field, const RawValue& value, const FieldFacts&) {
    if (auto wrong = not_a_text(value, "a name")) return {.problem = *wrong, .place = value.place};
    for (const auto& named : enum_names(T{})) {
      if (named.name != value.text) continue;
      field = named.value;
      return {};
    }
    return {.problem = not_a_choice(value.text, names()), .place = value.place};
  }
  static std::string print(T field) {
    for (const auto& named : enum_names(T{}))
      if (named.value == field) return yaml_quoted(named.name);
    return yaml_quoted(std::to_string(static_cast<std::underlying_type_t<T>>(field)));
  }
  static ValueShape shape(const FieldFacts&) { return {.kind = ValueShape::Kind::name, .names = names()}; }

 private:
  static std::vector<std::string> names() {
    std::vector<std::string> result;
    for (const auto& named : enum_names(T{})) result.emplace_back(named.name);
    return result;
  }
};

namespace detail {
template <class T>
inline constexpr bool kIsMap = false;
template <class T>
inline constexpr bool kIsMap<std::map<std::string, T>> = true;
}  // namespace detail

/// A type that a list, a map or an optional may hold. It is not a map, since a path can name only one key of a map.
template <class T>
concept ConfigItem = ConfigLeaf<T> && !detail::kIsMap<T>;

/// An optional value; `null` stands for none.
template <ConfigItem T>
struct ConfigCodec<std::optional<T>> {
  static Decoded decode(std::optional<T>& field, const RawValue& value, const FieldFacts& facts) {
    if (is_null(value)) {
      field.reset();
      return {};
    }
    T inner{};
    auto decoded = ConfigCodec<T>::decode(inner, value, facts);
    if (decoded.problem.empty()) field = std::move(inner);
    return decoded;
  }
  static std::string print(const std::optional<T>& field) { return field ? ConfigCodec<T>::print(*field) : "null"; }
  static ValueShape shape(const FieldFacts& facts) {
    auto shape = ConfigCodec<T>::shape(facts);
    shape.may_be_null = true;
    return shape;
  }
};

namespace detail {

/// Reads item `index` of a list; a problem names the item.
template <ConfigLeaf T>
Decoded decode_item(T& item, const RawValue& list, std::size_t index, const FieldFacts& facts) {
  auto decoded = ConfigCodec<T>::decode(item, list.items[index], facts);
  if (!decoded.problem.empty() || !decoded.notice.empty()) decoded.item.insert(0, '[' + std::to_string(index) + ']');
  return decoded;
}

template <class List>
std::string print_list(const List& list) {
  std::string text = "[";
  for (const typename List::value_type& item : list)
    text += (text.size() == 1 ? "" : ", ") + ConfigCodec<typename List::value_type>::print(item);
  return text + ']';
}

}  // namespace detail

template <ConfigItem T>
struct ConfigCodec<std::vector<T>> {
  static Decoded decode(std::vector<T>& field, const RawValue& value, const FieldFacts& facts) {
    if (value.kind != RawValue::Kind::list) return {.problem = not_a_list(value), .place = value.place};
    std::vector<T> items;
    std::string notice;
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      T item{};
      auto decoded = detail::decode_item(item, value, i, facts);
      if (!decoded.problem.empty()) return decoded;
      if (!decoded.notice.empty()) notice = decoded.notice;
      items.push_back(std::move(item));
    }
    field = std::move(items);
    return {.notice = notice, .place = value.place};
  }
  static std::string print(const std::vector<T>& field) { return detail::print_list(field); }
  static ValueShape shape(const FieldFacts& facts) {
    return {.kind = ValueShape::Kind::list, .item = {ConfigCodec<T>::shape(facts)}};
  }
};

template <ConfigItem T, std::size_t N>
struct ConfigCodec<std::array<T, N>> {
  static Decoded decode(std::array<T, N>& field, const RawValue& value, const FieldFacts& facts) {
    if (value.kind != RawValue::Kind::list) return {.problem = not_a_list(value), .place = value.place};
    if (value.items.size() != N)
      return {.problem = "needs " + std::to_string(N) + " items, and has " + std::to_string(value.items.size()),
              .place = value.place};
    auto items = field;
    for (std::size_t i = 0; i < N; ++i) {
      auto decoded = detail::decode_item(items[i], value, i, facts);
      if (!decoded.problem.empty()) return decoded;
    }
    field = std::move(items);
    return {};
  }
  static std::string print(const std::array<T, N>& field) { return detail::print_list(field); }
  static ValueShape shape(const FieldFacts& facts) {
    return {.kind = ValueShape::Kind::list, .length = N, .item = {ConfigCodec<T>::shape(facts)}};
  }
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/config/codec_inl.hpp>
#endif
