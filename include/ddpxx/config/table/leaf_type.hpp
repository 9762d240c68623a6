// ddpxx/config/table/leaf_type.hpp — the functions by which the table handles values of one type.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ddpxx/config/codec.hpp>
#include <ddpxx/config/config_struct.hpp>
#include <ddpxx/config/raw_value.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/table/value_fault.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/value_shape.hpp>
#include <ddpxx/core/describe.hpp>

namespace ddpxx::detail {

template <class T>
inline constexpr bool kIsList = false;
template <class T>
inline constexpr bool kIsList<std::vector<T>> = true;
template <class T, std::size_t N>
inline constexpr bool kIsList<std::array<T, N>> = true;
template <class T>
inline constexpr bool kIsList<std::optional<T>> = kIsList<T>;
template <class T>
inline constexpr bool kIsList<std::map<std::string, T>> = kIsList<T>;  // the kind of its entries

template <class T>
constexpr auto entry_decoder() -> decltype(LeafType::decode_entry) {
  if constexpr (requires(T& map, const std::string& key) { ConfigCodec<T>::remove_entry(map, key); })
    return [](void* field, const std::string& key, const RawValue& value, const FieldFacts& facts) {
      return ConfigCodec<T>::decode_entry(*static_cast<T*>(field), key, value, facts);
    };
  return nullptr;
}
template <class T>
constexpr auto entry_remover() -> decltype(LeafType::remove_entry) {
  if constexpr (requires(T& map, const std::string& key) { ConfigCodec<T>::remove_entry(map, key); })
    return
        [](void* field, const std::string& key) { return ConfigCodec<T>::remove_entry(*static_cast<T*>(field), key); };
  return nullptr;
}

template <class T>
constexpr auto text_reader() -> decltype(LeafType::text) {
  if constexpr (std::same_as<T, std::string>)
    return [](const void* field) { return *static_cast<const T*>(field); };
  else if constexpr (std::same_as<T, std::filesystem::path>)
    return [](const void* field) { return static_cast<const T*>(field)->string(); };
  else
    return nullptr;
}

template <ConfigLeaf T>
inline constexpr LeafType kLeafType{
    .decode = [](void* field, const RawValue& value,
                 const FieldFacts& facts) { return ConfigCodec<T>::decode(*static_cast<T*>(field), value, facts); },
    .print = [](const void* field) { return ConfigCodec<T>::print(*static_cast<const T*>(field)); },
    .shape = [](const FieldFacts& facts) { return ConfigCodec<T>::shape(facts); },
    .assign = [](void* field, const void* from) { *static_cast<T*>(field) = *static_cast<const T*>(from); },
    .fault = [](const void* field,
                const FieldFacts& facts) { return value_fault(*static_cast<const T*>(field), facts); },
    .is_switch = std::same_as<T, bool> || std::same_as<T, std::optional<bool>>,
    .takes_list = kIsList<T>,
    .text = text_reader<T>(),
    .decode_entry = entry_decoder<T>(),
    .remove_entry = entry_remover<T>()};

/// The name of a variant's alternative, as a value: reading it makes that alternative active, with its defaults.
template <ConfigAlternatives T>
struct AlternativeName {
  static Decoded decode(void* field, const RawValue& value, const FieldFacts& facts) {
    auto& variant = *static_cast<T*>(field);
    auto index = variant.index();
    auto decoded = decode_choice(index, value, facts);
    if (index != variant.index()) emplace(variant, index, std::make_index_sequence<std::variant_size_v<T>>{});
    return decoded;
  }
  template <std::size_t... I>
  static void emplace(T& variant, std::size_t index, std::index_sequence<I...>) {
    ((I == index ? static_cast<void>(variant.template emplace<I>()) : void()), ...);
  }
  template <std::size_t... I>
  static const void* alternative(const T& variant, std::size_t index, std::index_sequence<I...>) {
    const void* found = nullptr;
    ((I == index ? static_cast<void>(found = std::get_if<I>(&variant)) : void()), ...);
    return found;
  }
};

template <ConfigAlternatives T>
inline constexpr LeafType kNameType{
    .decode = AlternativeName<T>::decode,
    .print = nullptr,
    .shape =
        [](const FieldFacts& facts) { return ValueShape{.kind = ValueShape::Kind::name, .names = choices_of(facts)}; },
    .assign = [](void* field, const void* from) { *static_cast<T*>(field) = *static_cast<const T*>(from); },
    .index = [](const void* field) { return static_cast<const T*>(field)->index(); }};

}  // namespace ddpxx::detail
