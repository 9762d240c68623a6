// ddpxx/observe/tensorboard.hpp — event files that TensorBoard shows: scalars of a run, and its configuration as text.
#pragma once

#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <ddpxx/core/crc32c.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/observer.hpp>
#include <ddpxx/observe/run_text.hpp>

namespace ddpxx {

namespace detail {

/// One message of Protocol Buffers: fields in the order in which they are added.
class ProtoMessage {
 public:
  ProtoMessage& add(unsigned field, double value) { return fixed(field, 1, value); }
  ProtoMessage& add(unsigned field, float value) { return fixed(field, 5, value); }
  ProtoMessage& add(unsigned field, std::int64_t value) {
    key(field, 0);
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  ProtoMessage& add(unsigned field, std::string_view bytes) {
    key(field, 2);
    varint(bytes.size());
    text_ += bytes;
    return *this;
  }
  ProtoMessage& add(unsigned field, const ProtoMessage& message) { return add(field, std::string_view{message.text_}); }

  const std::string& text() const noexcept { return text_; }

 private:
  void key(unsigned field, unsigned wire_type) { varint(field << 3U | wire_type); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7U) text_ += static_cast<char>(value | 0x80U);
    text_ += static_cast<char>(value);
  }
  template <class Number>
  ProtoMessage& fixed(unsigned field, unsigned wire_type, Number value) {
    static_assert(std::endian::native == std::endian::little);
    key(field, wire_type);
    char bytes[sizeof(Number)];
    std::memcpy(bytes, &value, sizeof bytes);
    text_.append(bytes, sizeof bytes);
    return *this;
  }

  std::string text_;
};

}  // namespace detail

/// Writes one event file into a folder for each start of the program. TensorBoard reads them in their order, and drops
/// the steps of an earlier file after which a later one has gone on.
/// Scalars are `train/loss`, `train/grad_norm`, `train/lr`, `speed/tokens_per_second`, `speed/step_ms`,
/// `memory/peak_bytes`, `train/loss_scale` where the loss is scaled, `val/loss`, and the model's own metrics below
/// `train/` and `val/`. Texts are `run`, what is trained and how, and `settings`, the configuration.
/// Source  The records are TensorFlow's TFRecord with masked CRC-32C; the messages are those of its event.proto and
///         summary.proto.
class TensorBoard : public Observer {
 public:
  /// Makes the folder.
  /// Errors  `config`, naming the folder and the reason: it cannot be made.
  explicit TensorBoard(std::filesystem::path folder) : folder_{std::move(folder)} {
    std::error_code failure;
    std::filesystem::create_directories(folder_, failure);
    if (!std::filesystem::is_directory(folder_))
      throw Error{Errc::config, "training.tensorboard: cannot make the folder " + folder_.string() +
                                    (failure ? ": " + failure.message() : ": it is no folder")};
  }

  std::string name() const override { return "TensorBoard"; }

  /// Errors  `storage`: the file cannot be made or written.
  void on_begin(const RunBegan& run) override {
    file_.reset();
    // This event makes a reader drop what earlier files hold of this step and of later ones.
    const auto first = run.goes_on ? run.step + 1 : 0;
    write(event(first).add(kSessionLog, detail::ProtoMessage{}.add(1, std::int64_t{1})));
    write_text(run.step, "run", indented(head_of_run(run)));
    std::string settings;
    for (const auto& setting : run.settings) settings += setting.path + ": " + setting.value + '\n';
    if (!settings.empty()) write_text(run.step, "settings", indented(settings));
  }

