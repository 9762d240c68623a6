// ddpxx/comm/recording_inl.hpp — the definitions of recording.hpp.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/recording.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx {

namespace detail {

/// A collective that has ended at once.
class DoneWork : public c10d::Work {
 public:
  DoneWork(std::shared_ptr<Recording> recording, std::size_t call) : recording_{std::move(recording)}, call_{call} {}
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override {
    recording_->waits.push_back({call_, recording_->calls.size(), Recording::Clock::now()});
    return true;
  }

 private:
  std::shared_ptr<Recording> recording_;
  std::size_t call_;
};

/// Assumes that every other rank holds the values of this one: a gather repeats them, a sum is `size` times them.
class RecordingBackend : public c10d::Backend {
 public:
  using WorkRef = c10::intrusive_ptr<c10d::Work>;

  RecordingBackend(int rank, int size, std::shared_ptr<Recording> recording)
      : c10d::Backend{rank, size}, recording_{std::move(recording)} {}

  const std::string getBackendName() const override { return "recording"; }

  WorkRef allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    const auto begin = Recording::Clock::now();
    if (options.reduceOp == c10d::ReduceOp::SUM) tensors[0].mul_(getSize());
    return record("all_reduce", tensors[0], begin);
  }
  WorkRef _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions&) override {
    const auto begin = Recording::Clock::now();
    const auto all = output.view({getSize(), -1});
    const auto mine = input.view({1, -1});
    all.narrow(0, 0, getRank()).copy_(mine);
    all.narrow(0, getRank() + 1, getSize() - getRank() - 1).copy_(mine);
    if (!input.is_alias_of(output)) all[getRank()].copy_(input.view({-1}));  // otherwise the values are there already
    return record("all_gather", output, begin);
  }
  WorkRef _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions&) override {
    const auto begin = Recording::Clock::now();
    output.copy_(input.view({getSize(), -1})[getRank()]).mul_(getSize());
    return record("reduce_scatter", input, begin);
  }
  WorkRef broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions&) override {
    return record("broadcast", tensors[0], Recording::Clock::now());
  }
  WorkRef barrier(const c10d::BarrierOptions&) override { return record("barrier", {}, Recording::Clock::now()); }

 private:
  WorkRef record(std::string_view op, const at::Tensor& tensor, Recording::Clock::time_point begin) {
    recording_->calls.push_back({op, tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0, getSize(),
                                 begin, Recording::Clock::now()});
    return c10::make_intrusive<DoneWork>(recording_, recording_->calls.size() - 1);
  }

  std::shared_ptr<Recording> recording_;
};

}  // namespace detail

DDPXX_INLINE Group recording_group(int rank, int size, const std::shared_ptr<Recording>& recording, at::Device device) {
  return Group{c10::make_intrusive<detail::RecordingBackend>(rank, size, recording),
               c10::make_intrusive<c10d::HashStore>(), device,
               [recording, device](c10::intrusive_ptr<c10d::Store>, int part_rank, int part_size) {
                 return recording_group(part_rank, part_size, recording, device);
               }};
}

}  // namespace ddpxx
