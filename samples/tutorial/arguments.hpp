// arguments.hpp — the command line of the tutorial's programs: `50 10 --batch_size 32`, or each argument by its name.
#pragma once

#include <array>
#include <cstdint>

#include <ddpxx/ddpxx.hpp>

/// The arguments of the original, and all settings of the trainer: `optimizer.learning_rate=0.01`. A program that
/// resumes has snapshots in ./snapshots unless it is told another place.
template <class Train, bool kResumes = false>
struct Arguments {
  std::int64_t save_every = 10;
  typename Train::Config train{
      .batch_size = 32, .training = {.max_epochs = 50, .grad_norm_clip = 0.0, .save_dir = kResumes ? "snapshots" : ""}};

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(
        field<&Arguments::save_every>("Save after the first epoch, and then each time after this number of epochs",
                                      at_least(1), Unit::epochs, Resume::free),
        flatten<&Arguments::train>());
  }
  static constexpr auto positionals() { return std::array{"training.max_epochs", "save_every"}; }
  static constexpr auto aliases() { return std::array{ddpxx::Alias{"total_epochs", "training.max_epochs"}}; }
};
