// ddpxx/config/table/secret_key.hpp — recognises secrets by the config, or by the names of keys without one.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <ddpxx/config/path.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/table/several.hpp>
#include <ddpxx/config/table/unknown_key.hpp>
#include <ddpxx/config/text/synonyms.hpp>
#include <ddpxx/core/suggest.hpp>
#include <ddpxx/core/units.hpp>

namespace ddpxx::detail {

/// True for names that secrets often have: `token`, `hub.auth-token`, `aws_secret_key`, `db.password`. The last word
/// counts: `token_dim`, `max_tokens` and `key` are not secrets.
inline bool sounds_secret(std::string_view key) {
  static constexpr std::array<std::string_view, 7> kWords{"token",      "secret",     "password", "passwd",
                                                          "passphrase", "credential", "apikey"};
  static constexpr std::array<std::string_view, 5> kKinds{"api", "access", "private", "auth", "secret"};
  std::vector<std::string> words(1);
  for (const char c : lower(name_of(key)))
    if (c == '_' || c == '-')
      words.emplace_back();
    else
      words.back() += c;
  const auto is_in = [](const auto& list, const std::string& word) {
    return std::ranges::find(list, word) != list.end();
  };
  const auto last = words.size() - 1;
  return is_in(kWords, words[last]) || (last > 0 && words[last] == "key" && is_in(kKinds, words[last - 1]));
}

/// True if the config declares the key's setting secret. That includes the settings of a list's items, the `name` of a
/// group, settings under former names, and keys below a secret.
inline bool leads_to_secret(const ConfigTable& table, const std::string& key) {
  const auto is_secret = [&](std::string_view path) {
    return std::ranges::any_of(table.rows,
                               [&](const auto& row) { return row.facts.is_secret && lies_in(path, row.path); });
  };
  const auto meaning = table.meaning_of(key);
  if (is_secret(meaning.path)) return true;
  if (meaning.kind == KeyMeaning::Kind::group) return is_secret(path_in(meaning.path, "name"));
  if (meaning.kind != KeyMeaning::Kind::unknown) return false;
  for (auto i = count_of_several(table, key); i-- > 0;)
    if (is_secret(table.meaning_of(item_key(key, i)).path)) return true;
  const auto* moved = ConfigTable::most_specific(table.moved, meaning.path);
  return moved != nullptr && is_secret(moved->leads_to + meaning.path.substr(moved->key.size()));
}

/// True if a segment of a key that the config does not have probably means a secret: by its words, or because it is, or
/// is near to, the name of a secret or one of that name's synonyms.
inline bool may_mean_secret(const ConfigTable& table, const std::string& segment) {
  std::vector<std::string> secrets;
  for (const auto& row : table.rows)
    if (row.facts.is_secret) secrets.push_back(folded(name_of(row.path)));
  const auto synonym = synonym_of(segment, table.synonyms);
  const auto dotted = with_dots(table, folded(segment));
  return sounds_secret(segment) || nearest(segment, secrets) ||
         (synonym && std::ranges::find(secrets, *synonym) != secrets.end()) ||
         (dotted && leads_to_secret(table, *dotted));
}

/// True if the value of the key must not be shown: the key leads to a secret, or it is not a key of the config and
/// probably means one, as a misspelt or misplaced key does.
inline bool may_be_secret(const ConfigTable& table, const std::string& key) {
  if (leads_to_secret(table, key)) return true;
  const auto meaning = table.meaning_of(key);
  if (meaning.kind == KeyMeaning::Kind::ignored) return std::ranges::any_of(path_segments(key), sounds_secret);
  if (meaning.kind != KeyMeaning::Kind::unknown) return false;
  const auto segments = path_segments(meaning.path);
  for (auto i = first_unknown_segment(table, meaning.path); i < segments.size(); ++i)
    if (may_mean_secret(table, segments[i])) return true;
  return false;
}

/// The key of `key=value`, `--key value` or `+key`. Dashes become underscores, unless the config has the key with
/// dashes.
inline std::string key_of_argument(std::string_view argument, const ConfigTable* table) {
  argument.remove_prefix(std::min(argument.find_first_not_of("-+~"), argument.size()));
  std::string key{argument.substr(0, argument.find_first_of("= "))};
  const bool is_known = table != nullptr && table->meaning_of(key).kind != KeyMeaning::Kind::unknown;
  if (!is_known) std::ranges::replace(key, '-', '_');
  return key;
}

/// The reason why an argument is a secret: its config declares it so, or only its name suggests it.
enum class Secrecy { none, by_name, by_config };

inline Secrecy secrecy_of(std::string_view argument, const ConfigTable* table) {
  const auto key = key_of_argument(argument, table);
  if (table != nullptr && leads_to_secret(*table, key)) return Secrecy::by_config;
  if (table != nullptr && table->meaning_of(key).row != nullptr) return Secrecy::none;
  const bool is_by_name = table != nullptr ? may_be_secret(*table, key) : sounds_secret(key);
  return is_by_name ? Secrecy::by_name : Secrecy::none;
}

/// The problem of a secret's value, without a quoted value.
inline std::string without_quotes(const std::string& problem) {
  return problem.find('"') == std::string::npos ? problem : "the value of this secret is not taken";
}

}  // namespace ddpxx::detail
