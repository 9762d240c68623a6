// ddpxx/config/table/table.hpp — a config struct as a table with a row for each value.
//
// The code that reads, prints, explains and compares configs works on this table and is no template; only the walk that
// fills the table is one (walk.hpp).
#pragma once

#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/config/table/codec.hpp>
#include <ddpxx/config/text/path.hpp>
#include <ddpxx/config/text/shape.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/config/text/synonyms.hpp>
#include <ddpxx/config/text/text.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/setting.hpp>

namespace ddpxx {

/// Functions on a field of one type, given its address.
struct LeafType {
  Decoded (*decode)(void* field, const RawValue& value, const FieldFacts& facts);
  std::string (*print)(const void* field);  ///< Null for a variant; the row has its names.
  ValueShape (*shape)(const FieldFacts& facts);
  void (*assign)(void* field, const void* from);
  /// Why the value of the field is not allowed; empty if it is. Null for a variant.
  std::string (*fault)(const void* field, const FieldFacts& facts) = nullptr;
  bool is_switch = false;                            ///< `--flag` and `--no-flag` set the field.
  bool takes_list = false;                           ///< An argument in brackets is a list, and not a text.
  std::string (*text)(const void* field) = nullptr;  ///< The value of a text or a path; else null.

  /// Reads an entry of a map; null for other types.
  Decoded (*decode_entry)(void* field, const std::string& key, const RawValue& value,
                          const FieldFacts& facts) = nullptr;
  bool (*remove_entry)(void* field, const std::string& key) = nullptr;

  /// The index of a variant's active alternative; null for other types.
  std::size_t (*index)(const void* field) = nullptr;

  bool is_map() const noexcept { return decode_entry != nullptr; }
};

/// The location of a field: its offset in the root struct, or in an alternative of a variant.
struct FieldPlace {
  static constexpr std::size_t kRoot = std::numeric_limits<std::size_t>::max();

  std::size_t variant = kRoot;  ///< Index into the table's variants, or kRoot.
  std::size_t alternative = 0;
  std::size_t offset = 0;
};

/// One value of the config. Alternatives of a variant may have rows with equal paths; at most one of them is active.
struct ConfigRow {
  std::string path;
  FieldFacts facts{};
  Resume resume = Resume::warn;
  std::vector<std::string> resets{};  ///< Paths of values and of whole groups.
  FieldPlace place{};
  const LeafType* type = nullptr;
  bool chooses = false;  ///< The value is the name of a variant's alternative.
};

/// One struct of the config. The path of the root is empty.
struct ConfigGroup {
  std::string path;
  std::string_view help{};
  FieldPlace place{};
  bool is_flattened = false;  ///< It has the path of the struct around it, whose group comes before it.
  std::vector<FieldError> (*check)(const void* group) = nullptr;
};

/// A field that is one of several structs.
struct ConfigVariant {
  std::string path;
  FieldPlace place{};
  std::vector<std::string> names{};                                              ///< Names of the alternatives.
  const void* (*alternative)(const void* variant, std::size_t index) = nullptr;  ///< Null unless it is active.
  std::vector<const void*> defaults{};                                           ///< Default of each alternative.
};

/// The meaning of a path as the user writes it, after its aliases are followed.
struct KeyMeaning {
  enum class Kind { value, group, ignored, unknown };
  Kind kind = Kind::unknown;
  std::string path;  ///< The canonical path; for an ignored key, that key.
  const ConfigRow* row = nullptr;
  std::string_view reason{};           ///< Why the key is ignored; empty if it is not.
  std::optional<std::string> entry{};  ///< Key of an entry of a map; none for the map itself.
  bool lies_below = false;             ///< The path is a key below an ignored key.
  Translation (*translate)(std::string_view value) =
      nullptr;  ///< Converts the values of an alias; null if they need none.
};

/// A former path of a value or a group, and the present path.
struct Moved {
  std::string key;
  std::string leads_to;
};

struct ConfigTable {
  std::vector<ConfigRow> rows;  ///< Values in the order of declaration.
  std::vector<ConfigGroup> groups;
  std::vector<ConfigVariant> variants;
  std::vector<Moved> moved;
  std::vector<Alias> aliases;
  std::vector<Ignored> ignored;
  std::vector<Synonym> synonyms;              ///< Other programs' names of keys, for suggestions.
  std::vector<std::string_view> positionals;  ///< Paths that arguments without a key set, in order.
  FileDefaults python_defaults{};
  const void* defaults = nullptr;  ///< A default-constructed config.

