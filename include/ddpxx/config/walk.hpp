// ddpxx/config/walk.hpp — the one walk over a config struct's fields; it fills the struct's table.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/pfr/core_name.hpp>

#include <ddpxx/config/codec.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/source.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/setting.hpp>

namespace ddpxx {

/// A plain aggregate with defaults, of values and of further such structs.
template <class T>
concept ConfigStruct = std::is_class_v<T> && std::is_aggregate_v<T> && std::default_initializable<T> && !ConfigLeaf<T>;

/// `describe()`, where there is one, speaks of fields of its own struct.
template <class T>
concept DescribesItself = !requires { T::describe(); } ||
                          requires { requires std::same_as<typename decltype(T::describe())::value_type, Entry<T>>; };

/// `check()`, where there is one, is const and returns what it found.
template <class T>
concept ChecksItself = !requires(T& config) { config.check(); } || requires(const T& config) {
  { config.check() } -> std::same_as<std::vector<FieldError>>;
};

namespace detail {

struct Anything {
  template <class T>
  [[noreturn]] operator T&() const {  // NOLINT(google-explicit-constructor): it stands for a value of any type
    std::terminate();                 // never called; clang wants to see a body all the same
  }
};
template <std::size_t>
using AnythingAt = Anything;

template <class T, class Before, class After>
inline constexpr bool kTakesBraces = false;
template <class T, std::size_t... Before, std::size_t... After>
inline constexpr bool kTakesBraces<T, std::index_sequence<Before...>, std::index_sequence<After...>> = requires {
  T{AnythingAt<Before>{}..., {}, AnythingAt<After>{}...};
};

/// A C array counts once for each element, and `{}` in the place of the first one stands for all: then the values
/// that follow are too many.
template <class T, std::size_t... I>
consteval bool finds_c_array(std::index_sequence<I...>) {
  constexpr std::size_t kCount = sizeof...(I);
  return !(kTakesBraces<T, std::make_index_sequence<I>, std::make_index_sequence<kCount - 1 - I>> && ...);
}

inline constexpr std::size_t kMostFields = 200;  // of Boost.PFR

template <class T>
consteval bool has_few_fields() {
  return boost::pfr::tuple_size_v<T> <= kMostFields;
}

template <class T>
consteval bool has_c_array() {
  if constexpr (has_few_fields<T>()) return finds_c_array<T>(std::make_index_sequence<boost::pfr::tuple_size_v<T>>{});
  return false;
}

template <class T>
consteval bool explain_config() {
  static_assert(has_few_fields<T>(),
                "config: a struct has at most 200 fields (a C array counts each element); "
                "group them into structs");
  static_assert(!has_c_array<T>(), "config: a C array has no name per field; use std::array or std::vector");
  static_assert(DescribesItself<T>,
                "config: describe() returns fields(field<&Struct::member>(...), ...) of its own struct");
  static_assert(ChecksItself<T>, "config: check() is `std::vector<FieldError> check() const`");
  return has_few_fields<T>() && !has_c_array<T>() && DescribesItself<T> && ChecksItself<T>;
}

template <class T>
inline constexpr bool kIsList = false;
template <class T>
inline constexpr bool kIsList<std::vector<T>> = true;
template <class T, std::size_t N>
inline constexpr bool kIsList<std::array<T, N>> = true;
template <class T>
inline constexpr bool kIsList<std::optional<T>> = kIsList<T>;

template <ConfigLeaf T>
inline constexpr LeafType kLeafType{
    .decode = [](void* field, const GivenValue& value,
                 const FieldFacts& facts) { return ConfigCodec<T>::decode(*static_cast<T*>(field), value, facts); },
    .print = [](const void* field) { return ConfigCodec<T>::print(*static_cast<const T*>(field)); },
    .words = [](const FieldFacts& facts) { return ConfigCodec<T>::words(facts); },
    .assign = [](void* field, const void* from) { *static_cast<T*>(field) = *static_cast<const T*>(from); },
    .is_switch = std::same_as<T, bool> || std::same_as<T, std::optional<bool>>,
    .takes_list = kIsList<T>};

/// A field's facts under its address.
struct Described {
  const void* address;
  FieldFacts facts;
};

template <class T>
std::vector<Described> described(const T& object) {
  std::vector<Described> result;
  if constexpr (requires { T::describe(); })
    for (const auto& entry : T::describe()) result.push_back({entry.address(object), entry.facts});
  return result;
}

/// One struct on its way into the table.
struct OpenGroup {
  std::string path;
  const void* object;
  Resume resume;
  std::vector<Described> described;
  std::vector<std::pair<const void*, std::string>> paths{};  // of the fields, by address

