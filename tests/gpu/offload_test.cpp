// FSDP with its shards in the CPU's memory takes the course of FSDP without. On a GPU these runs copy beside the
// computation, and a copy that is used too early changes the course. On a CPU, as in the rehearsal of the checks, both
// runs do the same, bit for bit.
#include <concepts>
#include <cstdint>

#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/hsdp.hpp>
#include <ddpxx/parallel/step_in_backward.hpp>
#include <ddpxx/precision/low_precision.hpp>

#include "../contract/tiny_run.hpp"
#include "../test_device.hpp"

namespace ddpxx::offload_test {
namespace {

template <class S, class P = Float32>
void expect_no_difference(int world_size, const CourseOptions& options, const typename S::Config& plain,
                          const typename S::Config& offloaded, std::int64_t skipped_steps = 0) {
  const auto got = train_course<S, AdamW, P>(world_size, options, offloaded);
  const auto expected = train_course<S, AdamW, P>(world_size, options, plain);
  EXPECT_EQ(got.skipped_steps, skipped_steps);
  EXPECT_EQ(expected.skipped_steps, skipped_steps);
  if (test_device() == "cpu") return expect_same_bits(got, expected);
  // AdamW on a CPU rounds in other places than on a GPU, and a parameter in 16 bits may then have the number beside it.
  expect_same_course(got, expected, std::same_as<P, Float32> ? 1e-5 : 1e-2);
}

TEST(Offloaded, AddsUpTheGradientsOfSeveralBackwardPasses) {
  CourseOptions options;
  options.accumulation = 2;
  for (const bool each : {true, false})
    expect_no_difference<FSDP>(2, options, {.unit_bytes = 0, .reduce_each_backward = each},
                               {.unit_bytes = 0, .reduce_each_backward = each, .offload = Offload::cpu});
}

TEST(Offloaded, SumsItsPiecesOverReplicas) {
  const FSDPConfig plain{.unit_bytes = 0}, offloaded{.unit_bytes = 0, .offload = Offload::cpu};
  expect_no_difference<HSDP>(4, {}, {.shard_size = 2, .fsdp = plain}, {.shard_size = 2, .fsdp = offloaded});
}

TEST(Offloaded, StepsInBackward) {
  CourseOptions options;
  options.clip = 0;
  expect_no_difference<StepInBackward<FSDP>>(2, options, {.unit_bytes = 0}, {.unit_bytes = 0, .offload = Offload::cpu});
}

TEST(Offloaded, GathersInSixteenBitsAndKeepsLayersOnSomeRanks) {
  expect_no_difference<FSDP, LowPrecision<>>(4, {}, {.unit_bytes = 0, .reshard_after_forward = "2"},
                                             {.unit_bytes = 0, .reshard_after_forward = "2", .offload = Offload::cpu});
}

TEST(Offloaded, LeavesStepsOutByTheNorm) {
  // The norms of the steps 24 and 26 are 1.5 and 1.4 times the average, and that of no other step is near the limit.
  const CourseOptions options{.steps = 26, .spike_factor = 1.3};
  const FSDPConfig plain{.unit_bytes = 0}, offloaded{.unit_bytes = 0, .offload = Offload::cpu};
  expect_no_difference<FSDP>(2, options, plain, offloaded, 2);
  expect_no_difference<HSDP>(4, options, {.shard_size = 2, .fsdp = plain}, {.shard_size = 2, .fsdp = offloaded}, 2);
}

}  // namespace
}  // namespace ddpxx::offload_test