  const ConfigRow* find(std::string_view path) const {
    for (const auto& row : rows)
      if (row.path == path) return &row;
    return nullptr;
  }
  /// The map that has `path` as an entry; null if there is none.
  const ConfigRow* find_map(std::string_view path) const {
    for (const auto& row : rows)
      if (row.type->is_map() && path.size() > row.path.size() && lies_in(path, row.path)) return &row;
    return nullptr;
  }
  /// The setting that names the run folder; null if there is none.
  const ConfigRow* run_folder() const {
    for (const auto& row : rows)
      if (row.facts.output == Output::run_folder) return &row;
    return nullptr;
  }
  const ConfigGroup* find_group(std::string_view path) const {
    for (const auto& group : groups)
      if (group.path == path) return &group;
    return nullptr;
  }

  KeyMeaning meaning_of(std::string_view written) const;

  /// The entry with the longest key that contains `path`.
  template <class Entry>
  static const Entry* most_specific(const std::vector<Entry>& entries, std::string_view path) {
    const Entry* best = nullptr;
    for (const auto& entry : entries)
      if (lies_in(path, entry.key) && (best == nullptr || entry.key.size() > best->key.size())) best = &entry;
    return best;
  }

  /// The address of a field; null in an alternative that is not active.
  const void* field(const FieldPlace& place, const void* config) const {
    const void* base = config;
    if (place.variant != FieldPlace::kRoot) {
      const auto& variant = variants[place.variant];
      const void* holder = field(variant.place, config);
      base = holder == nullptr ? nullptr : variant.alternative(holder, place.alternative);
    }
    return base == nullptr ? nullptr : static_cast<const std::byte*>(base) + place.offset;
  }
  const void* field(const ConfigRow& row, const void* config) const { return field(row.place, config); }
  void* field(const ConfigRow& row, void* config) const {
    return const_cast<void*>(field(row.place, static_cast<const void*>(config)));  // NOLINT: `config` is not const
  }

  /// The address of the field in a default-constructed config, or in the default of its alternative.
  const void* default_of(const ConfigRow& row) const {
    if (const void* active = field(row, defaults)) return active;
    return static_cast<const std::byte*>(variants[row.place.variant].defaults[row.place.alternative]) +
           row.place.offset;
  }

  /// The alternative of a variant that contains a field, directly or in further variants; none if none does.
  std::optional<std::size_t> alternative_in(FieldPlace place, std::size_t variant) const {
    while (place.variant != variant && place.variant != FieldPlace::kRoot) place = variants[place.variant].place;
    return place.variant == variant ? std::optional{place.alternative} : std::nullopt;
  }

  std::size_t index_of(const ConfigRow& row) const { return static_cast<std::size_t>(&row - rows.data()); }

  bool is_active(const ConfigRow& row, const void* config) const { return field(row, config) != nullptr; }

  /// The active row with that path; null if only alternatives that are not active have one.
  const ConfigRow* find_active(std::string_view path, const void* config) const {
    for (const auto& row : rows)
      if (row.path == path && is_active(row, config)) return &row;
    return nullptr;
  }

  /// The value as YAML; `***` for a secret.
  std::string print(const ConfigRow& row, const void* config) const { return print_field(row, field(row, config)); }
  std::string print_default(const ConfigRow& row) const { return print_field(row, default_of(row)); }

  void reset(const ConfigRow& row, void* config) const { row.type->assign(field(row, config), default_of(row)); }

 private:
  std::string print_field(const ConfigRow& row, const void* field) const {
    if (row.facts.is_secret) return "\"***\"";
    if (row.chooses) return yaml_quoted(row.facts.choices.names[row.type->index(field)]);
    auto text = row.type->print(field);
    // A place of output may name the run folder until the run has made it. Then the reference is printed.
    const auto* folder = row.facts.output == Output::none ? nullptr : run_folder();
    if (const auto at = folder == nullptr ? text.npos : text.find("\\\\${" + folder->path + '}'); at != text.npos)
      text.erase(at, 2);
    return text;
  }
};

/// A value takes precedence over an alias, and a longer alias over a shorter one. Targets of aliases may be aliases.
inline KeyMeaning ConfigTable::meaning_of(std::string_view written) const {
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

/// Refuses two fields with one path, as a flattened struct may cause: one of them could not be set.
inline void check_paths(const ConfigTable& table) {
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

/// Refuses aliases that hide a field, lead to no field or form a circle, and positional arguments without a field.
inline void check_aliases(const ConfigTable& table) {
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
    refuse_if(table.find(path) == nullptr, "positionals()", path, "is no field");
  for (const auto& each : table.ignored) refuse_if(is_field(each.key), "ignored()", each.key, "is the name of a field");
}

}  // namespace ddpxx
