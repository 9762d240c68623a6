// ddpxx/flat/buffer_pool.hpp — a pool for memory that is used for a part of every step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>

namespace ddpxx {

/// Lends memory to tensors whose contents are needed for a part of a step. A general allocator would return large
/// blocks to the system each time. On a GPU the caching allocator keeps blocks already; there the pool saves calls to
/// it. Not thread-safe.
class BufferPool {
 public:
  /// Gives memory to `tensor`, which is 1-D and the whole of its own storage. Does nothing if it has enough.
  void lend(const at::Tensor& tensor) { lend(tensor, tensor.numel()); }
  /// Gives `tensor` memory for `numel` elements, at least as many as the tensor has: see common_size.
  void lend(const at::Tensor& tensor, std::int64_t numel) {
    auto* storage = tensor.storage().unsafeGetStorageImpl();
    const auto bytes = static_cast<std::size_t>(numel) * tensor.dtype().itemsize();
    if (storage->nbytes() >= bytes) return;
    storage->set_data_ptr_noswap(take(tensor, bytes));
    storage->set_nbytes(bytes);
  }

  /// Takes the memory of `tensor` back: the tensor and its aliases have no memory until the next lend().
  void take_back(const at::Tensor& tensor) {
    auto* storage = tensor.storage().unsafeGetStorageImpl();
    const auto bytes = storage->nbytes();
    if (bytes == 0) return;
    free_[bytes].push_back(storage->set_data_ptr(at::DataPtr{nullptr, tensor.device()}));
    storage->set_nbytes(0);
  }

  /// Returns the memory that `tensor` was made with to the system instead of the pool.
  static void release(const at::Tensor& tensor) {
    auto* storage = tensor.storage().unsafeGetStorageImpl();
    storage->set_data_ptr_noswap(at::DataPtr{nullptr, tensor.device()});
    storage->set_nbytes(0);
  }

  /// A new 1-D tensor on lent memory; give it back with `take_back`.
  at::Tensor tensor(std::int64_t numel, const at::TensorOptions& options) {
    auto tensor = at::empty({0}, options);
    const auto bytes = static_cast<std::size_t>(numel) * tensor.dtype().itemsize();
    auto* storage = tensor.storage().unsafeGetStorageImpl();
    storage->set_data_ptr_noswap(take(tensor, bytes));
    storage->set_nbytes(bytes);
    tensor.unsafeGetTensorImpl()->set_sizes_contiguous({numel});
    return tensor;
  }

  /// Number of elements to lend to a tensor of `numel`, so that tensors of similar sizes share buffers: `largest` for
  /// those above half of it, else `numel`.
  static constexpr std::int64_t common_size(std::int64_t numel, std::int64_t largest) {
    return numel > largest / 2 ? std::max(numel, largest) : numel;
  }

  /// Returns to the system all memory that is not lent.
  void shrink() { free_.clear(); }

  std::size_t buffers_made() const noexcept { return made_; }

 private:
  at::DataPtr take(const at::Tensor& like, std::size_t bytes) {
    auto& free = free_[bytes];
    if (free.empty()) {
      ++made_;
      return like.storage().allocator()->allocate(bytes);
    }
    auto memory = std::move(free.back());
    free.pop_back();
    return memory;
  }

  std::map<std::size_t, std::vector<at::DataPtr>> free_;
  std::size_t made_ = 0;
};

}  // namespace ddpxx