  FieldFacts facts_of(const void* field) const {
    for (const auto& each : described)
      if (each.address == field) return each.facts;
    return {};
  }
};

inline std::size_t offset_of(const ConfigTable& table, const void* field) {
  return static_cast<std::size_t>(static_cast<const std::byte*>(field) - static_cast<const std::byte*>(table.defaults));
}

inline void add_row(ConfigTable& table, OpenGroup& group, std::string_view name, const void* field,
                    const LeafType& type) {
  auto facts = group.facts_of(field);
  group.paths.emplace_back(field, path_in(group.path, name));
  table.rows.push_back({.path = group.paths.back().second,
                        .facts = facts,
                        .resume = facts.resume.value_or(group.resume),
                        .offset = offset_of(table, field),
                        .type = &type});
}

/// Turns the addresses that `resets` yields into paths, once all fields of the struct are known.
inline void name_resets(ConfigTable& table, const OpenGroup& group) {
  for (auto& row : table.rows) {
    if (row.facts.resets == nullptr || group_of(row.path) != group.path) continue;
    for (const void* sibling : row.facts.resets(group.object))
      for (const auto& [address, path] : group.paths)
        if (address == sibling) row.resets.push_back(path);
  }
}

template <ConfigStruct T>
void walk(ConfigTable& table, const T& object, const std::string& path, const FieldFacts& facts, Resume resume);

template <class Field>
void walk_field(ConfigTable& table, OpenGroup& group, std::string_view name, const Field& field) {
  if constexpr (ConfigStruct<Field>) {
    const auto facts = group.facts_of(&field);
    group.paths.emplace_back(&field, path_in(group.path, name));
    walk(table, field, group.paths.back().second, facts, facts.resume.value_or(group.resume));
  } else {
    static_assert(
        ConfigLeaf<Field>,
        "config: a field is a bool, an integer, a double or float, a std::string, a std::filesystem::path, an "
        "enum with enum_names, a std::optional, std::vector or std::array of those, or a struct with defaults");
    if constexpr (ConfigLeaf<Field>) add_row(table, group, name, &field, kLeafType<Field>);
  }
}

template <ConfigStruct T>
void walk(ConfigTable& table, const T& object, const std::string& path, const FieldFacts& facts, Resume resume) {
  auto& row = table.groups.emplace_back();
  row.path = path;
  row.help = facts.help;
  row.offset = offset_of(table, &object);
  if constexpr (requires { object.check(); })
    row.check = [](const void* group) { return static_cast<const T*>(group)->check(); };
  if constexpr (explain_config<T>()) {
    OpenGroup group{path, &object, resume, described(object)};
    boost::pfr::for_each_field_with_name(
        object, [&](std::string_view name, const auto& field) { walk_field(table, group, name, field); });
    name_resets(table, group);
  }
}

}  // namespace detail

/// The table of a config, made on first use.
/// Errors  `config` when `aliases()` or `ignored()` contradict the fields.
template <ConfigStruct Config>
const ConfigTable& table_of() {
  static const Config defaults{};
  static const ConfigTable table = [] {
    ConfigTable result;
    result.defaults = &defaults;
    detail::walk(result, defaults, "", {}, Resume::warn);
    if constexpr (requires { Config::aliases(); })
      for (const Alias& alias : Config::aliases()) result.aliases.push_back(alias);
    if constexpr (requires { Config::ignored(); })
      for (const Ignored& ignored : Config::ignored()) result.ignored.push_back(ignored);
    check_aliases(result);
    return result;
  }();
  return table;
}

}  // namespace ddpxx
