// ddpxx/train/training_settings.hpp — the struct of a run's settings, for code that is compiled once. Programs include
// ddpxx/train/training_config.hpp, which defines its check(): that opens a storage, see
// ddpxx/storage/storage_opener.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx {

struct TrainingConfig {
  std::int64_t max_steps = 0;
  std::int64_t max_epochs = 10;
  double max_time = 0.0;
  std::uint64_t seed = 1337;
  bool shuffle = true;
  double grad_norm_clip = 1.0;
  double grad_value_clip = 0.0;
  bool fused_clip = false;
  double spike_factor = 0.0;
  std::int64_t accumulation_steps = 1;
  std::int64_t global_batch_size = 0;
  double ema_decay = 0.0;
  std::string save_dir = {};
  std::int64_t save_every = 0;
  std::int64_t save_every_epochs = 0;
  double save_every_time = 0.0;
  std::int64_t eval_every = 0;
  std::int64_t eval_every_epochs = 0;
  bool eval_at_start = false;
  std::int64_t eval_samples = 0;
  std::int64_t check_replicas_every = 0;
  double slow_rank_factor = 0.0;
  double progress_every = 5.0;
  std::string metrics = {};
  std::string csv = {};
  std::string tensorboard = {};
  std::string profile = {};
  std::int64_t profile_after = 10;
  std::int64_t profile_steps = 3;
  std::string device = "auto";
  bool deterministic = false;
  bool detect_anomaly = false;
  bool cuda_graph = false;

