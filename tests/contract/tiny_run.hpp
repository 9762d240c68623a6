// A short training run of a small GPT, equal for every strategy; it returns the reported numbers and the final
// parameters.
#pragma once

#include <chrono>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/data/batch.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/optim/parameter_groups_config.hpp>
#include <ddpxx/optim/schedule.hpp>
#include <ddpxx/optim/sgd.hpp>
#include <ddpxx/parallel/concept.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/snapshot/snapshot.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/trainer.hpp>

#include "../temporary_folder.hpp"
#include "../test_device.hpp"

namespace ddpxx {

/// Sample i is a short run of tokens that depends only on i.
struct Tokens {
  std::int64_t size() const { return 48; }
  Batch batch(std::span<const std::int64_t> indices) const {
    auto start = at::tensor(std::vector<std::int64_t>{indices.begin(), indices.end()}, at::kLong).unsqueeze(1);
    const auto ids = (start * 7 + at::arange(13, at::kLong) * (start % 3 + 1)) % 17;
    return {ids.narrow(1, 0, 12), ids.narrow(1, 1, 12), ids.size(0) * 12};
  }
};

struct Course {
  std::vector<double> losses, norms;
  std::map<std::string, at::Tensor> state;
  std::int64_t state_bytes = 0;
  std::int64_t skipped_steps = 0;  ///< Those left out by spike_factor, or by the loss scale.
};

struct CourseOptions {
  std::int64_t steps = 12;  ///< Two epochs, so that the order of the samples changes once.
  std::int64_t global_batch = 8;
  std::int64_t accumulation = 1;
  double dropout = 0.0;
  double clip = 1.0;
  double value_clip = 0.0;
  double spike_factor = 0.0;  ///< The first 20 steps are never spikes.
  Schedule schedule = Schedule::constant;
  std::int64_t stop_at = 0;  ///< If given, the run ends after this step and a second run resumes from its snapshot.
  ParameterGroupsConfig groups = {};
  std::int64_t loss_chunk = 0;
  bool tied_head = false;
  bool fused = false;
  std::int64_t width = 20;  ///< Of the model; a fused block needs heads whose width is a multiple of 8.
  bool fused_clip = false;
};

/// Trains with the same data, initial weights and settings for all types and world sizes.
template <class Strategy, class Optimizer = AdamW, class Precision = Float32>
Course train_course(int world_size, const CourseOptions& options = {}, const typename Strategy::Config& strategy = {},
                    const typename Precision::Config& precision = {}) {
  const TemporaryFolder folder;
  const auto run_to = [&](std::int64_t steps) {
    const auto train = [&](Group& group) {
      using Train = Trainer<GPT, Tokens, Optimizer, Precision, Strategy>;
      typename Train::Config config;
      config.batch_size = options.global_batch / world_size / options.accumulation;
      // This slow_rank_factor measures the times of ranks, and warns of none: ranks that share a GPU wait for each
      // other.
      config.training = {.max_steps = steps,
                         .max_epochs = 0,
                         .seed = 5,
                         .grad_norm_clip = options.clip,
                         .grad_value_clip = options.value_clip,
                         .fused_clip = options.fused_clip,
                         .spike_factor = options.spike_factor,
                         .accumulation_steps = options.accumulation,
                         .save_dir = (folder / "run").string(),
                         .check_replicas_every = HoldsReplicas<Strategy> ? 5 : 0,
                         .slow_rank_factor = world_size > 1 ? 1000.0 : 0.0,
                         .metrics = (folder / "metrics.jsonl").string()};
      config.optimizer.learning_rate = std::is_same_v<Optimizer, SGD> ? 0.03 : 5e-3;
      config.optimizer.schedule = options.schedule;
      if (options.schedule != Schedule::constant) {
        config.optimizer.warmup_steps = 3;
        config.optimizer.decay_steps = options.steps;
      }
      // The gradient of attention's key bias is zero except for rounding; a small epsilon would turn the rounding into
      // full steps.
      if constexpr (requires { config.optimizer.epsilon; }) config.optimizer.epsilon = 1e-4;
      config.strategy = strategy;
      config.precision = precision;
      config.parameter_groups = options.groups;
      at::manual_seed(3);
      const GPTConfig sizes{.n_layer = 3,
                            .n_head = 2,
                            .n_embd = options.width,
                            .dropout = options.dropout,
                            .tied_head = options.tied_head,
                            .loss_chunk = options.loss_chunk,
                            .fused = options.fused};
      auto model = std::make_shared<GPT>(sizes, 17, 12);
      model->to(group.device());
      Train{group, model, std::make_shared<const Tokens>(), config}.fit();
    };
    // Ranks that share a GPU take long to start.
    const std::chrono::seconds deadline{test_device() == "cpu" ? 60 : 240};
    spawn_ranks(world_size, train, {.deadline = deadline, .device = test_device()});
  };
  if (options.stop_at > 0) run_to(options.stop_at);
  run_to(options.steps);
  Course course;
  std::ifstream file{folder / "metrics.jsonl"};
  for (std::string line; std::getline(file, line);) {
    const auto row = nlohmann::json::parse(line);
    if (!row.contains("loss")) continue;  // the row is about a snapshot
    course.losses.push_back(row.at("loss"));
    course.norms.push_back(row.at("grad_norm"));
    course.state_bytes = row.at("state_bytes");
    course.skipped_steps = row.value("skipped_steps", course.skipped_steps);
    EXPECT_EQ(row.contains("slowest_rank_ms"), world_size > 1) << "step " << row.at("step");
  }
  const auto snapshot = load_snapshot(folder / "run").value();
  for (const auto& [name, tensor] : snapshot.tensors)
    if (!name.starts_with("random.")) course.state.emplace(name, tensor.clone());
  return course;
}

/// Expects losses and norms within `tolerance` relative; all parameters together within it, and each element within
/// tolerance |p| + tolerance.
inline void expect_same_course(const Course& got, const Course& expected, double tolerance = 1e-5) {
  ASSERT_EQ(got.losses.size(), expected.losses.size());
  for (std::size_t i = 0; i < got.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], expected.losses[i], tolerance * expected.losses[i]) << "loss of step " << i + 1;
    EXPECT_NEAR(got.norms[i], expected.norms[i], tolerance * expected.norms[i]) << "norm of step " << i + 1;
  }
  double difference = 0, norm = 0;
  for (const auto& [name, parameter] : expected.state) {
    if (!name.starts_with("model.")) continue;
    const auto& other = got.state.at(name);
    difference += (other - parameter).square().sum().item<double>();
    norm += parameter.square().sum().item<double>();
    EXPECT_TRUE(at::allclose(other, parameter, tolerance, tolerance)) << name;
  }
  EXPECT_LE(std::sqrt(difference), tolerance * std::sqrt(norm));
}

inline void expect_same_bits(const Course& got, const Course& expected) {
  EXPECT_EQ(got.losses, expected.losses);
  ASSERT_EQ(got.state.size(), expected.state.size());
  for (const auto& [name, tensor] : expected.state) EXPECT_TRUE(at::equal(got.state.at(name), tensor)) << name;
}

}  // namespace ddpxx
