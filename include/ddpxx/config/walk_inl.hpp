// ddpxx/config/walk_inl.hpp — the functions of walk.hpp that are not templates.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/config/path.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/text/synonyms.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/setting.hpp>

namespace ddpxx::detail {

DDPXX_INLINE FieldFacts OpenGroup::facts_of(const void* field) const {
  for (const auto& each : described)
    if (each.address == field) return each.facts;
  return {};
}

DDPXX_INLINE FieldPlace OpenGroup::place_of(const void* field) const {
  auto place = base;
  place.offset =
      static_cast<std::size_t>(static_cast<const std::byte*>(field) - static_cast<const std::byte*>(base_object));
  return place;
}

/// Adds a former name; one without a dot belongs to the struct around the field.
inline void add_former_name(ConfigTable& table, const OpenGroup& group, const std::string& path,
                            const FieldFacts& facts) {
  if (facts.was.empty()) return;
  const bool is_whole = facts.was.find('.') != std::string_view::npos;
  table.moved.push_back({is_whole ? std::string{facts.was} : path_in(group.path, facts.was), path});
}

DDPXX_INLINE OpenGroup root_group(const void* object, std::vector<Described> described) {
  return {.path = "",
          .object = object,
          .resume = Resume::warn,
          .base = {},
          .base_object = object,
          .described = std::move(described)};
}

DDPXX_INLINE OpenGroup group_of_field(ConfigTable& table, OpenGroup& group, std::string_view name, const void* field,
                                      std::vector<Described> described) {
  const auto facts = group.facts_of(field);
  if (facts.is_flattened) {
    group.paths.emplace_back(field, group.path);
  } else {
    group.paths.emplace_back(field, path_in(group.path, name));
    add_former_name(table, group, group.paths.back().second, facts);
  }
  return {.path = group.paths.back().second,
          .object = field,
          .resume = facts.resume.value_or(group.resume),
          .base = group.base,
          .base_object = group.base_object,
          .described = std::move(described)};
}

DDPXX_INLINE void add_group(ConfigTable& table, const OpenGroup& group, const FieldFacts& facts,
                            std::vector<FieldError> (*check)(const void* group)) {
  table.groups.push_back({.path = group.path,
                          .help = facts.help,
                          .place = group.place_of(group.object),
                          .is_flattened = facts.is_flattened,
                          .check = check});
}

DDPXX_INLINE void add_row(ConfigTable& table, OpenGroup& group, std::string_view name, const void* field,
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

DDPXX_INLINE void name_resets(ConfigTable& table, const OpenGroup& group) {
  for (const auto index : group.rows) {
    auto& row = table.rows[index];
    if (row.facts.resets == nullptr) continue;
    for (const void* sibling : row.facts.resets(group.object))
      for (const auto& [address, path] : group.paths)
        if (address == sibling) row.resets.push_back(path);
  }
}

DDPXX_INLINE OpenGroup add_variant(ConfigTable& table, OpenGroup& group, std::string_view name, const void* field,
                                   std::size_t count, const LeafType& type,
                                   decltype(ConfigVariant::alternative) alternative) {
  const auto facts = group.facts_of(field);
  const auto path = path_in(group.path, name);
  group.paths.emplace_back(field, path);
  add_former_name(table, group, path, facts);
  if (facts.choices.count != count)
    throw Error{Errc::config, "describe(): the variant `" + path + "` needs choices(...), one name for each of its " +
                                  std::to_string(count) + " structs"};
  const auto resume = facts.resume.value_or(group.resume);
  table.groups.push_back({.path = path, .help = facts.help, .place = group.place_of(field)});
  table.rows.push_back({.path = path_in(path, "name"),
                        .facts = facts,
                        .resume = resume,
                        .place = group.place_of(field),
                        .type = &type,
                        .chooses = true});
  table.variants.push_back(
      {.path = path, .place = group.place_of(field), .names = choices_of(facts), .alternative = alternative});
  return {.path = path,
          .object = field,
          .resume = resume,
          .base = {.variant = table.variants.size() - 1},
          .base_object = field,
          .described = {}};
}

DDPXX_INLINE OpenGroup group_of_alternative(ConfigTable& table, const OpenGroup& variant, std::size_t index,
                                            const void* object, std::vector<Described> described) {
  table.variants[variant.base.variant].defaults.push_back(object);
  return {.path = variant.path,
          .object = object,
          .resume = variant.resume,
          .base = {.variant = variant.base.variant, .alternative = index},
          .base_object = object,
          .described = std::move(described)};
}

DDPXX_INLINE void check_variant(const ConfigTable& table, const OpenGroup& variant) {
  const auto name = path_in(variant.path, "name");
  for (const auto& row : table.rows)
    if (!row.chooses && row.path == name)
      throw Error{Errc::config,
                  "`" + row.path + "` chooses one of the variant's structs; none may have a field `name`"};
}

DDPXX_INLINE void add_synonyms(ConfigTable& table) { table.synonyms.assign(kKeySynonyms.begin(), kKeySynonyms.end()); }

}  // namespace ddpxx::detail
