// ddpxx/flat/buffer_pool.hpp — memory that comes and goes every step, kept for the next time.
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

/// Lends memory to tensors whose contents live for a part of a step. A general allocator would give large blocks back
/// to the system each time. On a GPU the caching allocator does this already; the pool only shortens the way to it.
/// Not for several threads at once.
class BufferPool {
 public:
  /// Gives `tensor`, a whole 1-D storage of its own, memory again; nothing if it has enough.
  void lend(const at::Tensor& tensor) { lend(tensor, tensor.numel()); }
  /// The same, with room for `numel` elements, which are at least those of the tensor: see common_room.
  void lend(const at::Tensor& tensor, std::int64_t numel) {
    auto* storage = tensor.storage().unsafeGetStorageImpl();
    const auto bytes = static_cast<std::size_t>(numel) * tensor.dtype().itemsize();
    if (storage->nbytes() >= bytes) return;
    storage->set_data_ptr_noswap(take(tensor, bytes));
    storage->set_nbytes(bytes);
  }

  /// Takes the memory of `tensor` back; the tensor, and all that aliases it, is hollow until it is lent some again.
  void take_back(const at::Tensor& tensor) {
    auto* storage = tensor.storage().unsafeGetStorageImpl();
    const auto bytes = storage->nbytes();
    if (bytes == 0) return;
    free_[bytes].push_back(storage->set_data_ptr(at::DataPtr{nullptr, tensor.device()}));
    storage->set_nbytes(0);
  }

  /// The same, for the memory that a tensor was made with: it goes back to the system.
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

  /// The room that a tensor is lent so that buffers of different sizes can serve one after the other: the largest's
  /// for all that come near it, else its own.
  static constexpr std::int64_t common_room(std::int64_t numel, std::int64_t largest) {
    return numel > largest / 2 ? std::max(numel, largest) : numel;
  }

  /// Gives back to the system what nobody has borrowed.
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
