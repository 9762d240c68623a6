// ddpxx/snapshot/snapshot.hpp — all that a run needs to go on as if it had never stopped, in one file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/snapshot/safetensors.hpp>

namespace ddpxx {

/// A run at the boundary between two steps.
/// Tensors are named `model.NAME`, `optimizer.MOMENT.NAME` and `random.RANK`; the file is a safetensors file, which
/// other programs read as well.
struct Snapshot {
  std::int64_t step = 0;      ///< Optimizer steps done.
  std::int64_t epoch = 0;     ///< Passes over the data that are complete.
  std::int64_t position = 0;  ///< Samples of the present epoch consumed by all ranks together.
  int world_size = 1;
  Settings settings;  ///< The configuration of the run that saved it.
  std::map<std::string, at::Tensor> tensors;
};

inline std::filesystem::path snapshot_path(const std::filesystem::path& directory) {
  return directory / "snapshot.safetensors";
}

/// Finds out before a run whether its snapshots can be written: makes the directory, and a file in it.
/// Errors  `storage` naming the directory and the reason.
inline void check_writable(const std::filesystem::path& directory) {
  try {
    std::filesystem::create_directories(directory);
    const auto probe = directory / (".probe-" + std::to_string(::getpid()));
    write_file_atomic(probe, "snapshots can be written here\n");
    std::filesystem::remove(probe);
  } catch (const std::exception& error) {
    throw Error{Errc::storage,
                "no snapshot can be written to " + directory.string() + ": choose another training.save_dir"}
        .with("cause", first_line(error));
  }
}

/// Replaces the snapshot in `directory`, which is made if it is not there. A kill at any moment leaves the old one or
/// the new one whole.
/// Errors  `storage` naming the file and the reason; the old snapshot is then untouched.
inline void save_snapshot(const std::filesystem::path& directory, const Snapshot& snapshot) {
  nlohmann::json settings = nlohmann::json::array();
  for (const auto& [path, value, resume] : snapshot.settings) settings.push_back({path, value});
  const nlohmann::json state{{"step", snapshot.step},
                             {"epoch", snapshot.epoch},
                             {"position", snapshot.position},
                             {"world_size", snapshot.world_size},
                             {"settings", settings}};
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw Error{Errc::storage, "cannot make the directory " + directory.string() + ": " + error.message()};
  write_safetensors(snapshot_path(directory), snapshot.tensors, {{"format", "pt"}, {"ddpxx.run", state.dump()}});
}

/// The snapshot in `directory`; none if there is no such file.
/// Errors  `storage` for a file that is there and is not whole: never taken for a fresh start.
inline std::optional<Snapshot> load_snapshot(const std::filesystem::path& directory) {
  const auto path = snapshot_path(directory);
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) return std::nullopt;
  auto file = read_safetensors(path);
  Snapshot snapshot;
  try {
    const auto state = nlohmann::json::parse(file.metadata.at("ddpxx.run"));
    snapshot.step = state.at("step");
    snapshot.epoch = state.at("epoch");
    snapshot.position = state.at("position");
    snapshot.world_size = state.at("world_size");
    for (const auto& setting : state.at("settings")) snapshot.settings.push_back({setting.at(0), setting.at(1)});
  } catch (const std::exception&) {
    throw Error{Errc::storage, path.string() + " is a safetensors file, but not a snapshot of a run"};
  }
  snapshot.tensors = std::move(file.tensors);
  return snapshot;
}

}  // namespace ddpxx
