// snapshot_command.hpp — `ddpxx snapshot COMMAND PLACE [KEY=VALUE ...]`.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>

#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/suggest.hpp>
#include <ddpxx/core/units.hpp>
#include <ddpxx/snapshot/pt_file.hpp>
#include <ddpxx/snapshot/safetensors.hpp>
#include <ddpxx/snapshot/snapshot.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/snapshot/state_dicts.hpp>
#include <ddpxx/storage/open_storage.hpp>

#include "python_optimizer.hpp"

/// What stands behind the place.
struct SnapshotArguments {
  std::int64_t step = -1;
  std::string other = {};
  std::int64_t other_step = -1;
  std::string to = {};
  std::string what = "all";
  std::string layout = "mingpt_ddp";
  std::int64_t keep_last = 0;
  std::int64_t keep_best = 0;
  std::int64_t keep_every = 0;
  std::int64_t keep_every_epochs = 0;
  double keep_every_time = 0.0;

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(
        field<&SnapshotArguments::step>("Which snapshot; -1 is the newest that is whole", at_least(-1)),
        field<&SnapshotArguments::other>("Place of the snapshot to compare with"),
        field<&SnapshotArguments::other_step>("Which one there; -1 is the newest that is whole", at_least(-1)),
        field<&SnapshotArguments::to>("Where a conversion goes: FILE.safetensors, FILE.pt or another place"),
        field<&SnapshotArguments::what>("What is converted", choices("model", "all")),
        field<&SnapshotArguments::layout>("Keys of a .pt file",
                                          choices("mingpt_ddp", "torchrun_tutorial", "guide", "state_dict")),
        field<&SnapshotArguments::keep_last>("Newest snapshots that are kept", at_least(0)),
        field<&SnapshotArguments::keep_best>("Kept as well: those with the lowest validation loss", at_least(0)),
        field<&SnapshotArguments::keep_every>("Kept as well: those of every so many steps", at_least(0)),
        field<&SnapshotArguments::keep_every_epochs>("Kept as well: the first one after each so many complete epochs",
                                                     at_least(0)),
        field<&SnapshotArguments::keep_every_time>(
            "Kept as well: the oldest one, and each that was written so long after the last of these", at_least(0.0),
            Unit::seconds));
  }
};

/// The commands, on the snapshots of one place.
class SnapshotCommands {
 public:
  SnapshotCommands(const std::string& place, SnapshotArguments arguments)
      : storage_{ddpxx::open_storage(place)}, snapshots_{*storage_}, arguments_{std::move(arguments)} {}

  void list() const {
    for (const auto& stored : snapshots_.list()) {
      std::uint64_t bytes = 0;
      for (const auto& [file, size] : stored.sizes) bytes += size;
      std::ostringstream line;
      line << std::setw(10) << stored.step << "  " << std::setw(10) << ddpxx::bytes_text(bytes) << "  ";
      if (!stored.published) {
        line << "begun and not finished";
      } else if (const auto snapshot = snapshots_.read(stored); snapshot.manifest) {
        line << "epoch " << snapshot.manifest->epoch << ", " << snapshot.manifest->world_size << " ranks";
        for (const auto& [name, value] : snapshot.manifest->metrics) line << ", " << name << ' ' << value;
      } else {
        line << snapshot.damage;
      }
      print(line.str());
    }
  }

  void show() const {
    const auto manifest = chosen(*storage_, arguments_.step);
    print("step " + std::to_string(manifest.step) + ", epoch " + std::to_string(manifest.epoch) + ", position " +
          std::to_string(manifest.position) + ", " + std::to_string(manifest.world_size) + " ranks");
    if (manifest.written_at > 0) print("written " + date_text(manifest.written_at));
    for (const auto& [name, value] : manifest.metrics) print(name + ' ' + std::to_string(value));
    if (!manifest.optimizer.empty()) print("optimizer " + manifest.optimizer);
    if (!manifest.config_hash.empty()) print("configuration " + manifest.config_hash);
    print("files");
    for (const auto& file : manifest.files) print("  " + file.name + "  " + ddpxx::bytes_text(file.bytes));
    print("tensors");
    for (const auto& [name, tensor] : manifest.tensors)
      print("  " + name + "  " + std::string{ddpxx::detail::dtype_name(tensor.dtype)} + ' ' + shape_text(tensor.shape) +
            (tensor.parts.size() > 1 ? ", " + std::to_string(tensor.parts.size()) + " parts" : ""));
    if (!manifest.overrides.empty()) print("overrides");
    std::istringstream overrides{manifest.overrides};
    for (std::string line; std::getline(overrides, line);) print("  " + line);
    print("settings");
    for (const auto& setting : manifest.settings)
      print("  " + setting.path + "=" + setting.value + (setting.origin.empty() ? "" : "  # " + setting.origin));
  }

