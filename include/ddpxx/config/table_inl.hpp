// ddpxx/config/table_inl.hpp — the functions of table.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/config/alias.hpp>
#include <ddpxx/config/number_text.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/value_shape.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx {

namespace detail {

inline std::string_view unit_text(Unit unit) {
  switch (unit) {
    case Unit::steps:
      return "in steps";
    case Unit::epochs:
      return "in epochs";
    case Unit::samples:
      return "in samples";
    case Unit::tokens:
      return "in tokens";
    case Unit::characters:
      return "in characters";
    case Unit::ranks:
      return "in ranks";
    case Unit::threads:
      return "in threads";
    case Unit::none:
    case Unit::bytes:    // these units have suffixes, which
    case Unit::seconds:  // `allowed_text` lists
      return "";
  }
  return "";
}

}  // namespace detail

DDPXX_INLINE std::string accepted_values(const ConfigRow& row) {
  auto text = words_of(row.type->shape(row.facts));
  if (const auto allowed = allowed_text(row.facts); !allowed.empty()) text += ", " + allowed;
  if (const auto unit = detail::unit_text(row.facts.unit); !unit.empty()) text += ", " + std::string{unit};
  return text;
}

DDPXX_INLINE const ConfigRow* ConfigTable::find(std::string_view path) const {
  for (const auto& row : rows)
    if (row.path == path) return &row;
  return nullptr;
}

DDPXX_INLINE const ConfigRow* ConfigTable::find_map(std::string_view path) const {
  for (const auto& row : rows)
    if (row.type->is_map() && path.size() > row.path.size() && lies_in(path, row.path)) return &row;
  return nullptr;
}

DDPXX_INLINE const ConfigRow* ConfigTable::run_folder() const {
  for (const auto& row : rows)
    if (row.facts.output == Output::run_folder) return &row;
  return nullptr;
}

DDPXX_INLINE const ConfigGroup* ConfigTable::find_group(std::string_view path) const {
  for (const auto& group : groups)
    if (group.path == path) return &group;
  return nullptr;
}

DDPXX_INLINE const void* ConfigTable::field(const FieldPlace& place, const void* config) const {
  const void* base = config;
  if (place.variant != FieldPlace::kRoot) {
    const auto& variant = variants[place.variant];
    const void* holder = field(variant.place, config);
    base = holder == nullptr ? nullptr : variant.alternative(holder, place.alternative);
  }
  return base == nullptr ? nullptr : static_cast<const std::byte*>(base) + place.offset;
}

DDPXX_INLINE void* ConfigTable::field(const ConfigRow& row, void* config) const {
  return const_cast<void*>(field(row.place, static_cast<const void*>(config)));  // NOLINT: `config` is not const
}

DDPXX_INLINE const void* ConfigTable::default_of(const ConfigRow& row) const {
  if (const void* active = field(row, defaults)) return active;
  return static_cast<const std::byte*>(variants[row.place.variant].defaults[row.place.alternative]) + row.place.offset;
}

DDPXX_INLINE std::optional<std::size_t> ConfigTable::alternative_in(FieldPlace place, std::size_t variant) const {
  while (place.variant != variant && place.variant != FieldPlace::kRoot) place = variants[place.variant].place;
  return place.variant == variant ? std::optional{place.alternative} : std::nullopt;
}

DDPXX_INLINE const ConfigRow* ConfigTable::find_active(std::string_view path, const void* config) const {
  for (const auto& row : rows)
    if (row.path == path && is_active(row, config)) return &row;
  return nullptr;
}

DDPXX_INLINE std::vector<FieldError> ConfigTable::broken_rules(const void* config,
                                                               const std::vector<std::string>& invalid) const {
  std::vector<FieldError> errors;
  for (const auto& group : groups) {
    const void* address = field(group.place, config);
    const auto is_inside = [&](const std::string& path) { return lies_in(path, group.path); };
    if (group.check == nullptr || address == nullptr || std::ranges::any_of(invalid, is_inside)) continue;
    for (auto& error : group.check(address)) {
      error.field = error.field.empty() ? group.path : path_in(group.path, error.field);
      errors.push_back(std::move(error));
    }
  }
  return errors;
}

