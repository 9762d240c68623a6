// snapshot_times — measures how long a run waits for its snapshots; prints a line of JSON for each repetition.
//
//   snapshot_times background FOLDER   how long a save in the background blocks the run, and a copy of as many bytes
//   snapshot_times foreground FOLDER   the time until a save is published
//   snapshot_times write FOLDER        saves once, for `load`
//   snapshot_times load FOLDER         loads what `write` has saved, on any number of ranks; the slowest rank's time
//
// bench/peers/snapshot_times.py does the same in Python. Both remove older snapshots between the repetitions, and
// check the values after each load.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>

#include <nlohmann/json.hpp>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/launch/join.hpp>
#include <ddpxx/launch/program.hpp>
#include <ddpxx/launch/torchrun_environment.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/storage/open_storage.hpp>
#include <ddpxx/train/snapshot_history.hpp>
#include <ddpxx/train/snapshot_loader.hpp>
#include <ddpxx/train/snapshot_saver.hpp>

namespace {

constexpr int kLayers = 10;
constexpr std::int64_t kWidth = 456;
constexpr int kRepetitions = 5;  // after one for warm-up

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>{Clock::now() - begin}.count();
}

void print(const nlohmann::json& line) { std::cout << line.dump() + '\n' << std::flush; }

/// 50 tensors, 99.8 MB; the values of each count up from its number.
std::vector<ddpxx::NamedParameter> parameters() {
  const std::vector<std::vector<std::int64_t>> shapes{
      {3 * kWidth, kWidth}, {kWidth, kWidth}, {4 * kWidth, kWidth}, {kWidth, 4 * kWidth}, {kWidth}};
  std::vector<ddpxx::NamedParameter> parameters;
  for (int layer = 0; layer < kLayers; ++layer)
    for (const auto& shape : shapes) {
      const auto number = static_cast<std::int64_t>(parameters.size());
      const auto values = at::arange(number, number + c10::multiply_integers(shape), at::kFloat);
      parameters.push_back({"tensor_" + std::to_string(number), values.view(shape), layer});
    }
  return parameters;
}

/// One process holds all parameters in one memory, as DDP does; one of several holds its piece of every layer, as FSDP
/// does.
class Model {
 public:
  explicit Model(const ddpxx::Group& group)
      : arena_{parameters(),
               {.gradients = ddpxx::Gradients::none,
                .pieces = group.size(),
                .piece = group.rank(),
                .cut = group.size() > 1 ? ddpxx::CutAt::units : ddpxx::CutAt::formats}} {
    for (const auto& segment : arena_.segments()) pieces_.push_back(segment.master);
  }

  ddpxx::RunState state() const { return {{ddpxx::values_part(arena_)}, {}}; }
  const std::vector<at::Tensor>& pieces() const noexcept { return pieces_; }
  std::size_t tensors() const noexcept { return arena_.size(); }
  /// The bytes of all ranks.
  std::int64_t bytes() const {
    std::int64_t numel = 0;
    for (const auto& entry : arena_.entries()) numel += entry.numel;
    return numel * static_cast<std::int64_t>(sizeof(float));
  }

  /// Changes all values, so that they have just been written, as after an optimizer step.
  void step() const {
    for (auto piece : pieces_) piece.add_(1);
  }

 private:
  ddpxx::Arena arena_;
  std::vector<at::Tensor> pieces_;
};

std::shared_ptr<ddpxx::SnapshotHistory> history(const std::string& folder, const ddpxx::Group& group) {
  return std::make_shared<ddpxx::SnapshotHistory>(ddpxx::open_storage(folder), group);
}

ddpxx::SnapshotSaver saver(const std::string& folder, ddpxx::SnapshotWriting writing, const ddpxx::Group& group) {
  return {history(folder, group), {.writing = writing, .keep_last = 0}, group, at::kCPU};
}

void remove(const std::string& folder, int step) {
  std::filesystem::remove_all(std::filesystem::path{folder} / ddpxx::Snapshots::folder_of(step));
}

