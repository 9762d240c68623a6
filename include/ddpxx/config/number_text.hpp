// ddpxx/config/number_text.hpp — texts of numbers for files, and of their ranges for messages.
#pragma once

#include <string>

#include <ddpxx/core/describe.hpp>

namespace ddpxx {

/// The shortest text that reads back as `value`, in a form that every YAML reader takes for a number: `0.0003`,
/// `1.0e-10`.
std::string real_text(double value);
std::string real_text(float value);

/// The values that a number field accepts: its range, such as `above 0` or `0 to 1`, and the suffixes of its unit.
std::string allowed_text(const FieldFacts& facts);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/config/number_text_inl.hpp>
#endif
