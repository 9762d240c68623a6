// ddpxx/config/secret_key.hpp — keys whose values are nobody's business, told by their names where no config says so.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <ddpxx/config/path.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/core/units.hpp>

namespace ddpxx {

/// True for the keys that people give to secrets: `token`, `hub.auth-token`, `aws_secret_key`, `db.password`. What
/// counts is the last name, by its words: `max_tokens` and `key` are none.
inline bool sounds_secret(std::string_view key) {
  static constexpr std::array<std::string_view, 7> kWords{"token",      "secret",     "password", "passwd",
                                                          "passphrase", "credential", "apikey"};
  static constexpr std::array<std::string_view, 4> kKinds{"api", "access", "private", "auth"};
  std::vector<std::string> words(1);
  for (const char c : detail::lower(name_of(key)))
    if (c == '_' || c == '-')
      words.emplace_back();
    else
      words.back() += c;
  const auto is_in = [](const auto& list, const std::string& word) {
    return std::ranges::find(list, word) != list.end();
  };
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (is_in(kWords, words[i])) return true;
    if (i > 0 && words[i] == "key" && is_in(kKinds, words[i - 1])) return true;
  }
  return false;
}

/// The same of an argument `key`, `--key` or `+key`; a config, if there is one, knows better.
inline bool is_secret_key(std::string_view argument, const ConfigTable* table) {
  argument.remove_prefix(std::min(argument.find_first_not_of("-+~"), argument.size()));
  const auto* row = table == nullptr ? nullptr : table->meaning_of(argument).row;
  return row != nullptr ? row->facts.is_secret : sounds_secret(argument);
}

}  // namespace ddpxx
