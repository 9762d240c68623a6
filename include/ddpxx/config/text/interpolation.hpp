// ddpxx/config/text/interpolation.hpp — splits values that contain `${model.n_embd}` or `${oc.env:HOME,/tmp}`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/config/path.hpp>
#include <ddpxx/config/text/source.hpp>

namespace ddpxx::detail {

/// A piece of a text: plain text, the path of another setting, or an environment variable.
struct TextPiece {
  enum class Kind { plain, setting, variable } kind = Kind::plain;
  std::string text{};                      ///< The plain text, the path, or the variable's name.
  std::optional<std::string> otherwise{};  ///< The value if the variable is not set.
};

/// The pieces of a text, or the problem that makes it invalid.
struct TextPieces {
  std::vector<TextPiece> pieces{};
  std::string problem{};
};

/// True if the value contains `${` or `\${`; the latter stands for a literal `${`.
inline bool is_interpolated(const RawValue& value) {
  return value.text.find("${") != std::string::npos || std::ranges::any_of(value.items, is_interpolated);
}

/// Splits the value of the setting `path`: `${.b}` names a sibling of it, `${..b}` a setting of the group around.
inline TextPieces split_interpolation(std::string_view text, std::string_view path);

/// The text with `${` escaped, so that it reads back unchanged.
inline std::string escape_references(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i).starts_with("${")) result += '\\';
    result += text[i];
  }
  return result;
}

/// Reverts `escape_references` in a value and its items.
inline void unescape_references(RawValue& value) {
  for (auto at = value.text.find("\\${"); at != std::string::npos; at = value.text.find("\\${", at + 1))
    value.text.erase(at, 1);
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

inline std::string_view without_spaces(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

/// Reads the text between `${` and `}`.
inline TextPiece read_reference(std::string_view inside, std::string_view path, std::string& problem) {
  inside = without_spaces(inside);
  constexpr std::string_view kVariable = "oc.env:";
  if (inside.starts_with(kVariable)) {
    inside.remove_prefix(kVariable.size());
    const auto comma = inside.find(',');
    TextPiece piece{.kind = TextPiece::Kind::variable, .text = std::string{inside.substr(0, comma)}};
    if (comma != std::string_view::npos) piece.otherwise = without_spaces(inside.substr(comma + 1));
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
    if (text.starts_with("\\${")) {
      plain += "${";
      text.remove_prefix(3);
    } else if (text.starts_with("${")) {
      end_plain();
      const auto end = text.find('}');
      if (end == std::string_view::npos) return {.problem = "${ is never closed"};
      if (text.substr(2, end - 2).find("${") != std::string_view::npos)
        return {.problem = "a ${...} inside of another is not supported"};
      result.pieces.push_back(read_reference(text.substr(2, end - 2), path, result.problem));
      text.remove_prefix(end + 1);
    } else {
      plain += text.front();
      text.remove_prefix(1);
    }
  }
  end_plain();
  return result;
}

}  // namespace ddpxx::detail
