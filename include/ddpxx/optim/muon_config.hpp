// ddpxx/optim/muon_config.hpp — what a user may set about Muon.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <ddpxx/core/describe.hpp>
#include <ddpxx/optim/adamw_config.hpp>
#include <ddpxx/optim/schedule.hpp>

namespace ddpxx {

/// How the learning rate of a matrix depends on its shape.
enum class MuonScale {
  original,        ///< Times the root of rows / columns where there are more rows, as in the first publication.
  match_rms_adamw  ///< Times 0.2 and the root of the longer side: steps are about as long as AdamW's.
};

constexpr auto enum_names(MuonScale) {
  return std::array{Named{MuonScale::original, "original"}, Named{MuonScale::match_rms_adamw, "match_rms_adamw"}};
}

/// Defaults are those of torch.optim.Muon; parameters that are not a matrix of a layer are stepped as `adamw` says.
struct MuonConfig {
  double learning_rate = 1e-3;
  double weight_decay = 0.1;
  double momentum = 0.95;
  bool nesterov = true;
  std::int64_t iterations = 5;
  double epsilon = 1e-7;
  MuonScale scale = MuonScale::original;
  AdamWConfig adamw{};
  Schedule schedule = Schedule::constant;
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;
  double decay_ratio = 0.1;
  std::int64_t decay_every = 0;
  std::vector<std::int64_t> decay_at = {};
  double decay_factor = 0.1;
  double final_learning_rate = 0.0;

  static constexpr auto describe() {
    return fields(
               field<&MuonConfig::learning_rate>("Peak learning rate of matrices", above(0.0)),
               field<&MuonConfig::weight_decay>("Weight decay coefficient, for matrices that decay", at_least(0.0)),
               field<&MuonConfig::momentum>("Decay rate of the gradient's moving average", at_least(0.0), below(1.0)),
               field<&MuonConfig::nesterov>("Use Nesterov momentum"),
               field<&MuonConfig::iterations>("Number of Newton-Schulz iterations", between(1, 99)),
               field<&MuonConfig::epsilon>("Lower bound of the norm by which a matrix is divided", at_least(0.0)),
               field<&MuonConfig::scale>("How the learning rate depends on the shape of a matrix"),
               field<&MuonConfig::adamw>(
                   "AdamW for parameters that are not a matrix of a layer; its learning rate follows this schedule")) +
           schedule_fields<MuonConfig>();
  }
  double learning_rate_at(std::int64_t step) const { return scheduled_rate(*this, step); }
  std::vector<FieldError> check() const {
    auto errors = check_schedule(*this);
    if (adamw.schedule != Schedule::constant || adamw.warmup_steps != 0)
      errors.push_back({"adamw.schedule",
                        "does nothing: the learning rate of adamw follows the schedule of the matrices",
                        Severity::warning});
    return errors;
  }
};

}  // namespace ddpxx
