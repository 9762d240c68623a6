// initial_weights.hpp — the weights that a new run begins with at step 0: a file of another program, or a snapshot.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <ranges>
#include <string>
#include <string_view>
#include <system_error>

#include <ATen/ops/full.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/on_rank_zero.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/interop/model_file.hpp>
#include <ddpxx/nn/gpt2_weights.hpp>
#include <ddpxx/snapshot/snapshot_choice.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/storage/open_storage.hpp>

#include "run_config.hpp"
#include "saved_network.hpp"

enum class WeightSource : std::int64_t { none, file, snapshot, own_snapshot, chosen_snapshot };

/// The file that `init_from` names, itself or as a folder of GPT-2; other texts are returned unchanged.
inline std::string weights_file(const std::string& init_from) {
  return ddpxx::find_model_file(init_from).value_or(init_from);
}

/// Whether the run has saved a snapshot, from which it resumes.
inline bool has_own_snapshot(const std::string& save_dir) {
  if (save_dir.empty()) return false;
  const auto storage = ddpxx::open_storage(save_dir);
  const ddpxx::Snapshots snapshots{*storage};
  return std::ranges::any_of(snapshots.list(),
                             [&](const auto& stored) { return snapshots.read(stored).manifest.has_value(); });
}

/// Refuses a file of weights in a bucket, which would be taken for a place of snapshots.
/// Errors  `storage`.
inline void refuse_file_in_bucket(const std::string& init_from) {
  constexpr std::array<std::string_view, 5> kOfFiles{".pt", ".pth", ".ckpt", ".bin", ".safetensors"};
  const auto scheme = init_from.find("://");
  // A dot in the name of a bucket does not begin an extension.
  if (scheme == std::string::npos || init_from.find('/', scheme + 3) == std::string::npos) return;
  const auto extension = std::filesystem::path{init_from}.extension().string();
  if (std::ranges::find(kOfFiles, extension) == kOfFiles.end()) return;
  const std::string or_convert =
      extension == ".safetensors" ? "" : ", or convert it to a snapshot with `ddpxx snapshot convert`";
  throw ddpxx::Error{ddpxx::Errc::storage,
                     "init_from=" + init_from + ": weights are read from a disk: copy the file" + or_convert};
}

/// What a run begins with: its own snapshot, that of `snapshot=`, or what `init_from` names: a file (.safetensors, .pt,
/// .pth, .ckpt, .bin), a folder of GPT-2 as Hugging Face publishes it, or a snapshot of a run (PLACE, PLACE:STEP,
/// PLACE:best). A run that resumes from its own snapshot needs none of the others, and they may be gone by then. Rank 0
/// looks for all ranks.
/// Ranks   Collective.
/// Errors  `storage` if there is nothing of that name, for a file in a bucket, and for nanoGPT's init_from=resume where
///         the run has no snapshot.
inline WeightSource find_initial_weights(const RunConfig& config, ddpxx::Group& group) {
  auto source = WeightSource::none;
  ddpxx::on_rank_zero(group, ddpxx::Errc::storage, [&] {
    if (config.init_from == "resume" && config.snapshot.name.empty() && !has_own_snapshot(config.training.save_dir))
      throw ddpxx::Error{ddpxx::Errc::storage,
                         "init_from=resume: training.save_dir=" + config.training.save_dir +
                             " has no snapshot: correct the folder, or leave init_from out to begin anew"};
    const bool has_alphabet = config.data.format == DataFormat::text;
    if (!has_alphabet && !config.has_initial_weights()) return;
    try {
      if (has_own_snapshot(config.training.save_dir)) {
        source = WeightSource::own_snapshot;
        return;
      }
    } catch (const ddpxx::Error&) {
      if (config.has_initial_weights()) throw;
      return;  // the trainer tries the place again, and says what is wrong with it
    }
    if (!config.snapshot.name.empty()) {
      if (has_alphabet) source = WeightSource::chosen_snapshot;
      return;
    }
    if (!config.has_initial_weights()) return;
    std::error_code failure;
    if (std::filesystem::is_regular_file(weights_file(config.init_from), failure)) {
      source = WeightSource::file;
      return;
    }
    refuse_file_in_bucket(config.init_from);
    const auto place = ddpxx::parse_snapshot_choice(config.init_from).place;
    if (place.find("://") == std::string::npos && !std::filesystem::is_directory(place, failure))
      throw ddpxx::Error{ddpxx::Errc::storage, "init_from=" + config.init_from +
                                                   ": there is no such file or folder; weights are read from a file, a "
                                                   "folder with model.safetensors, or a snapshot, and not downloaded"};
    source = WeightSource::snapshot;
  });
  auto shared = at::full({1}, static_cast<std::int64_t>(source), at::kLong).to(group.device());
  ddpxx::broadcast(shared, group);
  return static_cast<WeightSource>(shared.item<std::int64_t>());
}

/// Loads the file of weights that `init_from` names into the run's GPT.
/// Errors  `storage` for a file that is not there, is damaged, or holds the weights of another model.
inline void load_weights_file(torch::nn::Module& gpt, const RunConfig& config, const ddpxx::Group& group) {
  try {
    const auto file = ddpxx::read_checkpoint_file(weights_file(config.init_from));
    if (file.model_args)
      check_network(network_of(*file.model_args, config.model.tied_head), config.model, "nanoGPT's file", group);
    ddpxx::load_gpt2(gpt, file.model);
  } catch (const ddpxx::Error& error) {
    throw ddpxx::Error{error.code(), "init_from=" + config.init_from + ": " + error.what()};
  }
}
