// ddpxx/core/suggest_inl.hpp — definitions of suggest.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ddpxx/core/suggest.hpp>

namespace ddpxx {

DDPXX_INLINE std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row[b.size()];
}

namespace detail {

/// `learning_rate` is abbreviated by `lr`.
inline std::string initials(std::string_view name) {
  std::string letters;
  for (std::size_t i = 0; i < name.size(); ++i)
    if (name[i] != '_' && (i == 0 || name[i - 1] == '_')) letters += name[i];
  return letters;
}

/// `epochs` and `max` are words of `max_epochs`.
inline bool is_word_of(std::string_view word, std::string_view name) {
  const auto at = name.find(word);
  if (word.size() < 3 || at == std::string_view::npos) return false;
  const auto end = at + word.size();
  return (at == 0 || name[at - 1] == '_') && (end == name.size() || name[end] == '_');
}

DDPXX_INLINE std::string folded(std::string_view name) {
  std::string result{name};
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  return result;
}

}  // namespace detail

DDPXX_INLINE std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates) {
  const auto wanted = detail::folded(word);
  const std::size_t tolerance = std::max<std::size_t>(1, wanted.size() / 3);
  const std::string* best = nullptr;
  std::size_t best_distance = tolerance + 1;
  for (const auto& candidate : candidates) {
    const std::size_t longer = std::max(wanted.size(), candidate.size());
    if (longer - std::min(wanted.size(), candidate.size()) >= best_distance) continue;
    const auto distance = edit_distance(wanted, detail::folded(candidate));
    if (distance >= best_distance || distance >= longer) continue;  // nothing in common is not near
    best = &candidate;
    best_distance = distance;
  }
  const auto first_that = [&](auto fits) {
    const auto found = std::ranges::find_if(candidates, fits);
    if (best == nullptr && found != candidates.end()) best = &*found;
  };
  if (wanted.size() > 1) first_that([&](const std::string& name) { return detail::initials(name) == wanted; });
  first_that([&](const std::string& name) { return detail::is_word_of(wanted, detail::folded(name)); });
  constexpr std::size_t kShortest = 3;
  const auto begins = [&](const std::string& name) { return detail::folded(name).starts_with(wanted); };
  if (wanted.size() >= kShortest) first_that(begins);
  if (best == nullptr) return std::nullopt;
  return *best;
}

}  // namespace ddpxx
