// epoch_loss.hpp — prints the loss of each epoch, and at the end the time and memory of the run.
#pragma once

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>

#include <ddpxx/ddpxx.hpp>

/// Prints `Epoch: 3, Loss: 0.0123` after each epoch, with the mean loss of its last step over all ranks, and a last
/// line with the time and the memory, which compares runs.
/// Ranks   Rank 0 adds it.
class EpochLoss : public ddpxx::Observer {
 public:
  std::string name() const override { return "EpochLoss"; }

  void on_begin(const ddpxx::RunBegan& run) override { run_ = run; }
  ddpxx::Verdict on_step(const ddpxx::StepDone& step) override {
    if (last_ && step.epoch != last_->epoch) print();
    last_ = step;
    return ddpxx::Verdict::go_on;
  }
  void on_end(const ddpxx::RunEnded& run) override {
    if (!last_) return;
    print();
    std::printf("%s, %s, %lld rank%s: %lld steps of %lld samples in %.2f s; rank 0 holds %lld bytes of states\n",
                run_.strategy.c_str(), run_.precision.c_str(), as_long(run_.ranks), run_.ranks == 1 ? "" : "s",
                as_long(run.steps), as_long(run_.global_batch()), run.seconds, as_long(last_->state_bytes));
    std::fflush(stdout);
  }

 private:
  static long long as_long(std::int64_t number) { return number; }

  void print() const {
    std::printf("Epoch: %lld, Loss: %.6f", as_long(last_->epoch), last_->loss);
    if (last_->loss_scale)
      std::printf(", Scale: %g, Skipped: %lld", *last_->loss_scale, as_long(last_->skipped_steps.value_or(0)));
    std::printf("\n");
    std::fflush(stdout);
  }

  ddpxx::RunBegan run_;
  std::optional<ddpxx::StepDone> last_;
};
