// ddpxx/train/training_settings_inl.hpp — definitions of training_settings.hpp; ddpxx/core/inline.hpp says how they are
// compiled.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/unreplaced_tilde.hpp>
#include <ddpxx/train/training_settings.hpp>

namespace ddpxx {

DDPXX_INLINE std::vector<FieldError> detail::check_training(const TrainingConfig& config,
                                                            const std::string& save_dir_error) {
  std::vector<FieldError> errors;
  if (!save_dir_error.empty()) errors.push_back({"save_dir", save_dir_error});
  if (config.max_steps == 0 && config.max_epochs == 0 && config.max_time == 0.0)
    errors.push_back(
        {"max_steps", "with max_steps=0, max_epochs=0 and max_time=0 the run never ends: set one of them"});
  const auto needs_place = [&](const char* field, double every) {
    if (every > 0 && config.save_dir.empty())
      errors.push_back({field, "nothing would be saved: set save_dir, the place of the snapshots"});
  };
  needs_place("save_every", static_cast<double>(config.save_every));
  needs_place("save_every_time", config.save_every_time);
  // A warning: the tutorials' `PROGRAM 50 10` says so by position, and has no place to name.
  if (config.save_every_epochs > 0 && config.save_dir.empty())
    errors.push_back(
        {"save_every_epochs", "nothing is saved: set save_dir, the place of the snapshots", Severity::warning});
  const auto place = [](const std::string& path) { return std::filesystem::absolute(path).lexically_normal(); };
  const auto share_a_place = [&](const std::string& a, const std::string& b) {
    return !a.empty() && !b.empty() && place(a) == place(b);
  };
  if (share_a_place(config.csv, config.metrics))
    errors.push_back({"csv", "is the file of training.metrics, which has rows of another kind: name another file"});
  if (share_a_place(config.tensorboard, config.metrics) || share_a_place(config.tensorboard, config.csv))
    errors.push_back({"tensorboard", "is a file of training.metrics or training.csv: name a folder"});
  const auto is_in_bucket = [](const std::string& path) { return path.find("://") != std::string::npos; };
  for (const auto& [field, path] :
       {std::pair{"metrics", &config.metrics}, {"csv", &config.csv}, {"tensorboard", &config.tensorboard}})
    if (is_in_bucket(*path))
      errors.push_back({field, "\"" + *path +
                                   "\" is in a bucket, and rows are added one by one to a file of a disk: name a place "
                                   "on a disk, and give save_dir alone the bucket"});
  if (is_in_bucket(config.profile))
    errors.push_back({"profile", "\"" + config.profile + "\" is in a bucket: name a folder on a disk"});
  for (const auto& [field, path] : {std::pair{"save_dir", &config.save_dir},
                                    {"metrics", &config.metrics},
                                    {"csv", &config.csv},
                                    {"tensorboard", &config.tensorboard},
                                    {"profile", &config.profile}})
    if (const auto problem = problem_of_tilde(*path); !problem.empty()) errors.push_back({field, problem});
  if (config.eval_samples > 0 && !config.evaluates())
    errors.push_back({"eval_samples",
                      "without eval_every or eval_every_epochs training makes no evaluation that would use it",
                      Severity::warning});
  if (config.eval_at_start && !config.evaluates())
    errors.push_back({"eval_at_start", "nothing is evaluated: set eval_every or eval_every_epochs", Severity::warning});
  if (config.spike_factor > 0 && config.spike_factor <= 1)
    errors.push_back({"spike_factor", "ordinary steps would be left out: set it to more than 1, such as 4, or to 0"});
  if (config.slow_rank_factor > 0 && config.slow_rank_factor <= 1)
    errors.push_back({"slow_rank_factor",
                      "a rank as fast as the median would count as slow: set it to more than 1, such as 1.2, or to 0"});
  if (config.global_batch_size > 0 && config.accumulation_steps > 1)
    errors.push_back({"accumulation_steps", "follows from global_batch_size: set one of the two"});
  if (config.cuda_graph && !config.profile.empty())
    errors.push_back(
        {"profile", "a step that is replayed as a CUDA graph does not show its parts: set cuda_graph=false"});
  if (config.cuda_graph && config.accumulation_steps > 1)
    errors.push_back({"cuda_graph", "a step is captured with one batch, and accumulation_steps is " +
                                        std::to_string(config.accumulation_steps) +
                                        ": set accumulation_steps=1 and a larger batch size, or cuda_graph=false"});
  return errors;
}

}  // namespace ddpxx
