// ddpxx/config/table/table.hpp — a config struct as a table: one row a value, with all that is known about it.
//
// Whatever reads, prints, explains or compares configs works on this table and is no template; only the walk that
// fills it knows types (walk.hpp).
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

/// What can be done with a field of one type whose address is known.
struct LeafType {
  Decoded (*decode)(void* field, const GivenValue& value, const FieldFacts& facts);
  std::string (*print)(const void* field);  ///< None of a variant, whose alternatives have their names in the row.
  ValueShape (*shape)(const FieldFacts& facts);
  void (*assign)(void* field, const void* from);
  /// Why the field may not have the value that it has; empty where it may. None of a variant.
  std::string (*fault)(const void* field, const FieldFacts& facts) = nullptr;
  bool is_switch = false;                            ///< `--flag` and `--no-flag` set it.
  bool takes_list = false;                           ///< An argument in brackets is a list to it, and a text to others.
  std::string (*text)(const void* field) = nullptr;  ///< Of a text or a path only: the value itself.

  /// Of a map only.
  Decoded (*decode_entry)(void* field, const std::string& key, const GivenValue& value,
                          const FieldFacts& facts) = nullptr;
  bool (*remove_entry)(void* field, const std::string& key) = nullptr;

  /// Of a variant only: the active alternative.
  std::size_t (*index)(const void* field) = nullptr;

  bool is_map() const noexcept { return decode_entry != nullptr; }
};

/// Where a field lies: at an offset from the root struct, or from an alternative of a variant.
struct FieldPlace {
  static constexpr std::size_t kRoot = std::numeric_limits<std::size_t>::max();

  std::size_t variant = kRoot;  ///< Index into the table's variants.
  std::size_t alternative = 0;
  std::size_t offset = 0;
};

/// One value of the config. The alternatives of a variant may have rows of the same path; one at most is active.
struct ConfigRow {
  std::string path;
  FieldFacts facts{};
  Resume resume = Resume::warn;
  std::vector<std::string> resets{};  ///< Paths, of values or of whole groups.
  FieldPlace place{};
  const LeafType* type = nullptr;
  bool chooses = false;  ///< The name of a variant's alternative.
};

/// One struct of the config; the root's path is empty.
struct ConfigGroup {
  std::string path;
  std::string_view help{};
  FieldPlace place{};
  bool is_flattened = false;  ///< The path is that of the struct around it, whose group comes before.
  std::vector<FieldError> (*check)(const void* group) = nullptr;
};

/// A field that is one of several structs.
struct ConfigVariant {
  std::string path;
  FieldPlace place{};
  std::vector<std::string> names{};                                              ///< Of the alternatives.
  const void* (*alternative)(const void* variant, std::size_t index) = nullptr;  ///< None unless it is the active one.
  std::vector<const void*> defaults{};                                           ///< Of the alternatives.
};

/// What a written path stands for once its aliases are followed.
struct KeyMeaning {
  enum class Kind { value, group, ignored, unknown };
  Kind kind = Kind::unknown;
  std::string path;  ///< The canonical path; for an ignored key, the key that is ignored.
  const ConfigRow* row = nullptr;
  std::string_view reason{};           ///< Why a key is ignored.
  std::optional<std::string> entry{};  ///< Of a map: the key in it; none for the map itself.
  bool lies_below = false;             ///< Of an ignored key: it is written as a group, and this is a key in it.
  Translation (*translate)(std::string_view value) = nullptr;  ///< Of an alias whose values mean something else.
};

/// A former path, of a value or a group, and the present one.
struct Moved {
  std::string key;
  std::string leads_to;
};

struct ConfigTable {
  std::vector<ConfigRow> rows;  ///< In the order of declaration.
  std::vector<ConfigGroup> groups;
  std::vector<ConfigVariant> variants;
  std::vector<Moved> moved;
  std::vector<Alias> aliases;
  std::vector<Ignored> ignored;
  std::vector<Synonym> synonyms;              ///< What other programs call keys, for suggestions.
  std::vector<std::string_view> positionals;  ///< Paths of the arguments that name no key, in their order.
  FileDefaults python_defaults{};
  const void* defaults = nullptr;  ///< A default-constructed config.

  const ConfigRow* find(std::string_view path) const {
    for (const auto& row : rows)
      if (row.path == path) return &row;
    return nullptr;
  }
  /// The map in which `path` is an entry.
  const ConfigRow* find_map(std::string_view path) const {
    for (const auto& row : rows)
      if (row.type->is_map() && path.size() > row.path.size() && lies_in(path, row.path)) return &row;
    return nullptr;
  }
  /// The setting that names the folder of a run.
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

  /// The entry with the longest key that `path` lies in.
  template <class Entry>
  static const Entry* most_specific(const std::vector<Entry>& entries, std::string_view path) {
    const Entry* best = nullptr;
    for (const auto& entry : entries)
      if (lies_in(path, entry.key) && (best == nullptr || entry.key.size() > best->key.size())) best = &entry;
    return best;
  }

  /// The address of a field; none in an alternative that is not the active one.
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
    return const_cast<void*>(field(row.place, static_cast<const void*>(config)));  // NOLINT: what is ours to write
  }

  /// The same field in a config as it is made; of an alternative that the defaults do not choose, in that alternative.
  const void* default_of(const ConfigRow& row) const {
    if (const void* active = field(row, defaults)) return active;
    return static_cast<const std::byte*>(variants[row.place.variant].defaults[row.place.alternative]) +
           row.place.offset;
  }

  /// The alternative of a variant that a field lies in, perhaps through further variants; none outside of it.
  std::optional<std::size_t> alternative_in(FieldPlace place, std::size_t variant) const {
    while (place.variant != variant && place.variant != FieldPlace::kRoot) place = variants[place.variant].place;
    return place.variant == variant ? std::optional{place.alternative} : std::nullopt;
  }

  std::size_t index_of(const ConfigRow& row) const { return static_cast<std::size_t>(&row - rows.data()); }

  bool is_active(const ConfigRow& row, const void* config) const { return field(row, config) != nullptr; }

  /// The active one of the rows with that path; none when it belongs to other alternatives.
  const ConfigRow* find_active(std::string_view path, const void* config) const {
    for (const auto& row : rows)
      if (row.path == path && is_active(row, config)) return &row;
    return nullptr;
  }

  /// As YAML. A secret is not told.
  std::string print(const ConfigRow& row, const void* config) const { return print_field(row, field(row, config)); }
  std::string print_default(const ConfigRow& row) const { return print_field(row, default_of(row)); }

  void reset(const ConfigRow& row, void* config) const { row.type->assign(field(row, config), default_of(row)); }

 private:
  std::string print_field(const ConfigRow& row, const void* field) const {
    if (row.facts.is_secret) return "\"***\"";
    if (row.chooses) return yaml_quoted(row.facts.choices.names[row.type->index(field)]);
    auto text = row.type->print(field);
    // A place of output may name the run folder until the run has made it, and reads back so.
    const auto* folder = row.facts.output == Output::none ? nullptr : run_folder();
    if (const auto at = folder == nullptr ? text.npos : text.find("\\\\${" + folder->path + '}'); at != text.npos)
      text.erase(at, 2);
    return text;
  }
};

/// A value wins over an alias, a longer alias over a shorter one. The targets of aliases are looked up in turn.
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

/// Refuses two fields of one path, which a flattened struct may bring: one of them could not be set.
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

/// Refuses aliases that hide a field, lead nowhere or run in circles, and arguments for no field: a user would find
/// them otherwise.
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
