// ddpxx/config/value_shape_inl.hpp — the functions of value_shape.hpp.
#pragma once

#include <string>

#include <ddpxx/config/text.hpp>
#include <ddpxx/config/value_shape.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx {

DDPXX_INLINE std::string words_of(const ValueShape& shape) {
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
