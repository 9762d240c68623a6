// ddpxx/config/value_shape.hpp — the form of a value, without its C++ type, for help, schema and completion.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ddpxx {

/// The form of a value. `names` and `item` are used by some kinds only.
struct ValueShape {
  enum class Kind { truth, whole, real, text, path, name, duration, list, map };

  Kind kind = Kind::text;
  bool may_be_null = false;
  std::vector<std::string> names{};  ///< Allowed values of a `name`, and of a `text` if that is limited.
  std::size_t length = 0;            ///< Fixed length of a list; 0 for any.
  long double lowest = 0;            ///< Range of the type of a `whole`.
  long double highest = 0;
  std::vector<ValueShape> item{};  ///< One element for a list or map: the shape of its items.
  std::string words{};             ///< Words to use instead of the usual ones: "a date".
};

/// "a whole number", "a list of 2, each item a number": the words of a shape in help and messages.
std::string words_of(const ValueShape& shape);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/config/value_shape_inl.hpp>
#endif
