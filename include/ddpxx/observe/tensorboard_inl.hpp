// ddpxx/observe/tensorboard_inl.hpp — definitions of tensorboard.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <ddpxx/core/crc32c.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/observer.hpp>
#include <ddpxx/observe/rank_time.hpp>
#include <ddpxx/observe/run_text.hpp>
#include <ddpxx/observe/tensorboard.hpp>

namespace ddpxx {

namespace detail {

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// As Markdown shows lines that are not to be joined.
inline std::string indented(std::string_view lines) {
  std::string text;
  for (auto end = lines.find('\n'); end != lines.npos; end = lines.find('\n')) {
    text += "    " + std::string{lines.substr(0, end + 1)};
    lines.remove_prefix(end + 1);
  }
  return text;
}

}  // namespace detail

/// One message of Protocol Buffers: fields in the order in which they are added.
class TensorBoard::Message {
 public:
  // Fields of the message Event.
  static constexpr unsigned kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;

  /// An event of now.
  static Message event(std::int64_t step) { return Message{}.add(kWallTime, detail::seconds_now()).add(kStep, step); }

  Message& add(unsigned field, double value) { return fixed(field, 1, value); }
  Message& add(unsigned field, float value) { return fixed(field, 5, value); }
  Message& add(unsigned field, std::int64_t value) {
    key(field, 0);
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  Message& add(unsigned field, std::string_view bytes) {
    key(field, 2);
    varint(bytes.size());
    text_ += bytes;
    return *this;
  }
  Message& add(unsigned field, const Message& message) { return add(field, std::string_view{message.text_}); }

  const std::string& text() const noexcept { return text_; }

  /// The number of a step in a summary.
  void add_scalar(std::string_view tag, double value) {
    add(1, Message{}.add(1, tag).add(2, static_cast<float>(value)));
  }

 private:
  void key(unsigned field, unsigned wire_type) { varint(field << 3U | wire_type); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7U) text_ += static_cast<char>(value | 0x80U);
    text_ += static_cast<char>(value);
  }
  template <class Number>
  Message& fixed(unsigned field, unsigned wire_type, Number value) {
    static_assert(std::endian::native == std::endian::little);
    key(field, wire_type);
    char bytes[sizeof(Number)];
    std::memcpy(bytes, &value, sizeof bytes);
    text_.append(bytes, sizeof bytes);
    return *this;
  }

