// ddpxx/interop/checkpoint_file.hpp — checkpoints under file names of one's own choosing, in a folder or a bucket, as
// a program in Python writes and reads them.
#pragma once

#include <cstdint>
#include <iostream>
#include <memory>
#include <ostream>
#include <string>
#include <utility>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/interop/pt_file.hpp>
#include <ddpxx/interop/state_dicts.hpp>
#include <ddpxx/interop/torch_state.hpp>
#include <ddpxx/storage/open_storage.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

/// Saves and loads .pt files with the keys `epoch`, `model_state_dict` and `optimizer_state_dict`. They pass through
/// memory, whole, and no temporary file.
/// Ranks   Local: one rank calls.
class CheckpointFiles {
 public:
  /// `storage` must outlive this.
  explicit CheckpointFiles(Storage& storage, std::ostream& out = std::cout) : storage_{&storage}, out_{&out} {}

  /// Files s3://bucket/prefix/filename.
  /// Errors  `config` where there can be no such place, or no S3 in this program.
  explicit CheckpointFiles(const std::string& bucket, const std::string& prefix = "checkpoints",
                           std::ostream& out = std::cout)
      : own_{open_storage("s3://" + bucket + '/' + prefix)}, storage_{own_.get()}, out_{&out} {}

  /// Replaces the file by the state of a model and its optimizer (AdamW, Adam or SGD), and prints where it is.
  /// Errors  `storage`; the old file is then untouched. `config` for another optimizer.
  void save_checkpoint(std::int64_t epoch, const torch::nn::Module& model, const torch::optim::Optimizer& optimizer,
                       const std::string& filename) {
    save_checkpoint(epoch, state_dict(model), state_dict(optimizer), filename);
  }

  /// The same for states at hand: `optimizer` is a state_dict() as optimizer_to_python makes it, or none.
  void save_checkpoint(std::int64_t epoch, NamedTensors model, PickleValue optimizer, const std::string& filename) {
    const auto bytes =
        pack_pt(to_python(TrainingCheckpoint{CheckpointLayout::guide, std::move(model), std::move(optimizer), epoch}));
    const Bytes parts[] = {bytes_of(bytes)};
    storage_->write(filename, parts);
    *out_ << "Checkpoint saved to " << harmless(storage_->full_name(filename)) << std::endl;
  }

  /// The checkpoint, in whichever layout (see from_python).
  /// Errors  `storage` naming the file: it is not there, is damaged, or is no checkpoint.
  TrainingCheckpoint load_checkpoint(const std::string& filename) {
    constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40U;
    const auto name = storage_->full_name(filename);
    auto bytes = storage_->read_text(filename, kMostBytes);
    if (!bytes) throw Error{Errc::storage, "there is no checkpoint " + name};
    const auto value = unpack_pt(std::move(*bytes), name);
    try {
      return from_python(value);
    } catch (const Error& error) {
      throw Error{Errc::storage, name + " is no checkpoint: " + error.what()};
    }
  }

 private:
  std::unique_ptr<Storage> own_;  // of a bucket
  Storage* storage_;
  std::ostream* out_;
};

}  // namespace ddpxx