void save_in_background(const std::string& folder, const ddpxx::Group& group) {
  const Model model{group};
  auto saves = saver(folder, ddpxx::SnapshotWriting::background, group);
  std::vector<at::Tensor> copies;
  for (const auto& piece : model.pieces()) copies.push_back(at::empty_like(piece));
  double blocked = 0.0, published = 0.0, copied = 0.0;
  const auto save = [&](int step) {
    model.step();
    const auto begin = Clock::now();
    saves.save({.step = step}, model.state(), ddpxx::Copies::equal);
    blocked = milliseconds_since(begin);
    saves.finish();
    published = milliseconds_since(begin);
    remove(folder, step);
  };
  const auto copy = [&] {
    model.step();
    const auto begin = Clock::now();
    for (std::size_t i = 0; i < copies.size(); ++i)
      std::memcpy(copies[i].mutable_data_ptr(), model.pieces()[i].const_data_ptr(), copies[i].nbytes());
    copied = milliseconds_since(begin);
  };
  for (int i = 0; i <= kRepetitions; ++i) {
    if (i % 2 == 0) copy();
    save(i + 1);
    if (i % 2 == 1) copy();
    if (i > 0)
      print({{"blocked_ms", blocked},
             {"memcpy_ms", copied},
             {"published_ms", published},
             {"tensors", model.tensors()},
             {"bytes", model.bytes()}});
  }
}

void save_in_foreground(const std::string& folder, const ddpxx::Group& group) {
  const Model model{group};
  auto saves = saver(folder, ddpxx::SnapshotWriting::foreground, group);
  for (int i = 0; i <= kRepetitions; ++i) {
    model.step();
    const auto begin = Clock::now();
    saves.save({.step = i + 1}, model.state(), ddpxx::Copies::equal);
    const auto saved = milliseconds_since(begin);
    remove(folder, i + 1);
    if (i > 0) print({{"saved_ms", saved}, {"tensors", model.tensors()}, {"bytes", model.bytes()}});
  }
}

void write(const std::string& folder, const ddpxx::Group& group) {
  const Model model{group};
  auto saves = saver(folder, ddpxx::SnapshotWriting::foreground, group);
  saves.save({.step = 1}, model.state(), ddpxx::Copies::equal);
}

void load(const std::string& folder, const ddpxx::Group& group) {
  const Model model{group};
  std::vector<at::Tensor> expected;
  for (const auto& piece : model.pieces()) expected.push_back(piece.clone());
  ddpxx::SnapshotLoader loader{history(folder, group), 2, group, at::kCPU};
  for (int i = 0; i <= kRepetitions; ++i) {
    for (auto piece : model.pieces()) piece.zero_();
    ddpxx::barrier(group);
    const auto begin = Clock::now();
    loader.load({}, model.state(), 0);
    auto loaded = at::full({1}, milliseconds_since(begin), at::kDouble);
    ddpxx::all_reduce(loaded, group, ddpxx::Reduce::max);
    for (std::size_t k = 0; k < expected.size(); ++k)
      if (!expected[k].equal(model.pieces()[k])) throw ddpxx::Error{ddpxx::Errc::data, "not what was saved"};
    if (i > 0 && group.rank() == 0)
      print({{"loaded_ms", loaded.item<double>()}, {"tensors", model.tensors()}, {"bytes", model.bytes()}});
  }
}

struct Operation {
  std::string_view name;
  void (*run)(const std::string& folder, const ddpxx::Group& group);
};
constexpr Operation kOperations[] = {
    {"background", save_in_background}, {"foreground", save_in_foreground}, {"write", write}, {"load", load}};

}  // namespace

int main(int argc, char** argv) {
  ddpxx::run_program("snapshot_times", [&] {
    const std::string_view name = argc == 3 ? argv[1] : "";
    const auto* const operation = std::find_if(std::begin(kOperations), std::end(kOperations),
                                               [&](const Operation& d) { return d.name == name; });
    if (operation == std::end(kOperations))
      throw ddpxx::Error{ddpxx::Errc::config, "usage: snapshot_times background|foreground|write|load FOLDER"};
    auto group = ddpxx::join(ddpxx::torchrun_environment());
    operation->run(argv[2], group);
    group.leave();
  });
}
