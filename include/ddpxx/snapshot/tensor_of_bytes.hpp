// ddpxx/snapshot/tensor_of_bytes.hpp — a tensor in the memory of a file.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <ddpxx/snapshot/quotes.hpp>

namespace ddpxx::detail {

/// Returns the bytes as a tensor, of which they are all elements. This is a view, which keeps `owner` alive, or a copy
/// if the bytes do not begin at a multiple of the element size. Errors call the tensor `name`.
///
/// Errors  `storage` if an element of a bool tensor is neither false nor true.
inline at::Tensor tensor_of_bytes(std::span<std::byte> bytes, at::ScalarType dtype, at::IntArrayRef shape,
                                  const std::shared_ptr<void>& owner, const std::string& name) {
  const auto is_false_or_true = [](std::byte byte) { return byte <= std::byte{1}; };
  if (dtype == at::kBool && !std::all_of(bytes.begin(), bytes.end(), is_false_or_true))
    refuse_file(name + " has values that are neither false nor true");
  if (!bytes.empty() && reinterpret_cast<std::uintptr_t>(bytes.data()) % at::elementSize(dtype) == 0)
    return at::from_blob(
        bytes.data(), shape, [owner](void*) {}, dtype);
  auto copy = at::empty(shape, dtype);
  if (!bytes.empty()) std::memcpy(copy.mutable_data_ptr(), bytes.data(), bytes.size());
  return copy;
}

}  // namespace ddpxx::detail
