// ddpxx/config/table.hpp — a config struct as a table with a row for each value.
//
// The code that reads, prints, explains and compares configs works on this table and is not a template; only the walk
// that fills the table is one (walk.hpp).
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ddpxx/config/alias.hpp>
#include <ddpxx/config/codec.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/raw_value.hpp>
#include <ddpxx/config/synonym.hpp>
#include <ddpxx/config/value_shape.hpp>
#include <ddpxx/core/describe.hpp>
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

/// The values that a setting accepts: `a number, above 0`, `a whole number, in steps`.
std::string accepted_values(const ConfigRow& row);

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

  const ConfigRow* find(std::string_view path) const;
  /// The map that has `path` as an entry; null if there is none.
  const ConfigRow* find_map(std::string_view path) const;
  /// The setting that names the run folder; null if there is none.
  const ConfigRow* run_folder() const;
  const ConfigGroup* find_group(std::string_view path) const;

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
  const void* field(const FieldPlace& place, const void* config) const;
  const void* field(const ConfigRow& row, const void* config) const { return field(row.place, config); }
  void* field(const ConfigRow& row, void* config) const;

  /// The address of the field in a default-constructed config, or in the default of its alternative.
  const void* default_of(const ConfigRow& row) const;

  /// The alternative of a variant that contains a field, directly or in further variants; none if none does.
  std::optional<std::size_t> alternative_in(FieldPlace place, std::size_t variant) const;

  std::size_t index_of(const ConfigRow& row) const { return static_cast<std::size_t>(&row - rows.data()); }

  bool is_active(const ConfigRow& row, const void* config) const { return field(row, config) != nullptr; }

  /// The active row with that path; null if only alternatives that are not active have one.
  const ConfigRow* find_active(std::string_view path, const void* config) const;

  /// The value as YAML; `***` for a secret.
  std::string print(const ConfigRow& row, const void* config) const { return print_field(row, field(row, config)); }
  std::string print_default(const ConfigRow& row) const { return print_field(row, default_of(row)); }

  /// What check() of the groups finds, with full paths. Groups that contain a path of `invalid` are not checked.
  std::vector<FieldError> broken_rules(const void* config, const std::vector<std::string>& invalid) const;

  void reset(const ConfigRow& row, void* config) const { row.type->assign(field(row, config), default_of(row)); }

 private:
  std::string print_field(const ConfigRow& row, const void* field) const;
};

namespace detail {

/// Refuses two fields with one path, as a flattened struct may cause: one of them could not be set.
void check_paths(const ConfigTable& table);

/// Refuses aliases that hide a field, lead to no field or form a circle, and positional arguments without a field.
void check_aliases(const ConfigTable& table);

}  // namespace detail

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/config/table_inl.hpp>
#endif