  void verify() const {
    int damaged = 0, whole = 0;
    for (const auto& stored : snapshots_.list()) {
      if (!stored.published || (arguments_.step >= 0 && stored.step != arguments_.step)) continue;
      const auto snapshot = snapshots_.read(stored);
      auto damage = snapshot.damage;
      if (snapshot.manifest)
        damage = ddpxx::ShardReader{*storage_, stored.folder, *snapshot.manifest}.verify().value_or("");
      print(std::to_string(stored.step) + (damage.empty() ? "  whole" : "  " + damage));
      ++(damage.empty() ? whole : damaged);
    }
    if (damaged + whole == 0) throw none_there();
    if (damaged > 0)
      throw ddpxx::Error{ddpxx::Errc::storage,
                         std::to_string(damaged) + " of " + std::to_string(damaged + whole) + " snapshots are damaged"};
  }

  /// True if nothing differs.
  bool diff() const {
    if (arguments_.other.empty()) throw needs("other=PLACE");
    const auto other = ddpxx::open_storage(arguments_.other);
    const auto ours = ddpxx::read_snapshot(*storage_, chosen(*storage_, arguments_.step));
    const auto theirs = ddpxx::read_snapshot(*other, chosen(*other, arguments_.other_step));
    bool same = true;
    const auto tell = [&](const std::string& line) {
      print(line);
      same = false;
    };
    if (ours.step != theirs.step) tell("step: " + std::to_string(ours.step) + ", " + std::to_string(theirs.step));
    if (ours.position != theirs.position)
      tell("position: " + std::to_string(ours.position) + ", " + std::to_string(theirs.position));
    compare_settings(ours, theirs, tell);
    for (const auto& [name, tensor] : ours.tensors) {
      const auto found = theirs.tensors.find(name);
      if (found == theirs.tensors.end())
        tell(name + ": only in the first");
      else if (found->second.sizes() != tensor.sizes() || found->second.scalar_type() != tensor.scalar_type())
        tell(name + ": " + shape_text(tensor.sizes().vec()) + ", " + shape_text(found->second.sizes().vec()));
      else if (!at::equal(found->second, tensor))
        tell(name + ": largest difference " +
             std::to_string((found->second.to(at::kDouble) - tensor.to(at::kDouble)).abs().max().item<double>()));
    }
    for (const auto& [name, tensor] : theirs.tensors)
      if (!ours.tensors.contains(name)) tell(name + ": only in the second");
    return same;
  }

  void convert() const {
    if (arguments_.to.empty()) throw needs("to=FILE or to=PLACE");
    auto snapshot = ddpxx::read_snapshot(*storage_, chosen(*storage_, arguments_.step));
    if (arguments_.what == "model")
      std::erase_if(snapshot.tensors, [](const auto& each) { return !each.first.starts_with(kModel); });
    const std::filesystem::path to = arguments_.to;
    if (to.extension() == ".pt")
      write_checkpoint(to, snapshot);
    else if (to.extension() == ".safetensors")
      ddpxx::write_safetensors(to, snapshot.tensors, {{"format", "pt"}});
    else
      ddpxx::save_snapshot(*ddpxx::open_storage(arguments_.to), snapshot);
    print("step " + std::to_string(snapshot.step) + ": " + std::to_string(snapshot.tensors.size()) + " tensors to " +
          arguments_.to);
  }

  void prune() const {
    if (arguments_.keep_last == 0) throw needs("keep_last=N, at least 1");
    storage_->claim("ddpxx snapshot prune");
    const auto before = published();
    snapshots_.prune({.last = arguments_.keep_last,
                      .best = arguments_.keep_best,
                      .metric = "loss",
                      .every_steps = arguments_.keep_every,
                      .every_epochs = arguments_.keep_every_epochs,
                      .every_seconds = arguments_.keep_every_time},
                     {.of_the_place = true, .starts = {}});
    print(std::to_string(before - published()) + " of " + std::to_string(before) + " snapshots removed");
  }

 private:
  static constexpr std::string_view kModel = "model.";

