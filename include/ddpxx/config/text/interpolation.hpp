// ddpxx/config/text/interpolation.hpp — splits values that contain `${model.n_embd}` or `${oc.env:HOME,/tmp}`.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/config/path.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/core/units.hpp>

namespace ddpxx::detail {

/// A piece of a text: plain text, the path of another setting, or an environment variable.
struct TextPiece {
  enum class Kind { plain, setting, variable } kind = Kind::plain;
  std::string text{};                      ///< The plain text, the path, or the variable's name.
  std::optional<std::string> otherwise{};  ///< The value if the variable is not set.
  bool is_quoted = false;                  ///< `otherwise` was in quotes; a quoted `null` is a text.
};

/// The pieces of a text, or the problem that makes it invalid.
struct TextPieces {
  std::vector<TextPiece> pieces{};
  std::string problem{};
};

/// True if the value contains `${`, also where backslashes in front make it plain text.
inline bool is_interpolated(const RawValue& value) {
  return value.text.find("${") != std::string::npos || std::ranges::any_of(value.items, is_interpolated);
}

/// Splits the value of the setting `path`: `${.b}` names a sibling of it, `${..b}` a setting of the group around.
inline TextPieces split_interpolation(std::string_view text, std::string_view path);

// Backslashes in front of `${` are read as OmegaConf reads them: two stand for one, and a single one makes `${` plain
// text. Elsewhere they stand for themselves.

/// The number of backslashes at the start of `text`.
inline std::size_t backslashes_at(std::string_view text) { return std::min(text.find_first_not_of('\\'), text.size()); }

/// The text with `number_of(n)` backslashes in front of each `${` that has n of them.
template <std::invocable<std::size_t> NumberOf>
std::string with_backslashes(std::string_view text, NumberOf number_of) {
  std::string result;
  while (!text.empty()) {
    const auto slashes = backslashes_at(text);
    text.remove_prefix(slashes);
    result.append(text.starts_with("${") ? number_of(slashes) : slashes, '\\');
    result += text.substr(0, 1);
    text.remove_prefix(std::min(text.size(), std::size_t{1}));
  }
  return result;
}

/// The text with `${` escaped, so that it reads back unchanged.
inline std::string escape_references(std::string_view text) {
  return with_backslashes(text, [](std::size_t slashes) { return 2 * slashes + 1; });
}

/// Reverts `escape_references` in a value and its items.
inline void unescape_references(RawValue& value) {
  value.text = with_backslashes(value.text, [](std::size_t slashes) { return slashes / 2; });
  for (auto& item : value.items) unescape_references(item);
}

/// The path of a reference: absolute, or, with dots in front, relative to the group that holds `path`; none if there
/// are too many dots.
inline std::optional<std::string> absolute_path(std::string_view reference, std::string_view path) {
  if (!reference.starts_with('.')) return std::string{reference};
  std::string_view group = path;
  for (; reference.starts_with('.'); reference.remove_prefix(1)) {
    if (group.empty()) return std::nullopt;
    group = group_of(group);
  }
  return path_in(group, reference);
}

/// The length of the text in quotes at the start of `text`, with its quotes; 0 if there is none. A backslash in front
/// of a quote makes it a part of the text.
inline std::size_t quoted_length(std::string_view text) {
  if (!text.starts_with('\'') && !text.starts_with('"')) return 0;
  for (std::size_t i = 1; i < text.size(); ++i)
    if (text[i] == '\\')
      ++i;
    else if (text[i] == text.front())
      return i + 1;
  return 0;
}

/// Sets the default of a variable. Quotes around it are removed, as OmegaConf does.
inline void read_default(std::string_view text, TextPiece& piece) {
  piece.is_quoted = !text.empty() && quoted_length(text) == text.size();
  if (!piece.is_quoted) {
    piece.otherwise = text;
    return;
  }
  const char quote = text.front();
  text = text.substr(1, text.size() - 2);
  auto& value = piece.otherwise.emplace();
  while (!text.empty()) {
    const auto slashes = backslashes_at(text);
    const bool are_escapes = slashes == text.size() || text[slashes] == quote;  // elsewhere they stand for themselves
    value.append(are_escapes ? slashes / 2 : slashes, '\\');
    text.remove_prefix(slashes);
    if (text.empty()) break;
    value += text.front();
    text.remove_prefix(1);
  }
}

/// The position of the `}` that ends the reference at the start of `text`. A `}` in a quoted default is a part of it.
inline std::size_t end_of_reference(std::string_view text) {
  const auto end = text.find('}');
  const auto comma = text.find(',');
  if (comma == std::string_view::npos || end == std::string_view::npos || comma > end) return end;
  const auto start = std::min(text.find_first_not_of(' ', comma + 1), text.size());
  return text.find('}', start + quoted_length(text.substr(start)));
}

/// Reads the text between `${` and `}`.
inline TextPiece read_reference(std::string_view inside, std::string_view path, std::string& problem) {
  inside = trimmed(inside);
  constexpr std::string_view kVariable = "oc.env:";
  if (inside.starts_with(kVariable)) {
    inside.remove_prefix(kVariable.size());
    const auto comma = inside.find(',');
    TextPiece piece{.kind = TextPiece::Kind::variable, .text = std::string{trimmed(inside.substr(0, comma))}};
    if (comma != std::string_view::npos) read_default(trimmed(inside.substr(comma + 1)), piece);
    if (piece.text.empty()) problem = "${oc.env:} names no variable";
    return piece;
  }
  const auto colon = inside.find(':');
  const auto setting = absolute_path(inside, path);
  if (inside.empty()) problem = "${} names nothing";
  if (inside.starts_with("now:"))
    problem = "${" + std::string{inside} + "} is not known; the name of a run folder takes " +
              std::string{inside.substr(colon + 1)} + " itself";
  else if (colon != std::string_view::npos)
    problem = "${" + std::string{inside} + "} is not known (allowed: ${a.b} for a setting, ${oc.env:NAME,DEFAULT})";
  if (!setting) problem = "${" + std::string{inside} + "} has more dots than there are groups around";
  return {.kind = TextPiece::Kind::setting, .text = setting.value_or("")};
}

inline TextPieces split_interpolation(std::string_view text, std::string_view path) {
  TextPieces result;
  std::string plain;
  const auto end_plain = [&] {
    if (!plain.empty()) result.pieces.push_back({.text = std::exchange(plain, {})});
  };
  while (!text.empty()) {
    const auto slashes = backslashes_at(text);
    text.remove_prefix(slashes);
    const bool are_escapes = text.starts_with("${");
    plain.append(are_escapes ? slashes / 2 : slashes, '\\');
    if (are_escapes && slashes % 2 == 0) {
      end_plain();
      const auto end = end_of_reference(text);
      if (end == std::string_view::npos) return {.problem = "${ is never closed"};
      if (text.substr(2, end - 2).find("${") != std::string_view::npos)
        return {.problem = "a ${...} inside of another is not supported"};
      result.pieces.push_back(read_reference(text.substr(2, end - 2), path, result.problem));
      text.remove_prefix(end + 1);
    } else if (!text.empty()) {
      plain += text.front();
      text.remove_prefix(1);
    }
  }
  end_plain();
  return result;
}

}  // namespace ddpxx::detail
