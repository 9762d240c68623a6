// ddpxx/snapshot/tensor_shape.hpp — checks the name and the shape that a file gives a tensor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <c10/core/ScalarType.h>

#include <ddpxx/snapshot/quotes.hpp>

namespace ddpxx::detail {

/// Refuses a name that is unsafe in a message or as the name of a file.
inline void check_tensor_name(std::string_view name) {
  const bool prints = std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; });
  if (name.empty() || name == "__metadata__" || !prints || name.find("../") != std::string_view::npos)
    refuse_file("the tensor name " + in_quotes(name) + " is not allowed");
}

/// Returns the size of a tensor.
///
/// Errors  `storage` if the product of the shape overflows.
inline std::size_t bytes_of_shape(std::string_view name, at::ScalarType dtype, std::span<const std::int64_t> shape) {
  std::int64_t largest = static_cast<std::int64_t>(at::elementSize(dtype));
  auto bytes = largest;
  bool fits = true;
  for (const auto length : shape) {  // strides are products of the lengths that are not 0, which must fit as well
    fits = fits && !__builtin_mul_overflow(largest, std::max<std::int64_t>(length, 1), &largest);
    bytes *= fits ? length : 0;
  }
  if (!fits) refuse_file("the shape of " + in_quotes(name) + " is too large");
  return static_cast<std::size_t>(bytes);
}

}  // namespace ddpxx::detail
