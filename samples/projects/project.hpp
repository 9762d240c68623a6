// project.hpp — what the projects of minGPT share: spellings of minGPT's arguments, and its lines about each tenth
// step.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

#include <ddpxx/ddpxx.hpp>

/// minGPT's arguments, such as `--trainer.max_iters=1000 --model.n_layer=4`.
inline constexpr std::array kAliasesOfMinGPT{ddpxx::Alias{"trainer", "training"},
                                             ddpxx::Alias{"trainer.max_iters", "training.max_steps"},
                                             ddpxx::Alias{"trainer.batch_size", "batch_size"},
                                             ddpxx::Alias{"trainer.num_workers", "num_workers"},
                                             ddpxx::Alias{"trainer.learning_rate", "optimizer.learning_rate"},
                                             ddpxx::Alias{"trainer.weight_decay", "optimizer.weight_decay"},
                                             ddpxx::Alias{"trainer.betas[0]", "optimizer.beta1"},
                                             ddpxx::Alias{"trainer.betas[1]", "optimizer.beta2"},
                                             ddpxx::Alias{"system.seed", "training.seed"},
                                             ddpxx::Alias{"system.work_dir", "training.save_dir"}};

/// minGPT's settings of a training: batches of 64, its optimizer, its seed.
template <class Train>
typename Train::Config settings_of_mingpt(std::int64_t max_steps) {
  return {.batch_size = 64,
          .training = {.max_steps = max_steps, .max_epochs = 0, .seed = 3407, .grad_norm_clip = 1.0},
          .optimizer = {.learning_rate = 5e-4, .weight_decay = 0.1, .beta2 = 0.95}};
}

/// Prints `iter_dt 5.31ms; iter 10: train loss 2.05432` each tenth step, with the mean loss over all ranks.
/// Ranks   Rank 0 adds it.
class EachTenthStep : public ddpxx::Observer {
 public:
  std::string name() const override { return "EachTenthStep"; }
  ddpxx::Verdict on_step(const ddpxx::StepDone& step) override {
    if (step.step % 10 == 0) {
      std::printf("iter_dt %.2fms; iter %lld: train loss %.5f\n", step.step_ms, static_cast<long long>(step.step),
                  step.loss);
      std::fflush(stdout);
    }
    return ddpxx::Verdict::go_on;
  }
};
