// ddpxx/launch/plan/processors.hpp — counts the GPUs and the cores that a program started here may use.
#pragma once

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include <ddpxx/core/cpu_set.hpp>
#include <ddpxx/core/each_entry.hpp>

namespace ddpxx::detail {

/// The number of cores on which this process may run; at least 1.
inline int count_processors() { return std::max(1, static_cast<int>(allowed_cpus().size())); }

/// How many of `present` GPUs CUDA_VISIBLE_DEVICES shows. CUDA ignores what follows the first entry that is empty or
/// names no GPU, and what follows a number in its entry.
inline int count_shown_gpus(std::string_view names, int present) {
  int count = 0;
  while (!names.empty() && count < present) {
    auto name = names.substr(0, names.find(','));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
    name.remove_prefix(std::min(name.find_first_not_of(' '), name.size()));
    int number = 0;
    const bool is_number = std::from_chars(name.data(), name.data() + name.size(), number).ec == std::errc{};
    if (is_number ? number < 0 || number >= present : !name.starts_with("GPU-") && !name.starts_with("MIG-")) break;
    ++count;
  }
  return count;
}

/// The number of NVIDIA's GPUs by their device files, such as /dev/nvidia0, without calling the driver.
inline int count_device_files(const std::filesystem::path& folder) {
  constexpr std::string_view kPrefix = "nvidia";
  int count = 0;
  each_entry(folder, [&](const auto& entry) {
    const std::string name = entry.path().filename().string();
    count += name.starts_with(kPrefix) && name.size() > kPrefix.size() &&
             name.find_first_not_of("0123456789", kPrefix.size()) == std::string::npos;
  });
  return count;
}

/// The number of GPUs that a program may use: those of `folder`, or those of them that `visible`, the value of
/// CUDA_VISIBLE_DEVICES, shows.
inline int count_gpus(const char* visible, const std::filesystem::path& folder = "/dev") {
  const int present = count_device_files(folder);
  return visible == nullptr ? present : count_shown_gpus(visible, present);
}

}  // namespace ddpxx::detail
