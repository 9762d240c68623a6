// ddpxx/config/text.hpp — reads booleans and null, quotes texts for YAML, and says what is wrong with a value.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ddpxx/config/raw_value.hpp>
#include <ddpxx/core/describe.hpp>

namespace ddpxx {

/// A text for a message: in quotes, on one line, cut to `most_characters`.
std::string shown(std::string_view text, std::size_t most_characters = 60);

/// Reads true, false, yes, no, on, off, 1 or 0, in upper or lower case.
std::optional<bool> read_bool(std::string_view text);

/// True for no value behind the key, and for an unquoted `null` or `~`.
bool is_null(const RawValue& value);

/// Why `value` is not a single text; none if it is one.
std::optional<std::string> not_a_text(const RawValue& value, const std::string& wanted);

/// Why `value` is not a list; for a value that is none.
std::string not_a_list(const RawValue& value);

/// The names in words: `a, b or c`.
std::string one_of(const std::vector<std::string>& names);

/// The names that `choices(...)` gives a field.
std::vector<std::string> choices_of(const FieldFacts& facts);

/// Why a text that is none of the names is refused, with the name that it probably means.
std::string not_a_choice(const std::string& text, const std::vector<std::string>& names);

/// A YAML double-quoted scalar, which no reader takes for a number, a boolean or null. Malformed bytes become U+FFFD.
std::string yaml_quoted(std::string_view text);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/config/text_inl.hpp>
#endif
