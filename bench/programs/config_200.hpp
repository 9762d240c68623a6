// config_200.hpp — a config of 200 values in 13 structs, as large as the configs of real training programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ddpxx/core/describe.hpp>

/// A struct of 16 values; each number makes another type.
template <int Number>
struct Part {
  double learning_rate = 3e-4;
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  std::int64_t warmup_steps = 100;
  std::int64_t decay_steps = 10'000;
  std::int64_t batch_size = 32;
  std::int64_t block_size = 128;
  std::int64_t bucket_bytes = 1 << 20;
  bool is_on = true;
  bool is_shared = false;
  std::string name = "part";
  std::string folder = "runs/here";
  std::optional<std::int64_t> seed;
  std::vector<double> weights{0.25, 0.75};

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(field<&Part::learning_rate>("Peak step size", above(0.0)),
                  field<&Part::beta1>("Memory of the mean", between(0.0, 1.0)),
                  field<&Part::warmup_steps>("Steps of the warm-up", at_least(0), Unit::steps),
                  field<&Part::bucket_bytes>("Size of a bucket", at_least(1), Unit::bytes));
  }
};

struct Config200 {
  Part<0> part0;
  Part<1> part1;
  Part<2> part2;
  Part<3> part3;
  Part<4> part4;
  Part<5> part5;
  Part<6> part6;
  Part<7> part7;
  Part<8> part8;
  Part<9> part9;
  Part<10> part10;
  Part<11> part11;
  std::int64_t seed = 1;
  std::int64_t steps = 1000;
  std::int64_t epochs = 1;
  double clip = 1.0;
  double time = 0.0;
  std::string device = "auto";
  std::string precision = "fp32";
  bool verbose = false;
};
