// ddpxx/comm/shared_memory_backend.hpp — the collectives of the ranks of one host as a c10d::Backend.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <ddpxx/comm/collective_queue.hpp>
#include <ddpxx/comm/reduce.hpp>
#include <ddpxx/comm/shared_collectives.hpp>
#include <ddpxx/comm/shared_tensors.hpp>
#include <ddpxx/comm/time_limit.hpp>

namespace ddpxx::detail {

inline constexpr const char* kSharedMemoryName = "shm";

/// A collective in a `CollectiveQueue`, which it keeps alive.
class SharedMemoryWork final : public c10d::Work {
 public:
  SharedMemoryWork(std::shared_ptr<CollectiveQueue> queue, std::shared_ptr<CollectiveQueue::Task> task)
      : queue_{std::move(queue)}, task_{std::move(task)} {}

  bool isCompleted() override { return queue_->has_ended(*task_); }
  bool isSuccess() const override { return queue_->has_ended(*task_) && !queue_->failure(*task_); }
  std::exception_ptr exception() const override { return queue_->failure(*task_); }
  bool wait(std::chrono::milliseconds timeout) override {
    using Clock = CollectiveQueue::Clock;
    queue_->wait(*task_, timeout == kNoTimeout ? std::nullopt : std::optional{Clock::now() + at_most_months(timeout)});
    return true;
  }

 private:
  std::shared_ptr<CollectiveQueue> queue_;
  std::shared_ptr<CollectiveQueue::Task> task_;
};

/// Carries collectives through memory that the ranks share. The tensors are on the CPU and contiguous; those of
/// all-reduce and broadcast may have any strides without gaps, equal on all ranks.
/// Errors  c10::Error for tensors that it refuses; the works throw std::runtime_error if a rank has ended, has given up
///         or is late.
class SharedMemoryBackend final : public c10d::Backend {
 public:
  using WorkRef = c10::intrusive_ptr<c10d::Work>;

  SharedMemoryBackend(int rank, int size, std::shared_ptr<CollectiveQueue> queue)
      : c10d::Backend{rank, size}, queue_{std::move(queue)} {}
  ~SharedMemoryBackend() override { abort(); }

  const std::string getBackendName() const override { return kSharedMemoryName; }
  void setTimeout(std::chrono::milliseconds timeout) override { queue_->set_timeout(timeout); }
  void abort() override { queue_->end("this rank has abandoned the group"); }
  void shutdown() override { queue_->end("this rank has left the group"); }

  WorkRef allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    auto tensor = only_tensor(tensors);
    check_on_cpu(tensor);
    check_dense(tensor);
    const auto reduce = reduce_of(options.reduceOp);
    check_reducible({tensor.scalar_type(), tensor.scalar_type()});
    return start([tensor, reduce](SharedCollectives& shared) {
      shared.all_reduce(memory_of(tensor), tensor.numel(), tensor.scalar_type(), reduce);
    });
  }
  WorkRef _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    check_reduce_scatter(output, input, options.reduceOp, getSize());
    const ReduceTypes types{input.scalar_type(), output.scalar_type()};
    return start([output, input, types](SharedCollectives& shared) {
      shared.reduce_scatter(memory_of(output), memory_of(input), output.numel(), types);
    });
  }
  WorkRef _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions&) override {
    check_on_cpu(output);
    check_on_cpu(input);
    check_all_gather(output, input, getSize());
    return start([output, input](SharedCollectives& shared) {
      shared.all_gather(memory_of(output), memory_of(input), memory_size(input));
    });
  }
  WorkRef alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_sizes,
                        std::vector<std::int64_t>& input_sizes, const c10d::AllToAllOptions&) override {
    check_on_cpu(output);
    check_on_cpu(input);
    check_all_to_all(output, input, output_sizes, input_sizes, getSize());
    return start([output, input, output_bytes = part_bytes(output, output_sizes),
                  input_bytes = part_bytes(input, input_sizes)](SharedCollectives& shared) {
      shared.all_to_all(memory_of(output), memory_of(input), output_bytes, input_bytes);
    });
  }
  WorkRef broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    auto tensor = only_tensor(tensors);
    check_on_cpu(tensor);
    check_dense(tensor);
    const auto root = static_cast<int>(options.rootRank);
    TORCH_CHECK_VALUE(root >= 0 && root < getSize(), "broadcast: there is no rank ", root);
    return start(
        [tensor, root](SharedCollectives& shared) { shared.broadcast(memory_of(tensor), memory_size(tensor), root); });
  }
  WorkRef barrier(const c10d::BarrierOptions&) override {
    return start([](SharedCollectives& shared) { shared.barrier(); });
  }

 private:
  WorkRef start(CollectiveQueue::Body body) {
    return c10::make_intrusive<SharedMemoryWork>(queue_, queue_->start(std::move(body)));
  }

  /// The bytes of each rank's part of `tensor`; no sizes stand for equal parts.
  std::vector<std::int64_t> part_bytes(const at::Tensor& tensor, std::vector<std::int64_t> sizes) const {
    const auto rows = tensor.dim() == 0 ? 1 : tensor.size(0);
    if (sizes.empty()) sizes.assign(static_cast<std::size_t>(getSize()), rows / getSize());
    for (auto& size : sizes) size *= rows == 0 ? 0 : memory_size(tensor) / rows;
    return sizes;
  }

  std::shared_ptr<CollectiveQueue> queue_;
};

}  // namespace ddpxx::detail