  Verdict on_step(const StepDone& step) override {
    detail::ProtoMessage summary;
    add(summary, "train/loss", step.loss);
    add(summary, "train/grad_norm", step.grad_norm);
    add(summary, "train/lr", step.learning_rate);
    add(summary, "speed/tokens_per_second", step.tokens_per_second);
    add(summary, "speed/step_ms", step.step_ms);
    add(summary, "memory/peak_bytes", static_cast<double>(step.peak_memory_bytes));
    if (step.loss_scale) add(summary, "train/loss_scale", *step.loss_scale);
    for (const auto& metric : step.metrics) add(summary, "train/" + metric.name, metric.value);
    write(event(step.step).add(kSummary, summary));
    return Verdict::go_on;
  }
  Verdict on_evaluated(const Evaluated& evaluated) override {
    detail::ProtoMessage summary;
    add(summary, "val/loss", evaluated.val_loss);
    for (const auto& metric : evaluated.metrics) add(summary, "val/" + metric.name, metric.value);
    write(event(evaluated.step).add(kSummary, summary));
    return Verdict::go_on;
  }
  void on_snapshot(const SnapshotSaved& saved) override { write_text(saved.step, "snapshot", saved.path); }

 private:
  // Fields of the message Event.
  static constexpr unsigned kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;

  /// TensorBoard reads the files of a folder in the order of their names, and takes those that name `tfevents`.
  File new_file() const {
    for (int number = 0;; ++number) {
      char name[96];
      std::snprintf(name, sizeof name, "events.out.tfevents.%010lld.%d.%d", static_cast<long long>(seconds_now()),
                    static_cast<int>(::getpid()), number);
      if (auto file = File::create(folder_ / name, Errc::storage)) return std::move(*file);
    }
  }
  static double seconds_now() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  }
  static detail::ProtoMessage event(std::int64_t step) {
    return detail::ProtoMessage{}.add(kWallTime, seconds_now()).add(kStep, step);
  }
  static void add(detail::ProtoMessage& summary, std::string_view tag, double value) {
    summary.add(1, detail::ProtoMessage{}.add(1, tag).add(2, static_cast<float>(value)));
  }
  void write_text(std::int64_t step, std::string_view tag, std::string_view text) {
    constexpr std::int64_t kString = 7;  // DT_STRING
    const auto shape = detail::ProtoMessage{}.add(2, detail::ProtoMessage{}.add(1, std::int64_t{1}));
    const auto tensor = detail::ProtoMessage{}.add(1, kString).add(2, shape).add(8, text);
    const auto plugin = detail::ProtoMessage{}.add(1, detail::ProtoMessage{}.add(1, std::string_view{"text"}));
    const auto value = detail::ProtoMessage{}.add(1, tag).add(9, plugin).add(8, tensor);
    write(event(step).add(kSummary, detail::ProtoMessage{}.add(1, value)));
  }
  /// As Markdown shows lines that are not to be joined.
  static std::string indented(std::string_view lines) {
    std::string text;
    for (auto end = lines.find('\n'); end != lines.npos; end = lines.find('\n')) {
      text += "    " + std::string{lines.substr(0, end + 1)};
      lines.remove_prefix(end + 1);
    }
    return text;
  }

  /// One record: its length and its bytes, each followed by a masked checksum. One write, so that a kill leaves whole
  /// records and at most a cut last one, which readers skip.
  void write(const detail::ProtoMessage& message) {
    if (!file_) {  // the last one ends with a record that could not be written whole
      file_.emplace(new_file());
      write(event(0).add(kFileVersion, std::string_view{"brain.Event:2"}));
    }
    std::string record;
    const auto append = [&](auto number) {
      char bytes[sizeof number];
      std::memcpy(bytes, &number, sizeof number);
      record.append(bytes, sizeof number);
    };
    const auto masked = [](std::string_view bytes) {
      const auto crc = crc32c(std::as_bytes(std::span{bytes}));
      return std::rotr(crc, 15) + 0xA282EAD8U;
    };
    append(std::uint64_t{message.text().size()});
    append(masked(record));
    record += message.text();
    append(masked(message.text()));
    try {
      file_->write(bytes_of(record));
    } catch (...) {
      file_.reset();
      throw;
    }
  }

  std::filesystem::path folder_;
  std::optional<File> file_;
};

}  // namespace ddpxx
