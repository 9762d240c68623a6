// ddpxx/observe/tensorboard.hpp — event files that TensorBoard shows: scalars of a run, and its configuration as text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <ddpxx/core/file.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/observer.hpp>

namespace ddpxx {

/// Writes one event file into a folder for each start of the program. TensorBoard reads them in their order, and drops
/// the steps of an earlier file after which a later one has gone on.
/// Scalars are `train/loss`, `train/grad_norm`, `train/lr`, `speed/tokens_per_second`, `speed/step_ms`,
/// `speed/data_ms`, `memory/peak_bytes`, `memory/gpu_allocated_bytes`, `memory/gpu_reserved_bytes`,
/// `memory/gpu_peak_bytes` and `memory/gpu_retries` on a GPU, `speed/slowest_rank`, `speed/slowest_rank_ms` and
/// `speed/median_rank_ms` where the ranks' times are measured, `train/loss_scale` where the loss is scaled,
/// `train/skipped_steps` where steps can be left out, `val/loss`, and the model's own metrics below `train/` and
/// `val/`. Texts are `run`, what is trained and how, `settings`, the configuration, and `snapshot`, for each one that
/// was saved.
/// Source  The records are TensorFlow's TFRecord with masked CRC-32C; the messages are those of its event.proto and
///         summary.proto.
class TensorBoard : public Observer {
 public:
  /// Makes the folder.
  /// Errors  `config`, naming the folder and the reason: it cannot be made.
  explicit TensorBoard(std::filesystem::path folder);

  DDPXX_INLINE std::string name() const override;

  /// Errors  `storage`: the file cannot be made or written.
  DDPXX_INLINE void on_begin(const RunBegan& run) override;
  DDPXX_INLINE Verdict on_step(const StepDone& step) override;
  DDPXX_INLINE Verdict on_evaluated(const Evaluated& evaluated) override;
  DDPXX_INLINE void on_snapshot(const SnapshotSaved& saved) override;

 private:
  class Message;

  /// TensorBoard reads the files of a folder in the order of their names, and takes those that name `tfevents`.
  File new_file() const;
  void write_text(std::int64_t step, std::string_view tag, std::string_view text);
  /// One record: its length and its bytes, each followed by a masked checksum. One write, so that a kill leaves whole
  /// records and at most a cut last one, which readers skip.
  void write(const Message& message);

  std::filesystem::path folder_;
  std::optional<File> file_;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/observe/tensorboard_inl.hpp>
#endif
