// ddpxx/train/step_profiler_inl.hpp — definitions of step_profiler.hpp; ddpxx/core/inline.hpp says how they are
// compiled.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/csrc/profiler/api.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/on_every_rank.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/program_frame.hpp>
#include <ddpxx/train/step_profiler.hpp>
#include <ddpxx/train/training_settings.hpp>

namespace ddpxx {

DDPXX_INLINE StepProfiler::StepProfiler(Options options) : options_{std::move(options)}, log_{options_.rank} {
  std::error_code failure;
  std::filesystem::create_directories(options_.folder, failure);
  if (failure || !std::filesystem::is_directory(options_.folder))
    throw Error{Errc::config, "training.profile: cannot make the folder " + options_.folder.string() +
                                  (failure ? ": " + failure.message() : ": it is not a folder")};
  if (ProgramFrame::exists() && options_.device.is_cpu()) ::setenv("KINETO_LOG_LEVEL", "5", /*overwrite=*/0);
}

DDPXX_INLINE void StepProfiler::begin() {
  drop();
  done_ = 0;
  has_profiled_ = false;
}

DDPXX_INLINE bool StepProfiler::begin_step(std::int64_t number) {
  if (has_profiled_ || done_ < options_.after) return false;
  has_profiled_ = true;
  using torch::profiler::impl::ActivityType;
  using torch::profiler::impl::ProfilerState;
  const torch::profiler::impl::ProfilerConfig config{ProfilerState::KINETO};
  std::set<ActivityType> activities{ActivityType::CPU};
  if (options_.device.is_cuda()) activities.insert(ActivityType::CUDA);
  wait_for_device();
  try {
    if (torch::profiler::impl::profilerEnabled())
      throw Error{Errc::config, "another profiler is running in this thread"};
    torch::autograd::profiler::prepareProfiler(config, activities);
    torch::autograd::profiler::enableProfiler(config, activities);
  } catch (const std::exception& error) {
    log_.warn("no step is profiled: " + first_line(error));
    return false;
  }
  first_ = number;
  profiled_ = 0;
  is_under_way_ = true;
  return true;
}

DDPXX_INLINE bool StepProfiler::end_step() {
  ++done_;
  if (!is_under_way_ || ++profiled_ < options_.steps) return false;
  write();
  return true;
}

DDPXX_INLINE void StepProfiler::finish() {
  if (is_under_way_ && profiled_ > 0)
    write();
  else if (!has_profiled_)
    log_.info("no step was profiled: the training has ended after " + std::to_string(done_) +
              " steps, and training.profile_after is " + std::to_string(options_.after));
  drop();
  has_profiled_ = true;  // says so once
}

DDPXX_INLINE void StepProfiler::drop() noexcept {
  if (!std::exchange(is_under_way_, false)) return;
  try {
    torch::autograd::profiler::disableProfiler();
  } catch (const std::exception&) {  // the thread that has started it has ended it, or has ended
  }
}

DDPXX_INLINE void StepProfiler::wait_for_device() const {
  if (!options_.device.is_cpu())
    c10::impl::VirtualGuardImpl{options_.device.type()}.synchronizeDevice(options_.device.index());
}

DDPXX_INLINE void StepProfiler::write() {
  wait_for_device();
  is_under_way_ = false;
  const auto last = first_ + profiled_ - 1;
  const auto file = options_.folder / ("rank-" + std::to_string(options_.rank) + ".steps-" + std::to_string(first_) +
                                       '-' + std::to_string(last) + ".pt.trace.json");
  std::error_code failure;
  std::filesystem::remove(file, failure);  // one of an earlier start would look like a success
  bool lacks_kernels = false;
  try {
    const auto profile = torch::autograd::profiler::disableProfiler();
    profile->save(file.string());
    lacks_kernels = !options_.device.is_cpu() && std::ranges::none_of(profile->events(), [&](const auto& event) {
      return event.deviceType() == options_.device.type();
    });
  } catch (const std::exception& error) {
    return log_.warn("cannot write the profile " + file.string() + ": " + first_line(error));
  }
  if (std::filesystem::file_size(file, failure) == 0 || failure)
    return log_.warn("cannot write the profile " + file.string() + (failure ? ": " + failure.message() : ""));
  if (lacks_kernels)
    log_.warn(
        "the profile " + file.string() +
        " shows no kernels, since CUPTI has recorded none: end other profilers such as nsys, or allow profiling in "
        "the container");
  log_.info("profiled steps " + std::to_string(first_) + " to " + std::to_string(last) + ": " + file.string() +
            "; ui.perfetto.dev shows it");
}

DDPXX_INLINE std::unique_ptr<StepProfiler> detail::make_profiler(const TrainingConfig& training, const Group& group,
                                                                 c10::Device device) {
  if (training.profile.empty()) return nullptr;
  return on_every_rank(group, Errc::config, [&] {
    return std::make_unique<StepProfiler>(StepProfiler::Options{.folder = training.profile,
                                                                .after = training.profile_after,
                                                                .steps = training.profile_steps,
                                                                .rank = group.rank(),
                                                                .device = device});
  });
}

}  // namespace ddpxx
