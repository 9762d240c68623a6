// ddpxx/interop/model_file.hpp — reads a model's tensors from a file of any program, in safetensors or torch.save
// format.
#pragma once

#include <filesystem>
#include <optional>

#include <ddpxx/flat/named_tensors.hpp>
#include <ddpxx/interop/state_dicts.hpp>
#include <ddpxx/snapshot/safetensors.hpp>

namespace ddpxx {

/// The metadata of a safetensors file with the tensors of a snapshot, as `ddpxx snapshot convert` writes it.
Metadata snapshot_metadata();

/// True if the file has the tensors of a snapshot, named `model.NAME` and so on. A file without `snapshot_metadata` is
/// one of an earlier version if its names have the prefixes of a snapshot, and not `model.` alone.
bool is_of_snapshot(const Safetensors& file);

/// The file with the weights in a folder as Hugging Face's transformers makes it: model.safetensors or
/// pytorch_model.bin, or the index of several files, which has the same name with `.index.json` behind it. None if
/// there is no such file.
std::optional<std::filesystem::path> find_model_file(const std::filesystem::path& folder);

/// Reads a file of any layout (see from_python), the files that an index names, or a folder in which find_model_file
/// finds one of these. A safetensors file and an index have the model's tensors alone: their layout is `state_dict`.
/// Errors  `storage`, naming the file.
TrainingCheckpoint read_checkpoint_file(const std::filesystem::path& path);

/// Reads the model's tensors from what read_checkpoint_file reads. Returns them under the model's own names.
/// Errors  `storage`, naming the file.
NamedTensors read_model_file(const std::filesystem::path& path);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/interop/model_file_inl.hpp>
#endif
