// ddpxx/core/environment.hpp — environment variables as values.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// The variable's text; none when it is unset or empty.
inline std::optional<std::string> environment(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  return std::string{text};
}

/// The variable as a whole number; none when it is unset.
/// Errors  `peer` when the text is not a whole number (the variables read so are the launcher's).
inline std::optional<std::int64_t> environment_integer(const char* name) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (status != std::errc{} || end != text->data() + text->size())
    throw Error{Errc::peer, "environment variable " + std::string{name} + "=" + *text + " is not a whole number"};
  return value;
}

}  // namespace ddpxx
