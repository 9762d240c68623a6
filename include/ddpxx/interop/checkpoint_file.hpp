// ddpxx/interop/checkpoint_file.hpp — saves and loads checkpoints in a folder or a bucket, under file names of the
// caller's choice, as Python programs write and read them.
#pragma once

#include <cstdint>
#include <iostream>
#include <memory>
#include <ostream>
#include <string>
#include <utility>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/interop/pt_file.hpp>
#include <ddpxx/interop/state_dicts.hpp>
#include <ddpxx/interop/torch_state.hpp>
#include <ddpxx/storage/open_storage.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

/// Saves and loads .pt files with the keys `epoch`, `model_state_dict` and `optimizer_state_dict`. Holds a whole file
/// in memory, and makes no temporary file.
/// Ranks   Local; only one rank should save.
class CheckpointFiles {
 public:
  /// Keeps the files in `storage`, which must outlive this object.
  explicit CheckpointFiles(Storage& storage, std::ostream& out = std::cout) : storage_{&storage}, out_{&out} {}

  /// Keeps the files in a bucket, as s3://bucket/prefix/filename.
  /// Errors  `config` for an invalid name, or if this program was built without S3.
  explicit CheckpointFiles(const std::string& bucket, const std::string& prefix = "checkpoints",
                           std::ostream& out = std::cout)
      : own_{open_storage("s3://" + bucket + '/' + prefix)}, storage_{own_.get()}, out_{&out} {}

  /// Writes the state of a model and its optimizer (AdamW, Adam or SGD) to the file, replacing it, and prints its name.
  /// Errors  `storage`; an old file is then unchanged. `config` for another optimizer.
  void save_checkpoint(std::int64_t epoch, const torch::nn::Module& model, const torch::optim::Optimizer& optimizer,
                       const std::string& filename) {
    save_checkpoint(epoch, state_dict(model), state_dict(optimizer), filename);
  }

  /// Writes states that the caller has. `optimizer` is a state_dict() from optimizer_to_python, or None.
  void save_checkpoint(std::int64_t epoch, NamedTensors model, PickleValue optimizer, const std::string& filename) {
    write_text(
        *storage_, filename,
        pack_pt(to_python(TrainingCheckpoint{CheckpointLayout::guide, std::move(model), std::move(optimizer), epoch})));
    *out_ << "Checkpoint saved to " << harmless(storage_->full_name(filename)) << std::endl;
  }

  /// Reads a checkpoint of any layout (see from_python).
  /// Errors  `storage`, naming the file, if it is missing, damaged or no checkpoint.
  TrainingCheckpoint load_checkpoint(const std::string& filename) {
    constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 40U;
    const auto name = storage_->full_name(filename);
    auto bytes = storage_->read_text(filename, kMaxBytes);
    if (!bytes) throw Error{Errc::storage, "there is no checkpoint " + name};
    const auto value = unpack_pt(std::move(*bytes), name);
    try {
      return from_python(value);
    } catch (const Error& error) {
      throw Error{Errc::storage, name + " is not a checkpoint: " + error.what()};
    }
  }

 private:
  std::unique_ptr<Storage> own_;  // the storage of the constructor for a bucket
  Storage* storage_;
  std::ostream* out_;
};

}  // namespace ddpxx
