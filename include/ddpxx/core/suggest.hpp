// ddpxx/core/suggest.hpp — the name that somebody may have meant.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <ddpxx/core/inline.hpp>

namespace ddpxx {

/// Letters to insert, delete, replace, or swap with their neighbour, until `a` reads `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate that is nearest to `word`: by few edits (case, `-` and `_` count as equal), then as an abbreviation by
/// initials, then as a word of it, then by its beginning. None when nothing is near; of equally near ones, the first.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

namespace detail {

/// The name in lower case, with `_` for `-`.
std::string folded(std::string_view name);

}  // namespace detail

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/core/suggest_inl.hpp>
#endif