  static void print(const std::string& line) { std::cout << ddpxx::harmless(line) << '\n'; }
  static ddpxx::Error needs(const std::string& what) {
    return ddpxx::Error{ddpxx::Errc::config, "this command needs " + what + ": see ddpxx snapshot --help"};
  }
  ddpxx::Error none_there() const {
    return ddpxx::Error{ddpxx::Errc::storage, "there is no snapshot at " + storage_->whole_name("")};
  }
  static std::string date_text(std::int64_t seconds_since_1970) {
    const std::time_t time = seconds_since_1970;
    std::tm parts{};
    std::array<char, 64> text{};
    if (::gmtime_r(&time, &parts) == nullptr) return "at no date";
    return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts)};
  }
  static std::string shape_text(const std::vector<std::int64_t>& shape) {
    std::string text = "[";
    for (const auto length : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(length);
    return text + ']';
  }

  std::ptrdiff_t published() const {
    const auto all = snapshots_.list();
    return std::count_if(all.begin(), all.end(), [](const auto& stored) { return stored.published; });
  }

  /// The snapshot of a step, or the newest that is whole.
  static ddpxx::Manifest chosen(ddpxx::Storage& storage, std::int64_t step) {
    const ddpxx::Snapshots snapshots{storage};
    std::string damages;
    for (const auto& stored : snapshots.list()) {
      if (!stored.published || (step >= 0 && stored.step != step)) continue;
      auto snapshot = snapshots.read(stored);
      if (snapshot.manifest) return std::move(*snapshot.manifest);
      damages += "\n  " + snapshot.damage;
    }
    throw ddpxx::Error{ddpxx::Errc::storage, "there is no usable snapshot" +
                                                 (step >= 0 ? " of step " + std::to_string(step) : "") + " at " +
                                                 storage.whole_name("") + damages};
  }

  template <class Tell>
  static void compare_settings(const ddpxx::Snapshot& ours, const ddpxx::Snapshot& theirs, Tell&& tell) {
    std::map<std::string, std::array<std::string, 2>> values;
    for (const auto& setting : ours.settings) values[setting.path][0] = setting.value;
    for (const auto& setting : theirs.settings) values[setting.path][1] = setting.value;
    for (const auto& [path, both] : values)
      if (both[0] != both[1]) tell(path + ": " + both[0] + ", " + both[1]);
  }

  /// The run as Python's programs keep it: the weights and, where the layout has a place for it, the optimizer.
  void write_checkpoint(const std::filesystem::path& to, const ddpxx::Snapshot& snapshot) const {
    static const std::map<std::string, ddpxx::CheckpointLayout> kLayouts{
        {"mingpt_ddp", ddpxx::CheckpointLayout::mingpt_ddp},
        {"torchrun_tutorial", ddpxx::CheckpointLayout::torchrun_tutorial},
        {"guide", ddpxx::CheckpointLayout::guide},
        {"state_dict", ddpxx::CheckpointLayout::state_dict}};
    ddpxx::TrainingCheckpoint checkpoint;
    checkpoint.layout = kLayouts.at(arguments_.layout);
    checkpoint.epoch = snapshot.epoch;
    for (const auto& [name, tensor] : snapshot.tensors)
      if (name.starts_with(kModel)) checkpoint.model.emplace(name.substr(kModel.size()), tensor);
    if (auto optimizer = python_optimizer::state_dict(snapshot, checkpoint.layout)) {
      checkpoint.optimizer = std::move(*optimizer);
      if (!python_optimizer::knows_settings(snapshot))
        print("the snapshot does not say how its optimizer was configured: the file has Python's defaults");
      if (checkpoint.layout == ddpxx::CheckpointLayout::guide && python_optimizer::decays_in_part(snapshot) &&
          python_optimizer::number(snapshot, "optimizer.weight_decay", 0.0) > 0)
        print(
            "in this layout's one group Python decays all parameters, and the run decayed some of them only: "
            "layout=mingpt_ddp keeps two groups");
    } else if (arguments_.what == "all") {
      print("without an optimizer's state: the snapshot has none that such a file could hold, or the file no place");
    }
    ddpxx::write_pt(to, ddpxx::to_python(checkpoint));
  }

  std::unique_ptr<ddpxx::Storage> storage_;
  ddpxx::Snapshots snapshots_;
  SnapshotArguments arguments_;
};

/// `argv` holds the command, the place, and then settings.
inline void snapshot_command(const std::string& command, const std::string& place, int argc, char** argv) {
  const SnapshotCommands commands{place, ddpxx::parse_config<SnapshotArguments>(
                                             argc - 1, argv + 1, {.program = "ddpxx snapshot " + command + " PLACE"})};
  if (command == "list") return commands.list();
  if (command == "show") return commands.show();
  if (command == "verify") return commands.verify();
  if (command == "diff") {
    if (!commands.diff()) throw std::runtime_error{"the snapshots differ"};
    return;
  }
  if (command == "convert") return commands.convert();
  if (command == "prune") return commands.prune();
  const std::vector<std::string> known{"list", "show", "verify", "diff", "convert", "prune"};
  const auto meant = ddpxx::nearest(command, known);
  throw ddpxx::Error{ddpxx::Errc::config, "ddpxx snapshot has no command \"" + command + "\"" +
                                              (meant ? " (did you mean " + *meant + "?)" : "") + ": see --help"};
}