  std::string text_;
};

DDPXX_INLINE TensorBoard::TensorBoard(std::filesystem::path folder) : folder_{std::move(folder)} {
  std::error_code failure;
  std::filesystem::create_directories(folder_, failure);
  if (std::error_code unknown; !std::filesystem::is_directory(folder_, unknown))
    throw Error{Errc::config, "training.tensorboard: cannot make the folder " + folder_.string() +
                                  (failure ? ": " + failure.message() : ": it is not a folder")};
}

DDPXX_INLINE std::string TensorBoard::name() const { return "TensorBoard"; }

DDPXX_INLINE void TensorBoard::on_begin(const RunBegan& run) {
  file_.reset();
  // This event makes a reader drop what earlier files hold of this step and of later ones.
  const auto first = run.goes_on ? run.step + 1 : 0;
  write(Message::event(first).add(Message::kSessionLog, Message{}.add(1, std::int64_t{1})));
  write_text(run.step, "run", detail::indented(head_of_run(run)));
  std::string settings;
  for (const auto& setting : run.settings) settings += setting.path + ": " + setting.value + '\n';
  if (!settings.empty()) write_text(run.step, "settings", detail::indented(settings));
}

DDPXX_INLINE Verdict TensorBoard::on_step(const StepDone& step) {
  Message summary;
  summary.add_scalar("train/loss", step.loss);
  summary.add_scalar("train/grad_norm", step.grad_norm);
  summary.add_scalar("train/lr", step.learning_rate);
  summary.add_scalar("speed/tokens_per_second", step.tokens_per_second);
  summary.add_scalar("speed/step_ms", step.step_ms);
  summary.add_scalar("speed/data_ms", step.data_ms);
  summary.add_scalar("memory/peak_bytes", static_cast<double>(step.peak_memory_bytes));
  if (step.gpu) {
    summary.add_scalar("memory/gpu_allocated_bytes", static_cast<double>(step.gpu->allocated_bytes));
    summary.add_scalar("memory/gpu_reserved_bytes", static_cast<double>(step.gpu->reserved_bytes));
    summary.add_scalar("memory/gpu_peak_bytes", static_cast<double>(step.gpu->peak_bytes));
    summary.add_scalar("memory/gpu_retries", static_cast<double>(step.gpu->retries));
  }
  if (!step.rank_times.empty()) {
    const auto spread = spread_of(step.rank_times);
    summary.add_scalar("speed/slowest_rank", static_cast<double>(spread.slowest_rank));
    summary.add_scalar("speed/slowest_rank_ms", spread.slowest_ms);
    summary.add_scalar("speed/median_rank_ms", spread.median_ms);
  }
  if (step.loss_scale) summary.add_scalar("train/loss_scale", *step.loss_scale);
  if (step.skipped_steps) summary.add_scalar("train/skipped_steps", static_cast<double>(*step.skipped_steps));
  for (const auto& metric : step.metrics) summary.add_scalar("train/" + metric.name, metric.value);
  write(Message::event(step.step).add(Message::kSummary, summary));
  return Verdict::go_on;
}

DDPXX_INLINE Verdict TensorBoard::on_evaluated(const Evaluated& evaluated) {
  Message summary;
  summary.add_scalar("val/loss", evaluated.val_loss);
  for (const auto& metric : evaluated.metrics) summary.add_scalar("val/" + metric.name, metric.value);
  write(Message::event(evaluated.step).add(Message::kSummary, summary));
  return Verdict::go_on;
}

DDPXX_INLINE void TensorBoard::on_snapshot(const SnapshotSaved& saved) {
  write_text(saved.step, "snapshot", saved.path);
}

DDPXX_INLINE File TensorBoard::new_file() const {
  std::error_code failure;  // a file cannot be made then, and says why
  std::filesystem::create_directories(folder_, failure);
  for (int number = 0;; ++number) {
    char name[96];
    std::snprintf(name, sizeof name, "events.out.tfevents.%010lld.%d.%d", static_cast<long long>(detail::seconds_now()),
                  static_cast<int>(::getpid()), number);
    if (auto file = File::create(folder_ / name, Errc::storage)) return std::move(*file);
  }
}

DDPXX_INLINE void TensorBoard::write_text(std::int64_t step, std::string_view tag, std::string_view text) {
  constexpr std::int64_t kString = 7;  // DT_STRING
  const auto shape = Message{}.add(2, Message{}.add(1, std::int64_t{1}));
  const auto tensor = Message{}.add(1, kString).add(2, shape).add(8, text);
  const auto plugin = Message{}.add(1, Message{}.add(1, std::string_view{"text"}));
  const auto value = Message{}.add(1, tag).add(9, plugin).add(8, tensor);
  write(Message::event(step).add(Message::kSummary, Message{}.add(1, value)));
}

DDPXX_INLINE void TensorBoard::write(const Message& message) {
  // A person may empty the folder while the run goes on. What is written to a removed file is lost.
  std::error_code failure;  // a file of which the system does not tell is kept
  if (file_ && !std::filesystem::exists(file_->path(), failure) && !failure) file_.reset();
  if (!file_) {  // there is none yet, or the last one was removed or could not be written to
    file_.emplace(new_file());
    const auto path = file_->path();
    try {
      write(Message::event(0).add(Message::kFileVersion, std::string_view{"brain.Event:2"}));
    } catch (...) {  // the file is removed, because each event on a full disk would leave an empty one
      ::unlink(path.c_str());
      file_.reset();
      throw;
    }
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
  const auto size = static_cast<::off_t>(file_->size());
  try {
    file_->write(bytes_of(record));
  } catch (...) {
    // A reader stops at a record that was cut.
    const int descriptor = file_->descriptor();
    if (::ftruncate(descriptor, size) != 0 || ::lseek(descriptor, size, SEEK_SET) != size) file_.reset();
    throw;
  }
}

}  // namespace ddpxx
