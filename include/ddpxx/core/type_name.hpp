// ddpxx/core/type_name.hpp — a type's name for people to read.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddpxx {

/// As the compiler prints it, without the namespace of this library: `Recompute<FSDP>`. A template `NameWith<>` whose
/// arguments are all defaults is shown as its alias `Name`, which the compiler does not print: `DDP` for `DDPWith<>`.
template <class T>
std::string type_name() {
  constexpr std::string_view function = __PRETTY_FUNCTION__;  // ... [T = ddpxx::FSDP], or with ddpxx::FSDP; ...
  constexpr std::string_view front = "T = ";
  const auto begin = function.find(front) + front.size();
  std::string name{function.substr(begin, function.find_first_of(";]", begin) - begin)};
  for (const std::string_view part : {"ddpxx::", "With<>"})
    for (auto at = name.find(part); at != std::string::npos; at = name.find(part)) name.erase(at, part.size());
  return name;
}

}  // namespace ddpxx