  static constexpr auto describe() {
    return fields(
        field<&TrainingConfig::max_steps>("Stop after this optimizer step; 0 means no limit", at_least(0), Unit::steps,
                                          Resume::free),
        field<&TrainingConfig::max_epochs>("Stop after this many passes over the data; 0 means no limit", at_least(0),
                                           at_most(1'000'000'000), Unit::epochs, Resume::free),
        field<&TrainingConfig::max_time>("Stop after this time; 0 means no limit", at_least(0.0), Unit::seconds,
                                         Resume::free),
        field<&TrainingConfig::seed>("Start of all random numbers: initial weights, order of data, dropout",
                                     Resume::must_match),
        field<&TrainingConfig::shuffle>("Draw a new order of the samples for each epoch; false keeps that of the data",
                                        Resume::must_match),
        field<&TrainingConfig::grad_norm_clip>("Largest global gradient norm; 0 does not clip", at_least(0.0)),
        field<&TrainingConfig::grad_value_clip>(
            "Largest absolute value of a gradient's elements, which are clipped before the norm; 0 does not clip",
            at_least(0.0)),
        field<&TrainingConfig::fused_clip>(
            "Clip by the norm in the optimizer's own pass over the gradients, with AdamW and Adam; results differ by "
            "their rounding"),
        field<&TrainingConfig::spike_factor>(
            "Leave out a step whose gradient norm is not finite, or more than this many times the moving average of "
            "the norms; 0 leaves out none",
            at_least(0.0)),
        field<&TrainingConfig::accumulation_steps>("Batches added up for one optimizer step", at_least(1),
                                                   Resume::free),
        field<&TrainingConfig::global_batch_size>(
            "Samples in an optimizer step of all ranks together; each rank adds up as many batches as it needs, of at "
            "most its batch size. 0: batch size times ranks times accumulation_steps",
            at_least(0), Unit::samples, Resume::free),
        field<&TrainingConfig::ema_decay>(
            "Decay rate of a moving average of the parameters, which evaluations use; 0 keeps none", at_least(0.0),
            below(1.0)),
        field<&TrainingConfig::save_dir>(
            "Place of the snapshots, a folder or s3://bucket/prefix; a run resumes from the newest there",
            Output::folder, Resume::free),
        field<&TrainingConfig::save_every>("Optimizer steps between two snapshots; 0 saves only at the end",
                                           at_least(0), Unit::steps, Resume::free),
        field<&TrainingConfig::save_every_epochs>("Epochs between two snapshots; 0 saves only at the end", at_least(0),
                                                  Unit::epochs, Resume::free),
        field<&TrainingConfig::save_every_time>(
            "Save when this time has passed since the last save; 0 saves only at the end", at_least(0.0), Unit::seconds,
            Resume::free),
        field<&TrainingConfig::eval_every>(
            "Optimizer steps between two evaluations, with one more at the end; 0 counts no steps", at_least(0),
            Unit::steps, Resume::free),
        field<&TrainingConfig::eval_every_epochs>(
            "Epochs between two evaluations, with one more at the end; 0 counts no epochs", at_least(0), Unit::epochs,
            Resume::free),
        field<&TrainingConfig::eval_at_start>(
            "Evaluate a new run before its first step too, with eval_every or eval_every_epochs", Resume::free),
        field<&TrainingConfig::eval_samples>("Validation samples an evaluation uses; 0 is all", at_least(0),
                                             Unit::samples, Resume::free),
        field<&TrainingConfig::check_replicas_every>(
            "Optimizer steps between two checks that the copies of the parameters on the ranks are equal, with one "
            "more before each snapshot; 0 makes none",
            at_least(0), Unit::steps, Resume::free),
        field<&TrainingConfig::slow_rank_factor>(
            "Warn of a rank whose own time for a step, without its waits for other ranks, is more than this many times "
            "the median rank's, such as 1.2; 0 measures none",
            at_least(0.0), Resume::free),
        field<&TrainingConfig::progress_every>(
            "Least time between two lines of progress where the output is not a terminal; 0 shows each step, "
            "and each batch of an evaluation",
            between(0.0, 1e9), Unit::seconds, Resume::free),
        field<&TrainingConfig::metrics>("JSONL file of one row a step; empty is none", Output::file, Resume::free),
        field<&TrainingConfig::csv>("CSV file of one row a step; empty is none", Output::file, Resume::free),
        field<&TrainingConfig::tensorboard>("Folder of event files for TensorBoard; empty is none", Output::folder,
                                            Resume::free),
        field<&TrainingConfig::profile>(
            "Folder for a profile of some steps by each rank, in Chrome's trace format; empty is none", Output::folder,
            Resume::free),
        field<&TrainingConfig::profile_after>(
            "Number of steps to run before the profile begins, counted from the start of the program", at_least(0),
            Unit::steps, Resume::free),
        field<&TrainingConfig::profile_steps>("Number of steps to profile", at_least(1), Unit::steps, Resume::free),
        field<&TrainingConfig::device>(
            "Where to compute: auto takes this rank's GPU if the build has CUDA and one is there",
            choices("auto", "cpu", "cuda"), Resume::free),
        field<&TrainingConfig::deterministic>(
            "Use only operations whose results repeat bit for bit; slower on a GPU, and needs "
            "CUBLAS_WORKSPACE_CONFIG=:4096:8 there"),
        field<&TrainingConfig::detect_anomaly>(
            "End the run where an operation makes NaN of other numbers, and name the operation; a step takes several "
            "times as long",
            Resume::free),
        field<&TrainingConfig::cuda_graph>(
            "Capture a step in a CUDA graph and replay it: on one GPU, with strategy single and AdamW or Adam",
            Resume::free));
  }
  /// The name of the setting that asks for evaluations; empty where none does.
  std::string evaluation_setting() const {
    return eval_every > 0 ? "eval_every" : eval_every_epochs > 0 ? "eval_every_epochs" : "";
  }
  bool evaluates() const { return eval_every > 0 || eval_every_epochs > 0; }
  /// The settings that make no evaluations, for the text of an error: `eval_every=0`.
  std::string settings_without_evaluations() const {
    return std::string{eval_every > 0 ? "eval_every=0" : ""} +
           (eval_every > 0 && eval_every_epochs > 0 ? " and " : "") +
           (eval_every_epochs > 0 ? "eval_every_epochs=0" : "");
  }
  /// The rules between settings, and whether the program can reach save_dir.
  inline std::vector<FieldError> check() const;
};

namespace detail {

/// The rules between settings. `save_dir_error` says why save_dir cannot be used; empty if it can.
std::vector<FieldError> check_training(const TrainingConfig& config, const std::string& save_dir_error);

}  // namespace detail

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/train/training_settings_inl.hpp>
#endif
