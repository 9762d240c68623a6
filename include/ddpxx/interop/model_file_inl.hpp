// ddpxx/interop/model_file_inl.hpp — the definitions of model_file.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include <ddpxx/core/each_entry.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/flat/named_tensors.hpp>
#include <ddpxx/interop/model_file.hpp>
#include <ddpxx/interop/pt_file.hpp>
#include <ddpxx/interop/state_dicts.hpp>
#include <ddpxx/snapshot/safetensors.hpp>
#include <ddpxx/snapshot/snapshots.hpp>

namespace ddpxx {

namespace detail {

inline constexpr std::string_view kModelPrefix = "model.", kContentKey = "ddpxx.content", kSnapshot = "snapshot";

inline constexpr std::string_view kIndexEnding = ".index.json";

/// Reads the files that an index names, which lie beside it: {"weight_map": {"TENSOR": "FILE"}}.
inline NamedTensors read_indexed_files(const std::filesystem::path& index) {
  const auto refuse = [&](const std::string& why) { throw Error{Errc::storage, index.string() + ": " + why}; };
  const auto json = nlohmann::json::parse(read_file(index, Errc::storage), nullptr, false);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (map == json.end() || !map->is_object()) refuse("it has no weight_map");
  std::map<std::string, NamedTensors> files;
  NamedTensors tensors;
  for (const auto& [name, file] : map->items()) {
    const auto text = file.is_string() ? file.get<std::string>() : std::string{};
    const auto path = index.parent_path() / text;
    std::error_code ignored;
    // A folder, such as ".", would have an index of its own, which could be this one.
    if (text.empty() || text.find('/') != std::string::npos || text.ends_with(kIndexEnding) ||
        std::filesystem::is_directory(path, ignored))
      refuse("the file of " + name + " is not the name of a file beside it");
    const auto [place, is_new] = files.try_emplace(text);
    // The names in the index are those in its files, so nothing is removed from them, as it would be in a snapshot.
    if (is_new)
      place->second = path.extension() == ".safetensors" ? read_safetensors(path).tensors : read_model_file(path);
    const auto tensor = place->second.find(name);
    if (tensor == place->second.end()) refuse(name + " is not in " + text);
    tensors.emplace(name, tensor->second);
  }
  return tensors;
}

/// The place of a run's snapshots, if `folder` is one or is the folder of a step in it; none for other folders.
inline std::optional<std::string> place_of_snapshots(const std::filesystem::path& folder) {
  const auto is_of_step = [](const std::filesystem::path& path) {
    std::error_code ignored;
    return Snapshots::step_of(path.filename().string() + '/') &&
           std::filesystem::is_regular_file(path / Snapshots::kManifest, ignored);
  };
  const auto whole = folder.has_filename() ? folder : folder.parent_path();  // without a slash at the end
  if (is_of_step(whole)) return whole.has_parent_path() ? whole.parent_path().string() : ".";
  bool has_one = false;
  each_entry(whole, [&](const auto& entry) { has_one = has_one || is_of_step(entry.path()); });
  return has_one ? std::optional{whole.string()} : std::nullopt;
}

}  // namespace detail

DDPXX_INLINE Metadata snapshot_metadata() {
  return {{"format", "pt"}, {std::string{detail::kContentKey}, std::string{detail::kSnapshot}}};
}

DDPXX_INLINE bool is_of_snapshot(const Safetensors& file) {
  const auto content = file.metadata.find(std::string{detail::kContentKey});
  if (content != file.metadata.end()) return content->second == detail::kSnapshot;
  constexpr std::array<std::string_view, 6> kOtherPrefixes{"optimizer.", "scaler.",         "spikes.",
                                                           "plateau.",   "early_stopping.", "random."};
  const auto is_of_model = [](const auto& item) { return item.first.starts_with(detail::kModelPrefix); };
  const auto is_of_run = [&](const auto& item) {
    return std::ranges::any_of(kOtherPrefixes, [&](auto prefix) { return item.first.starts_with(prefix); });
  };
  return std::ranges::any_of(file.tensors, is_of_run) &&
         std::ranges::all_of(file.tensors, [&](const auto& item) { return is_of_model(item) || is_of_run(item); });
}

DDPXX_INLINE std::optional<std::filesystem::path> find_model_file(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const std::string name : {"model.safetensors", "pytorch_model.bin"})
    for (const auto& file : {folder / name, folder / (name + std::string{detail::kIndexEnding})})
      if (std::filesystem::is_regular_file(file, ignored)) return file;
  return std::nullopt;
}

DDPXX_INLINE TrainingCheckpoint read_checkpoint_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    const auto file = find_model_file(path);
    if (!file) {
      if (const auto place = detail::place_of_snapshots(path))
        throw Error{
            Errc::storage,
            "the folder " + path.string() +
                " has snapshots of ddpxx, which are no file of weights: load_model() reads one into a model, and "
                "`ddpxx snapshot convert " +
                *place + " to=weights.safetensors` makes a file of the newest"};
      throw Error{Errc::storage, "the folder " + path.string() +
                                     " has no weights: neither model.safetensors nor pytorch_model.bin, nor an index "
                                     "such as model.safetensors.index.json"};
    }
    return read_checkpoint_file(*file);
  }
  const auto model_alone = [](NamedTensors model) {
    return TrainingCheckpoint{.layout = CheckpointLayout::state_dict, .model = std::move(model)};
  };
  if (path.filename().string().ends_with(detail::kIndexEnding)) return model_alone(detail::read_indexed_files(path));
  if (path.extension() == ".safetensors") {
    auto file = read_safetensors(path);
    if (!is_of_snapshot(file)) return model_alone(std::move(file.tensors));
    NamedTensors model;
    for (const auto& [name, tensor] : file.tensors)
      if (name.starts_with(detail::kModelPrefix)) model.emplace(name.substr(detail::kModelPrefix.size()), tensor);
    return model_alone(std::move(model));
  }
  const auto value = read_pt(path);
  try {
    return from_python(value);
  } catch (const Error& error) {
    throw Error{error.code(), path.string() + ": " + error.what()};
  }
}

DDPXX_INLINE NamedTensors read_model_file(const std::filesystem::path& path) {
  return read_checkpoint_file(path).model;
}

}  // namespace ddpxx
