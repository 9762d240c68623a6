// ddpxx/config/table/secret_key.hpp — keys whose values are nobody's business, told by their names where no config says
// so.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <ddpxx/config/table/several.hpp>
#include <ddpxx/config/table/table.hpp>
#include <ddpxx/config/text/path.hpp>
#include <ddpxx/core/units.hpp>

namespace ddpxx {

/// True for the keys that people give to secrets: `token`, `hub.auth-token`, `aws_secret_key`, `db.password`. What
/// counts is the last word: `token_dim`, `max_tokens` and `key` are none.
inline bool sounds_secret(std::string_view key) {
  static constexpr std::array<std::string_view, 7> kWords{"token",      "secret",     "password", "passwd",
                                                          "passphrase", "credential", "apikey"};
  static constexpr std::array<std::string_view, 5> kKinds{"api", "access", "private", "auth", "secret"};
  std::vector<std::string> words(1);
  for (const char c : detail::lower(name_of(key)))
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

/// True where the config says so of what the key stands for, or of a part of it: of an item, of what a group is known
/// by, of what has moved. What is written below a secret is one, too.
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

/// The key of `key=value`, `--key value` or `+key`; dashes in one that the config does not know are underscores.
inline std::string key_of_argument(std::string_view argument, const ConfigTable* table) {
  argument.remove_prefix(std::min(argument.find_first_not_of("-+~"), argument.size()));
  std::string key{argument.substr(0, argument.find_first_of("= "))};
  const bool is_known = table != nullptr && table->meaning_of(key).kind != KeyMeaning::Kind::unknown;
  if (!is_known) std::ranges::replace(key, '-', '_');
  return key;
}

/// Who says that an argument is a secret: its config, which knows best, or else its name alone.
enum class Secrecy { none, by_name, by_config };

inline Secrecy secrecy_of(std::string_view argument, const ConfigTable* table) {
  const auto key = key_of_argument(argument, table);
  if (table != nullptr && leads_to_secret(*table, key)) return Secrecy::by_config;
  if (table != nullptr && table->meaning_of(key).row != nullptr) return Secrecy::none;
  return sounds_secret(key) ? Secrecy::by_name : Secrecy::none;
}

/// What is wrong with a secret, unless that quotes it.
inline std::string without_quotes(const std::string& problem) {
  return problem.find('"') == std::string::npos ? problem : "the value of this secret is not taken";
}

}  // namespace ddpxx
