// ddpxx/core/type_name.hpp — a type's name for people to read.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddpxx {

/// As the compiler prints it, without the namespace of this library: `Recompute<FSDP>`.
template <class T>
std::string type_name() {
  constexpr std::string_view function = __PRETTY_FUNCTION__;  // ... [T = ddpxx::FSDP], or with ddpxx::FSDP; ...
  constexpr std::string_view front = "T = ", space = "ddpxx::";
  const auto begin = function.find(front) + front.size();
  std::string name{function.substr(begin, function.find_first_of(";]", begin) - begin)};
  for (auto at = name.find(space); at != std::string::npos; at = name.find(space)) name.erase(at, space.size());
  return name;
}

}  // namespace ddpxx
