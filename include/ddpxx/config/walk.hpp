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

#include <ddpxx/config/table/codec.hpp>
#include <ddpxx/config/table/config_struct.hpp>
#include <ddpxx/config/table/leaf_type.hpp>
#include <ddpxx/config/table/table.hpp>
#include <ddpxx/config/text/path.hpp>
#include <ddpxx/config/text/synonyms.hpp>
#include <ddpxx/config/text/text.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
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

  FieldFacts facts_of(const void* field) const {
    for (const auto& each : described)
      if (each.address == field) return each.facts;
    return {};
  }
  FieldPlace place_of(const void* field) const {
    auto place = base;
    place.offset =
        static_cast<std::size_t>(static_cast<const std::byte*>(field) - static_cast<const std::byte*>(base_object));
    return place;
  }
};

/// Adds a former name; one without a dot belongs to the struct around the field.
inline void add_former_name(ConfigTable& table, const OpenGroup& group, const std::string& path,
                            const FieldFacts& facts) {
  if (facts.was.empty()) return;
  const bool is_whole = facts.was.find('.') != std::string_view::npos;
  table.moved.push_back({is_whole ? std::string{facts.was} : path_in(group.path, facts.was), path});
}

inline void add_row(ConfigTable& table, OpenGroup& group, std::string_view name, const void* field,
                    const LeafType& type) {
  auto facts = group.facts_of(field);
  if (facts.output != Output::none && type.text == nullptr)
    throw Error{Errc::config, "describe(): `" + path_in(group.path, name) +
                                  "` is a place of output, and therefore a std::string or a std::filesystem::path"};
  group.paths.emplace_back(field, path_in(group.path, name));
  group.rows.push_back(table.rows.size());
  add_former_name(table, group, group.paths.back().second, facts);
  table.rows.push_back({.path = group.paths.back().second,
                        .facts = facts,
                        .resume = facts.resume.value_or(group.resume),
                        .place = group.place_of(field),
                        .type = &type});
}

/// Turns the addresses in `resets` into paths, after all fields of the struct are known.
inline void name_resets(ConfigTable& table, const OpenGroup& group) {
  for (const auto index : group.rows) {
    auto& row = table.rows[index];
    if (row.facts.resets == nullptr) continue;
    for (const void* sibling : row.facts.resets(group.object))
      for (const auto& [address, path] : group.paths)
        if (address == sibling) row.resets.push_back(path);
  }
}

template <ConfigStruct T>
void walk(ConfigTable& table, const T& object, const FieldFacts& facts, OpenGroup group);

template <ConfigAlternatives T, std::size_t... I>
void walk_alternatives(ConfigTable& table, const OpenGroup& group, std::size_t variant, std::index_sequence<I...>) {
  static const std::tuple<std::variant_alternative_t<I, T>...> defaults{};
  const auto walk_one = [&]<std::size_t Index>(std::integral_constant<std::size_t, Index>) {
    const auto& object = std::get<Index>(defaults);
    table.variants[variant].defaults.push_back(&object);
    walk(table, object, {},
         OpenGroup{.path = group.path,
                   .object = &object,
                   .resume = group.resume,
                   .base = {.variant = variant, .alternative = Index},
                   .base_object = &object,
                   .described = described(object)});
  };
  (walk_one(std::integral_constant<std::size_t, I>{}), ...);
}

/// Adds a variant: a group with a row `name` and the rows of all alternatives.
template <ConfigAlternatives T>
void walk_variant(ConfigTable& table, OpenGroup& group, std::string_view name, const T& field) {
  using Indices = std::make_index_sequence<std::variant_size_v<T>>;
  const auto facts = group.facts_of(&field);
  const auto path = path_in(group.path, name);
  group.paths.emplace_back(&field, path);
  add_former_name(table, group, path, facts);
  if (facts.choices.count != std::variant_size_v<T>)
    throw Error{Errc::config, "describe(): the variant `" + path + "` needs choices(...), one name for each of its " +
                                  std::to_string(std::variant_size_v<T>) + " structs"};
  const auto resume = facts.resume.value_or(group.resume);
  table.groups.push_back({.path = path, .help = facts.help, .place = group.place_of(&field)});
  table.rows.push_back({.path = path_in(path, "name"),
                        .facts = facts,
                        .resume = resume,
                        .place = group.place_of(&field),
                        .type = &kNameType<T>,
                        .chooses = true});
  const auto variant = table.variants.size();
  table.variants.push_back({.path = path,
                            .place = group.place_of(&field),
                            .names = choices_of(facts),
                            .alternative = [](const void* object, std::size_t index) {
                              return AlternativeName<T>::alternative(*static_cast<const T*>(object), index, Indices{});
                            }});
  OpenGroup alternatives = group;
  alternatives.path = path;
  alternatives.resume = resume;
  walk_alternatives<T>(table, alternatives, variant, Indices{});
  for (const auto& row : table.rows)
    if (!row.chooses && row.path == path_in(path, "name"))
      throw Error{Errc::config,
                  "`" + row.path + "` chooses one of the variant's structs; none may have a field `name`"};
}

template <class Field>
void walk_field(ConfigTable& table, OpenGroup& group, std::string_view name, const Field& field) {
  if constexpr (ConfigAlternatives<Field>) {
    walk_variant(table, group, name, field);
  } else if constexpr (ConfigStruct<Field>) {
    const auto facts = group.facts_of(&field);
    if (facts.is_flattened) {
      group.paths.emplace_back(&field, group.path);
    } else {
      group.paths.emplace_back(&field, path_in(group.path, name));
      add_former_name(table, group, group.paths.back().second, facts);
    }
    walk(table, field, facts,
         OpenGroup{.path = group.paths.back().second,
                   .object = &field,
                   .resume = facts.resume.value_or(group.resume),
                   .base = group.base,
                   .base_object = group.base_object,
                   .described = described(field)});
  } else {
    add_row(table, group, name, &field, kLeafType<Field>);
  }
}

template <ConfigStruct T>
void walk(ConfigTable& table, const T& object, const FieldFacts& facts, OpenGroup group) {
  ConfigGroup row{
      .path = group.path, .help = facts.help, .place = group.place_of(&object), .is_flattened = facts.is_flattened};
  if constexpr (requires { object.check(); })
    row.check = [](const void* checked) { return static_cast<const T*>(checked)->check(); };
  table.groups.push_back(row);
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
    detail::walk(result, defaults, {},
                 detail::OpenGroup{.path = "",
                                   .object = &defaults,
                                   .resume = Resume::warn,
                                   .base = {},
                                   .base_object = &defaults,
                                   .described = detail::described(defaults)});
    check_paths(result);
    if constexpr (requires { Config::aliases(); })
      for (const Alias& alias : Config::aliases()) result.aliases.push_back(alias);
    if constexpr (requires { Config::ignored(); })
      for (const Ignored& ignored : Config::ignored()) result.ignored.push_back(ignored);
    if constexpr (requires { Config::positionals(); })
      for (const std::string_view path : Config::positionals()) result.positionals.push_back(path);
    result.synonyms.assign(kKeySynonyms.begin(), kKeySynonyms.end());
    if constexpr (requires { Config::synonyms(); })
      for (const Synonym& synonym : Config::synonyms()) result.synonyms.push_back(synonym);
    if constexpr (requires { Config::python_defaults(); }) result.python_defaults = Config::python_defaults();
    check_aliases(result);
    return result;
  }();
  return table;
}

}  // namespace ddpxx
