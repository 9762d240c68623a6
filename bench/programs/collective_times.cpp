// collective_times — the times of collectives through shared memory and over Gloo, by the same ranks in turn, and of a
// copy of as many bytes as a rank receives; rank 0 prints a line of JSON for each pair. For `./dev bench collectives`.
//
//   collective_times PAIRS
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <nlohmann/json.hpp>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/connect.hpp>
#include <ddpxx/comm/gloo.hpp>
#include <ddpxx/comm/rendezvous.hpp>
#include <ddpxx/comm/shared_memory.hpp>
#include <ddpxx/comm/thread_share.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/launch/join.hpp>
#include <ddpxx/launch/program.hpp>
#include <ddpxx/launch/torchrun_environment.hpp>

namespace {

using Clock = std::chrono::steady_clock;

struct Measurement {
  std::string name;
  std::int64_t bytes;
  std::function<void(const ddpxx::Group&)> collective;
  std::int64_t received;  ///< Bytes that the collective writes to the tensors of a rank.
};

std::vector<Measurement> measurements(int size) {
  std::vector<Measurement> all;
  for (const std::int64_t bytes : {4, 4 << 10, 64 << 10, 1 << 20, 25 << 20})
    all.push_back({"all_reduce", bytes,
                   [tensor = at::zeros({bytes / 4})](const ddpxx::Group& group) { ddpxx::all_reduce(tensor, group); },
                   bytes});
  const std::int64_t count = (25 << 20) / 4 / size;
  all.push_back({"reduce_scatter, all_gather", 4 * count * size,
                 [whole = at::zeros({count * size}), piece = at::zeros({count})](const ddpxx::Group& group) {
                   ddpxx::reduce_scatter(piece, whole, group);
                   ddpxx::all_gather(whole, piece, group);
                 },
                 4 * count * (size + 1)});
  return all;
}

/// Milliseconds of one call: the mean of `calls` calls after a barrier.
template <class Body>
double time_of(const ddpxx::Group& group, int calls, Body&& body) {
  ddpxx::barrier(group);
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i) body();
  return std::chrono::duration<double, std::milli>{Clock::now() - begin}.count() / calls;
}

/// Both groups must give the sum of all ranks.
void check_sums(const ddpxx::Group& group) {
  auto sum = at::full({1000}, group.rank() + 1);
  ddpxx::all_reduce(sum, group);
  if (sum[999].item<int>() != group.size() * (group.size() + 1) / 2)
    throw ddpxx::Error{ddpxx::Errc::numerics, "an all-reduce gave a wrong sum"};
}

}  // namespace

int main(int argc, char** argv) {
  ddpxx::run_program("collective_times", [&] {
    const int pairs = argc > 1 ? std::atoi(argv[1]) : 0;
    const auto launch = ddpxx::torchrun_environment();
    if (pairs < 1 || !launch || launch->rank_info.world_size.value < 2)
      throw ddpxx::Error{ddpxx::Errc::config,
                         "usage: ddpxx-run --standalone --nproc-per-node 2 collective_times PAIRS"};
    const auto options = ddpxx::detail::options_for(*launch, {});
    const auto [host, port] = ddpxx::parse_address(ddpxx::detail::meeting_address(*launch, options));
    ddpxx::share_cores(launch->rank_info.local_world_size);
    const auto meeting = ddpxx::meet(host, port, launch->rank_info, options);
    const auto meeting_of = [&](const char* backend) {
      return meeting.part(c10::make_intrusive<c10d::PrefixStore>(backend, meeting.store), meeting.rank,
                          meeting.world_size);
    };
    std::array groups{ddpxx::connect_shared_memory(meeting_of("shm")), ddpxx::connect_gloo(meeting_of("gloo"))};
    for (const auto& group : groups) check_sums(group);
    for (const auto& measured : measurements(meeting.world_size)) {
      // About 10 ms of each, so that small collectives are measured many times.
      const int calls = measured.bytes <= 4 << 10 ? 100 : measured.bytes <= 1 << 20 ? 20 : 2;
      const auto from = at::zeros({measured.received}, at::kByte), to = at::empty_like(from);
      for (int pair = -1; pair < pairs; ++pair) {  // the first one is for warm-up
        std::array<double, 2> times{};
        const auto first = static_cast<std::size_t>(pair & 1);  // AB BA AB ...
        for (const auto side : {first, 1 - first})
          times[side] = time_of(groups[side], calls, [&] { measured.collective(groups[side]); });
        const auto copy = time_of(groups[0], calls,
                                  [&] { std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes()); });
        if (pair >= 0 && meeting.rank == 0)
          std::cout << nlohmann::json{{"name", measured.name},
                                      {"bytes", measured.bytes},
                                      {"shm_ms", times[0]},
                                      {"gloo_ms", times[1]},
                                      {"copy_ms", copy}}
                               .dump() +
                           '\n'
                    << std::flush;
      }
    }
    for (auto& group : groups) group.leave();
  });
}
