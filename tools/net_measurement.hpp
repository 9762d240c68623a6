// net_measurement.hpp — latency and bandwidth between the ranks of a group.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/units.hpp>

/// How long one operation with so many bytes takes.
struct NetTime {
  std::uint64_t bytes = 0;
  double seconds = 0;  ///< The median.

  /// Bytes that each link carries in a second, each way: an all-reduce over W ranks sends 2 (W - 1) / W times its
  /// bytes.
  double all_reduce_rate(int ranks) const { return 2.0 * (ranks - 1) / ranks * static_cast<double>(bytes) / seconds; }
  double rate() const { return static_cast<double>(bytes) / seconds; }
};

inline std::string rate_text(double bytes_per_second) {
  const bool large = bytes_per_second >= 1e9;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g %s", bytes_per_second / (large ? 1e9 : 1e6), large ? "GB/s" : "MB/s");
  return text.data();
}

inline std::string time_text(double seconds) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), seconds < 1e-3 ? "%.3g us" : "%.3g ms",
                seconds * (seconds < 1e-3 ? 1e6 : 1e3));
  return text.data();
}

class NetMeasurement {
 public:
  NetMeasurement(const ddpxx::Group& group, std::int64_t repeats) : group_{group}, repeats_{repeats} {}

  /// Ranks   Collective. Only rank 0's time is meaningful.
  /// Errors  `peer`, also if the sum is wrong.
  NetTime all_reduce(std::uint64_t bytes) const {
    auto tensor = tensor_of(bytes, 1.0F);
    const auto result = measure(bytes, [&] { ddpxx::all_reduce(tensor, group_, ddpxx::Reduce::max); });
    tensor.fill_(static_cast<float>(group_.rank() + 1));
    ddpxx::all_reduce(tensor, group_);
    const auto sum = static_cast<float>(group_.size() * (group_.size() + 1) / 2);
    // All ranks learn of one rank's wrong sum: each of them would wait in the next operation for one that has ended.
    auto is_right = tensor.eq(sum).all().to(at::kFloat).reshape({1});
    ddpxx::all_reduce(is_right, group_, ddpxx::Reduce::min);
    if (is_right.item<float>() != 1)
      throw ddpxx::Error{ddpxx::Errc::peer, "an all-reduce of " + ddpxx::bytes_text(bytes) + " has a wrong sum"};
    return result;
  }

  /// The time in which `bytes` go from rank 0 to rank `peer`: half of that of a round trip.
  /// Ranks   Collective. Only rank 0's time is meaningful.
  NetTime point_to_point(std::uint64_t bytes, int peer) const {
    auto tensors = std::vector<at::Tensor>{tensor_of(bytes, 1.0F)};
    auto* backend = group_.backend();
    auto result = measure(bytes, [&] {
      if (group_.rank() == 0) {
        backend->send(tensors, peer, kTag)->wait();
        backend->recv(tensors, peer, kTag)->wait();
      } else if (group_.rank() == peer) {
        backend->recv(tensors, 0, kTag)->wait();
        backend->send(tensors, 0, kTag)->wait();
      }
    });
    result.seconds /= 2;
    return result;
  }

 private:
  static constexpr int kTag = 0;

  at::Tensor tensor_of(std::uint64_t bytes, float value) const {
    return at::full({std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes / sizeof(float)))}, value,
                    at::TensorOptions{at::kFloat}.device(group_.device()));
  }

  /// Waits until the device has done all of its work; an operation over NCCL only starts it.
  void synchronize(const at::Tensor& probe) const {
    if (!group_.device().is_cpu()) probe.cpu();
  }

  template <class Operation>
  NetTime measure(std::uint64_t bytes, Operation operation) const {
    using Clock = std::chrono::steady_clock;
    constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 28U;  // over all repeats, but at least three of them
    const auto probe = at::zeros({1}, at::TensorOptions{at::kFloat}.device(group_.device()));
    const auto affordable = static_cast<std::int64_t>(kMaxBytes / std::max<std::uint64_t>(bytes, 1));
    const auto repeats = std::max<std::int64_t>(3, std::min(repeats_, affordable));
    operation();  // the first one connects
    std::vector<double> seconds;
    for (std::int64_t i = 0; i < repeats; ++i) {
      ddpxx::barrier(group_);
      synchronize(probe);
      const auto start = Clock::now();
      operation();
      synchronize(probe);
      seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
    std::nth_element(seconds.begin(), middle, seconds.end());
    return {bytes, *middle};
  }

  const ddpxx::Group& group_;
  std::int64_t repeats_;
};
