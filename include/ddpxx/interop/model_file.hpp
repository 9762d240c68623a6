// ddpxx/interop/model_file.hpp — reads a model's tensors from a file of any program, in safetensors or torch.save
// format.
#pragma once

#include <filesystem>

#include <ddpxx/snapshot/named_tensors.hpp>

namespace ddpxx {

/// True if these are the tensors of a snapshot, named `model.NAME` and so on, as `ddpxx snapshot convert` writes them.
bool is_of_snapshot(const NamedTensors& tensors);

/// Reads the model's tensors from a file of any layout (see from_python). Returns them under the model's own names.
/// Errors  `storage`, naming the file.
NamedTensors read_model_file(const std::filesystem::path& path);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/interop/model_file_inl.hpp>
#endif
