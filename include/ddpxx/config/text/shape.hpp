// ddpxx/config/text/shape.hpp — the form of a value, without its C++ type, for help, schema and completion.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/config/text/text.hpp>

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
inline std::string words_of(const ValueShape& shape) {
  const auto usual = [&]() -> std::string {
    switch (shape.kind) {
      case ValueShape::Kind::truth:
        return "true or false";
      case ValueShape::Kind::whole:
        return "a whole number";
      case ValueShape::Kind::real:
        return "a number";
      case ValueShape::Kind::path:
        return "a path";
      case ValueShape::Kind::duration:
        return "a duration such as 500ms, 30s, 10m or 1h30m";
      case ValueShape::Kind::text:
      case ValueShape::Kind::name:
        return shape.names.empty() ? "a text" : one_of(shape.names);
      case ValueShape::Kind::list:
        return (shape.length == 0 ? "a list" : "a list of " + std::to_string(shape.length)) + ", each item " +
               words_of(shape.item.front());
      case ValueShape::Kind::map:
        return "a map, each value " + words_of(shape.item.front());
    }
    return "a value";
  };
  return (shape.words.empty() ? usual() : shape.words) + (shape.may_be_null ? " or null" : "");
}

}  // namespace ddpxx
