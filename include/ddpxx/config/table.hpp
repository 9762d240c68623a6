// ddpxx/config/table.hpp — a config struct as a table: one row a value, with all that is known about it.
//
// Whatever reads, prints, explains or compares configs works on this table and is no template; only the walk that
// fills it knows types (walk.hpp).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/config/codec.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/source.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/setting.hpp>

namespace ddpxx {

/// What can be done with a field of one type whose address is known.
struct LeafType {
  Decoded (*decode)(void* field, const GivenValue& value, const FieldFacts& facts);
  std::string (*print)(const void* field);
  std::string (*words)(const FieldFacts& facts);
  void (*assign)(void* field, const void* from);
  bool is_switch;   ///< `--flag` and `--no-flag` set it.
  bool takes_list;  ///< An argument in brackets is a list to it, and a text to others.
};

/// One value of the config.
struct ConfigRow {
  std::string path;
  FieldFacts facts{};
  Resume resume = Resume::warn;
  std::vector<std::string> resets{};  ///< Paths, of values or of whole groups.
  std::size_t offset = 0;             ///< From the start of the root struct.
  const LeafType* type = nullptr;
};

/// One struct of the config; the root's path is empty.
struct ConfigGroup {
  std::string path;
  std::string_view help;
  std::size_t offset = 0;
  std::vector<FieldError> (*check)(const void* group) = nullptr;
};

/// What a written path stands for once its aliases are followed.
struct KeyMeaning {
  enum class Kind { value, group, ignored, unknown };
  Kind kind = Kind::unknown;
  std::string path;  ///< The canonical path; for an ignored key, the key that is ignored.
  const ConfigRow* row = nullptr;
  std::string_view reason;  ///< Why a key is ignored.
};

struct ConfigTable {
  std::vector<ConfigRow> rows;  ///< In the order of declaration.
  std::vector<ConfigGroup> groups;
  std::vector<Alias> aliases;
  std::vector<Ignored> ignored;
  const void* defaults = nullptr;  ///< A default-constructed config.

  const ConfigRow* find(std::string_view path) const {
    for (const auto& row : rows)
      if (row.path == path) return &row;
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

  void* field(const ConfigRow& row, void* config) const { return static_cast<std::byte*>(config) + row.offset; }
  const void* field(const ConfigRow& row, const void* config) const {
    return static_cast<const std::byte*>(config) + row.offset;
  }
  std::string print(const ConfigRow& row, const void* config) const { return row.type->print(field(row, config)); }
  void reset(const ConfigRow& row, void* config) const { row.type->assign(field(row, config), field(row, defaults)); }
};

/// A value wins over an alias, a longer alias over a shorter one. The targets of aliases are looked up in turn.
inline KeyMeaning ConfigTable::meaning_of(std::string_view written) const {
  std::string path{written};
  for (std::size_t turn = 0; turn <= aliases.size(); ++turn) {
    if (const ConfigRow* row = find(path)) return {KeyMeaning::Kind::value, path, row, {}};
    const Alias* alias = most_specific(aliases, path);
    const Ignored* skipped = most_specific(ignored, path);
    if (skipped != nullptr && (alias == nullptr || skipped->key.size() > alias->key.size()))
      return {KeyMeaning::Kind::ignored, std::string{skipped->key}, nullptr, skipped->reason};
    if (alias == nullptr) break;
    path.replace(0, alias->key.size(), alias->leads_to);
  }
  return {find_group(path) != nullptr ? KeyMeaning::Kind::group : KeyMeaning::Kind::unknown, path, nullptr, {}};
}

/// Refuses aliases that hide a field, lead nowhere or run in circles: a user would find them otherwise.
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
  for (const auto& each : table.ignored) refuse_if(is_field(each.key), "ignored()", each.key, "is the name of a field");
}

}  // namespace ddpxx