DDPXX_INLINE std::string ConfigTable::print_field(const ConfigRow& row, const void* field) const {
  if (row.facts.is_secret) return "\"***\"";
  if (row.chooses) return yaml_quoted(row.facts.choices.names[row.type->index(field)]);
  auto text = row.type->print(field);
  // A place of output may name the run folder until the run has made it. Then the reference is printed.
  const auto* folder = row.facts.output == Output::none ? nullptr : run_folder();
  if (const auto at = folder == nullptr ? text.npos : text.find("\\\\${" + folder->path + '}'); at != text.npos)
    text.erase(at, 2);
  return text;
}

/// A value takes precedence over an alias, and a longer alias over a shorter one. Targets of aliases may be aliases.
DDPXX_INLINE KeyMeaning ConfigTable::meaning_of(std::string_view written) const {
  std::string path{written};
  decltype(KeyMeaning::translate) translate = nullptr;
  for (std::size_t turn = 0; turn <= aliases.size(); ++turn) {
    if (const ConfigRow* row = find(path))
      return {.kind = KeyMeaning::Kind::value, .path = path, .row = row, .translate = translate};
    if (const ConfigRow* map = find_map(path))
      return {.kind = KeyMeaning::Kind::value, .path = path, .row = map, .entry = path.substr(map->path.size() + 1)};
    const Alias* alias = most_specific(aliases, path);
    const Ignored* skipped = most_specific(ignored, path);
    if (skipped != nullptr && (alias == nullptr || skipped->key.size() > alias->key.size()))
      return {.kind = KeyMeaning::Kind::ignored,
              .path = std::string{skipped->key},
              .reason = skipped->reason,
              .lies_below = path.size() > skipped->key.size()};
    if (alias == nullptr) break;
    if (path == alias->key && alias->translate != nullptr) translate = alias->translate;
    path.replace(0, alias->key.size(), alias->leads_to);
  }
  return {.kind = find_group(path) != nullptr ? KeyMeaning::Kind::group : KeyMeaning::Kind::unknown, .path = path};
}

namespace detail {

DDPXX_INLINE void check_paths(const ConfigTable& table) {
  std::map<std::string_view, FieldPlace> paths;
  const auto add = [&](std::string_view path, const FieldPlace& place) {
    const auto [found, is_new] = paths.emplace(path, place);
    if (!is_new && found->second.variant == FieldPlace::kRoot && place.variant == FieldPlace::kRoot)
      throw Error{Errc::config, "flatten: two fields have the path `" + std::string{path} + "`: rename one of them"};
  };
  for (const auto& group : table.groups)
    if (!group.is_flattened) add(group.path, group.place);
  for (const auto& row : table.rows)
    if (!row.chooses) add(row.path, row.place);
}

DDPXX_INLINE void check_aliases(const ConfigTable& table) {
  const auto refuse_if = [](bool wrong, const char* function, std::string_view key, const char* why) {
    if (wrong) throw Error{Errc::config, std::string{function} + ": \"" + std::string{key} + "\" " + why};
  };
  const auto is_field = [&](std::string_view key) {
    return table.find(key) != nullptr || table.find_group(key) != nullptr;
  };
  for (const auto& alias : table.aliases) {
    refuse_if(is_field(alias.key), "aliases()", alias.key, "is the name of a field");
    refuse_if(table.meaning_of(alias.key).kind == KeyMeaning::Kind::unknown, "aliases()", alias.key,
              "leads to no field");
  }
  refuse_if(is_field("include"), "a config", "include",
            "is the key by which a file names others; name the field otherwise");
  for (const auto path : table.positionals)
    refuse_if(table.find(path) == nullptr, "positionals()", path, "is not a field");
  for (const auto& each : table.ignored) refuse_if(is_field(each.key), "ignored()", each.key, "is the name of a field");
}

}  // namespace detail

}  // namespace ddpxx
