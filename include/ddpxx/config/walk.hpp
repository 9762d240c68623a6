// ddpxx/config/walk.hpp — walks over a config struct's fields, and fills the struct's table.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <boost/pfr/core_name.hpp>

#include <ddpxx/config/alias.hpp>
#include <ddpxx/config/codec.hpp>
#include <ddpxx/config/config_struct.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/table/leaf_type.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/setting.hpp>

namespace ddpxx {

namespace detail {

/// A field's address, and its facts.
struct Described {
  const void* address;
  FieldFacts facts;
};

template <class T>
std::vector<Described> described(const T& object) {
  std::vector<Described> result;
  if constexpr (requires { T::describe(); })
    for (const auto& entry : T::describe()) result.push_back({entry.address(object), entry.facts});
  for (const Entry<T>& entry : kFieldsOf<T>) result.push_back({entry.address(object), entry.facts});
  return result;
}

/// A struct while it is added to the table.
struct OpenGroup {
  std::string path;
  const void* object;
  Resume resume;
  FieldPlace base;          // the place from which offsets are counted
  const void* base_object;  // the address of the object at `base`
  std::vector<Described> described;
  std::vector<std::pair<const void*, std::string>> paths{};  // paths of the fields, by address
  std::vector<std::size_t> rows{};                           // rows of the struct's own values in the table

  FieldFacts facts_of(const void* field) const;
  FieldPlace place_of(const void* field) const;
};

/// The root of a config.
OpenGroup root_group(const void* object, std::vector<Described> described);

/// The group of a struct that is a field of `group`.
OpenGroup group_of_field(ConfigTable& table, OpenGroup& group, std::string_view name, const void* field,
                         std::vector<Described> described);

/// Adds the row of a struct, `check` is null if the struct has no rules between its fields.
void add_group(ConfigTable& table, const OpenGroup& group, const FieldFacts& facts,
               std::vector<FieldError> (*check)(const void* group));

/// Adds the row of a value.
void add_row(ConfigTable& table, OpenGroup& group, std::string_view name, const void* field, const LeafType& type);

/// Turns the addresses in `resets` into paths, after all fields of the struct are known.
void name_resets(ConfigTable& table, const OpenGroup& group);

/// Adds a variant of `count` alternatives: a group with a row `name`. The rows of the alternatives come after it.
/// Returns the group around the alternatives.
OpenGroup add_variant(ConfigTable& table, OpenGroup& group, std::string_view name, const void* field, std::size_t count,
                      const LeafType& type, decltype(ConfigVariant::alternative) alternative);

/// The group of an alternative, whose default is `object`; `variant` is the group that add_variant() has returned.
OpenGroup group_of_alternative(ConfigTable& table, const OpenGroup& variant, std::size_t index, const void* object,
                               std::vector<Described> described);

/// Refuses a variant if one of its alternatives has a field `name`.
void check_variant(const ConfigTable& table, const OpenGroup& variant);

/// Adds the names that other programs use for settings.
void add_synonyms(ConfigTable& table);

template <ConfigStruct T>
void walk(ConfigTable& table, const T& object, const FieldFacts& facts, OpenGroup group);

template <ConfigAlternatives T, std::size_t... I>
void walk_alternatives(ConfigTable& table, const OpenGroup& variant, std::index_sequence<I...>) {
  static const std::tuple<std::variant_alternative_t<I, T>...> defaults{};
  const auto walk_one = [&](std::size_t index, const auto& object) {
    walk(table, object, {}, group_of_alternative(table, variant, index, &object, described(object)));
  };
  (walk_one(I, std::get<I>(defaults)), ...);
}

/// Adds a variant, and the rows of all its alternatives.
template <ConfigAlternatives T>
void walk_variant(ConfigTable& table, OpenGroup& group, std::string_view name, const T& field) {
  using Indices = std::make_index_sequence<std::variant_size_v<T>>;
  const auto alternative = [](const void* object, std::size_t index) {
    return AlternativeName<T>::alternative(*static_cast<const T*>(object), index, Indices{});
  };
  const auto variant = add_variant(table, group, name, &field, std::variant_size_v<T>, kNameType<T>, alternative);
  walk_alternatives<T>(table, variant, Indices{});
  check_variant(table, variant);
}

template <class Field>
void walk_field(ConfigTable& table, OpenGroup& group, std::string_view name, const Field& field) {
  if constexpr (ConfigAlternatives<Field>)
    walk_variant(table, group, name, field);
  else if constexpr (ConfigStruct<Field>)
    walk(table, field, group.facts_of(&field), group_of_field(table, group, name, &field, described(field)));
  else
    add_row(table, group, name, &field, kLeafType<Field>);
}

template <ConfigStruct T>
void walk(ConfigTable& table, const T& object, const FieldFacts& facts, OpenGroup group) {
  decltype(ConfigGroup::check) check = nullptr;
  if constexpr (requires { object.check(); })
    check = [](const void* checked) { return static_cast<const T*>(checked)->check(); };
  add_group(table, group, facts, check);
  if constexpr (explain_config<T>()) {
    boost::pfr::for_each_field_with_name(
        object, [&](std::string_view name, const auto& field) { walk_field(table, group, name, field); });
    name_resets(table, group);
  }
}

}  // namespace detail

/// The table of a config, made on first use.
/// Errors  `config` if two fields have one path, as a flattened struct may cause, if `aliases()` or `ignored()`
///         contradict the fields, or if a variant's alternatives have no names.
template <ConfigStruct Config>
const ConfigTable& table_of() {
  static const Config defaults{};
  static const ConfigTable table = [] {
    ConfigTable result;
    result.defaults = &defaults;
    detail::walk(result, defaults, {}, detail::root_group(&defaults, detail::described(defaults)));
    detail::check_paths(result);
    if constexpr (requires { Config::aliases(); })
      for (const Alias& alias : Config::aliases()) result.aliases.push_back(alias);
    if constexpr (requires { Config::ignored(); })
      for (const Ignored& ignored : Config::ignored()) result.ignored.push_back(ignored);
    if constexpr (requires { Config::positionals(); })
      for (const std::string_view path : Config::positionals()) result.positionals.push_back(path);
    detail::add_synonyms(result);
    if constexpr (requires { Config::synonyms(); })
      for (const Synonym& synonym : Config::synonyms()) result.synonyms.push_back(synonym);
    if constexpr (requires { Config::python_defaults(); }) result.python_defaults = Config::python_defaults();
    detail::check_aliases(result);
    return result;
  }();
  return table;
}

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/config/walk_inl.hpp>
#endif
