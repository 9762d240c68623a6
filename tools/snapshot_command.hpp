// snapshot_command.hpp — `ddpxx snapshot COMMAND PLACE [KEY=VALUE ...]`.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <ctime>
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
#include <variant>
#include <vector>

#include <ddpxx/config/number_text.hpp>
#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/host_name.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/suggest.hpp>
#include <ddpxx/core/units.hpp>
#include <ddpxx/interop/pickle_value.hpp>
#include <ddpxx/interop/state_dicts.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/ranking.hpp>
#include <ddpxx/snapshot/shard_reader.hpp>
#include <ddpxx/snapshot/snapshot.hpp>
#include <ddpxx/snapshot/snapshot_choice.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/storage/open_storage.hpp>
#include <ddpxx/storage/storage.hpp>

#include "huggingface_folder.hpp"
#include "python_checkpoint.hpp"
#include "snapshot_diff.hpp"
#include "tensor_file.hpp"
#include "tensor_text.hpp"

/// The settings of `list`, which has none.
struct ListArguments {};

/// The settings of `show` and `verify`.
struct StepArguments {
  std::int64_t step = -1;

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(field<&StepArguments::step>("Which snapshot; -1: show the newest that is whole, verify all of them",
                                              at_least(-1)));
  }
};

struct DiffArguments {
  std::string other = {};
  std::int64_t step = -1;
  std::int64_t other_step = -1;

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(field<&DiffArguments::other>("Place of the snapshot to compare with"),
                  field<&DiffArguments::step>("Which snapshot; -1 is the newest that is whole", at_least(-1)),
                  field<&DiffArguments::other_step>("Which one there; -1 is the newest that is whole", at_least(-1)));
  }
};

struct ConvertArguments {
  std::string to = {};
  std::int64_t step = -1;
  std::string what = "all";
  std::string layout = "mingpt_ddp";

  bool wants_all() const { return what == "all"; }

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(field<&ConvertArguments::to>("Where the conversion goes: FILE.safetensors, FILE.pt or a place"),
                  field<&ConvertArguments::step>(
                      "Which snapshot, or after how many steps a file was saved that does not say so; -1 "
                      "is the newest that is whole",
                      at_least(-1)),
                  field<&ConvertArguments::what>("What is converted", choices("model", "all")),
                  field<&ConvertArguments::layout>(
                      "Keys of a .pt file; huggingface writes a folder with config.json and model.safetensors",
                      choices("mingpt_ddp", "torchrun_tutorial", "guide", "state_dict", "huggingface")));
  }
};

struct PruneArguments {
  std::int64_t keep_last = 0;
  std::int64_t keep_best = 0;
  std::int64_t keep_every = 0;
  std::int64_t keep_every_epochs = 0;
  double keep_every_time = 0.0;

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(
        field<&PruneArguments::keep_last>("Number of newest snapshots to keep", at_least(0)),
        field<&PruneArguments::keep_best>(
            "Number of best snapshots to keep as well, by the metric that the run has recorded", at_least(0)),
        field<&PruneArguments::keep_every>("Also keep snapshots whose step is a multiple of this", at_least(0)),
        field<&PruneArguments::keep_every_epochs>("Also keep the first snapshot after every this many complete epochs",
                                                  at_least(0)),
        field<&PruneArguments::keep_every_time>(
            "Also keep the oldest snapshot, and one each time this much time has passed", at_least(0.0),
            Unit::seconds));
  }
};

/// The commands on the snapshots of one place.
class SnapshotCommands {
 public:
  explicit SnapshotCommands(const std::string& place) : SnapshotCommands{place, ddpxx::open_storage(place)} {}
  /// `storage` is what `place` names.
  SnapshotCommands(std::string place, std::unique_ptr<ddpxx::Storage> storage)
      : place_{std::move(place)}, storage_{std::move(storage)}, snapshots_{*storage_} {}

  void list(const ListArguments&) const {
    const auto all = snapshots_.list();
    if (all.empty()) throw none_there();
    Unread unread;
    print("      step        size  written                  val_loss  epoch, ranks");
    for (const auto& stored : all) {
      std::uint64_t bytes = 0;
      for (const auto& [file, size] : stored.sizes) bytes += size;
      const auto snapshot = stored.committed
                                ? unread.watch(snapshots_, stored.step, [&] { return snapshots_.read(stored); })
                                : std::nullopt;
      if (stored.committed && !snapshot) continue;  // removed since the snapshots were listed
      std::ostringstream line;
      line << std::setw(10) << stored.step << "  " << std::setw(10) << ddpxx::bytes_text(bytes) << "  ";
      if (!snapshot) {
        line << (stored.set_aside ? "damaged, set aside (manifest.rejected.json)" : "begun and not finished");
      } else if (snapshot->manifest) {
        const auto& metrics = snapshot->manifest->run.metrics;
        const auto loss = metrics.find("loss");
        line << std::setw(23) << date_text(snapshot->manifest->written_at) << "  " << std::setw(8);
        if (loss != metrics.end())
          line << std::fixed << std::setprecision(4) << loss->second;
        else
          line << '-';
        line << "  epoch " << snapshot->manifest->run.epoch << ", " << ranks_text(snapshot->manifest->world_size);
      } else {
        line << snapshot->damage;
      }
      print(line.str());
    }
    unread.check();
  }

  void show(const StepArguments& arguments) const {
    const auto manifest = chosen(*storage_, arguments.step, [](const ddpxx::Manifest&) { return std::string{}; });
    print("step " + std::to_string(manifest.run.step) + ", epoch " + std::to_string(manifest.run.epoch) +
          ", position " + std::to_string(manifest.run.position) + ", " + ranks_text(manifest.world_size));
    if (manifest.written_at > 0) print("written " + date_text(manifest.written_at));
    for (const auto& [name, value] : manifest.run.metrics) print("val_" + name + ' ' + ddpxx::real_text(value));
    if (!manifest.run.optimizer.empty()) print("optimizer " + manifest.run.optimizer);
    if (!manifest.run.config_hash.empty()) print("configuration " + manifest.run.config_hash);
    print("files");
    for (const auto& file : manifest.files) print("  " + file.name + "  " + ddpxx::bytes_text(file.bytes));
    print("tensors");
    for (const auto& [name, tensor] : manifest.tensors)
      print("  " + name + "  " + tensor_text(tensor) +
            (tensor.parts.size() > 1 ? ", " + std::to_string(tensor.parts.size()) + " parts" : ""));
    if (!manifest.run.overrides.empty()) print("overrides");
    std::istringstream overrides{manifest.run.overrides};
    for (std::string line; std::getline(overrides, line);) print("  " + line);
    print("settings");
    for (const auto& setting : manifest.run.settings)
      print("  " + setting.path + "=" + setting.value + (setting.origin.empty() ? "" : "  # " + setting.origin));
  }

  void verify(const StepArguments& arguments) const {
    int damaged = 0, whole = 0;
    Unread unread;
    bool is_complete = false;
    for (int listings = 0; !is_complete && damaged + whole == 0 && listings < ddpxx::Snapshots::kMaxListings;
         ++listings) {
      is_complete = true;
      for (const auto& stored : snapshots_.list()) {
        if (!stored.committed || (arguments.step >= 0 && stored.step != arguments.step)) continue;
        const auto snapshot = unread.watch(snapshots_, stored.step, [&] {
          auto read = snapshots_.read(stored);
          if (read.manifest) read.damage = damage_of(*storage_, *read.manifest);
          return read;
        });
        if (!snapshot) {  // a run has removed it meanwhile, and may have saved a newer one
          is_complete = false;
          continue;
        }
        const auto& damage = snapshot->damage;
        print(std::to_string(stored.step) + (damage.empty() ? "  whole" : "  " + damage));
        ++(damage.empty() ? whole : damaged);
      }
    }
    if (damaged + whole == 0) throw none_there(arguments.step);
    unread.check();
    if (damaged > 0)
      throw ddpxx::Error{ddpxx::Errc::storage,
                         std::to_string(damaged) + " of " + std::to_string(damaged + whole) + " snapshots are damaged"};
  }

  /// Errors  std::runtime_error, after the differences, if there are any.
  void diff(const DiffArguments& arguments) const {
    if (arguments.other.empty()) throw needs("other=PLACE");
    const auto other = ddpxx::open_storage(arguments.other);
    const auto pick = [](ddpxx::Storage& storage, std::int64_t step) {
      return chosen(storage, step, [&](const ddpxx::Manifest& manifest) { return damage_of(storage, manifest); });
    };
    const auto ours = pick(*storage_, arguments.step), theirs = pick(*other, arguments.other_step);
    bool same = true;
    SnapshotDiff{{storage_.get(), &ours},
                 {other.get(), &theirs},
                 [&same](const std::string& line) {
                   print(line);
                   same = false;
                 }}
        .run();
    if (!same) throw std::runtime_error{"the snapshots differ"};
  }

  void convert(const ConvertArguments& arguments) const {
    if (arguments.to.empty()) throw needs("to=FILE or to=PLACE");
    const bool to_huggingface = arguments.layout == "huggingface";
    const auto target = TensorFile::writable(arguments.to);
    if (to_huggingface && (target || arguments.to.find("://") != std::string::npos))
      throw ddpxx::Error{ddpxx::Errc::config, "layout=huggingface writes a folder, and to=" + arguments.to +
                                                  " is none: name a folder on a disk"};
    const auto source = TensorFile::readable(place_);
    const auto snapshot = source                               ? read_checkpoint(*source, arguments)
                          : huggingface_folder::is_one(place_) ? read_huggingface(arguments)
                                                               : read_snapshot(arguments);
    if (to_huggingface && python_checkpoint::has_average(snapshot))
      print(std::string{python_checkpoint::kWithoutAverage});
    if (to_huggingface)
      huggingface_folder::write(arguments.to, snapshot);
    else if (!target)
      ddpxx::save_snapshot(*ddpxx::open_storage(arguments.to), snapshot);
    else if (target->kind == TensorFile::Kind::pt)
      target->write(to_python(snapshot, arguments));
    else
      target->write(snapshot.tensors);
    print("step " + std::to_string(snapshot.run.step) + ": " + std::to_string(snapshot.tensors.size()) +
          " tensors to " + arguments.to);
  }

  void prune(const PruneArguments& arguments) const {
    if (arguments.keep_last == 0) throw needs("keep_last=N, at least 1");
    storage_->claim("ddpxx snapshot prune on " + ddpxx::host_name());
    const auto before = published();
    const auto newest =
        arguments.keep_best > 0 ? ddpxx::choose_snapshot(*storage_, {}).run.settings : ddpxx::Settings{};
    const auto ranking = ddpxx::recorded_ranking(newest);
    snapshots_.prune({.last = arguments.keep_last,
                      .best = arguments.keep_best,
                      .metric = ranking.metric,
                      .mode = ranking.mode,
                      .every_steps = arguments.keep_every,
                      .every_epochs = arguments.keep_every_epochs,
                      .every_seconds = arguments.keep_every_time},
                     {.of_the_place = true, .starts = {}});
    print(std::to_string(before - published()) + " of " + std::to_string(before) + " snapshots removed");
  }

 private:
  /// Counts snapshots that cannot be read, because another version wrote them or the storage fails, so that the other
  /// snapshots are still listed.
  class Unread {
   public:
    /// Returns none if another program has removed the snapshot meanwhile.
    template <class Read>
    std::optional<ddpxx::ReadSnapshot> watch(const ddpxx::Snapshots& snapshots, std::int64_t step, Read&& read) {
      try {
        auto snapshot = read();
        if (snapshot.damage.empty() || snapshots.is_there(step)) return snapshot;
      } catch (const ddpxx::Error& error) {
        if (snapshots.is_there(step)) {
          code_ = error.code();
          ++count_;
          return ddpxx::ReadSnapshot{{}, std::nullopt, error.what()};
        }
      }
      return std::nullopt;
    }
    /// Throws if a snapshot could not be read.
    /// Errors  the code of the last failure.
    void check() const {
      if (count_ > 0) throw ddpxx::Error{code_, std::to_string(count_) + " of the snapshots could not be read"};
    }

   private:
    int count_ = 0;
    ddpxx::Errc code_ = ddpxx::Errc::storage;
  };

  static void print(const std::string& line) { std::cout << ddpxx::harmless(line) << '\n'; }
  static ddpxx::Error needs(const std::string& what) {
    return ddpxx::Error{ddpxx::Errc::config, "this command needs " + what + ": see ddpxx snapshot --help"};
  }
  /// `step`: the one that was looked for; -1 for any.
  ddpxx::Error none_there(std::int64_t step = -1) const {
    return ddpxx::Error{ddpxx::Errc::storage, "there is no snapshot" +
                                                  (step >= 0 ? " of step " + std::to_string(step) : "") + " at " +
                                                  storage_->full_name("")};
  }
  static std::string ranks_text(int count) { return std::to_string(count) + (count == 1 ? " rank" : " ranks"); }
  static std::string date_text(std::int64_t seconds_since_1970) {
    if (seconds_since_1970 <= 0) return "-";
    const std::time_t time = seconds_since_1970;
    std::tm parts{};
    std::array<char, 64> text{};
    if (::gmtime_r(&time, &parts) == nullptr) return "at no date";
    return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts)};
  }
  /// The damage of a snapshot, checked in all of its files; empty if every byte is as it was written.
  static std::string damage_of(ddpxx::Storage& storage, const ddpxx::Manifest& manifest) {
    return ddpxx::ShardReader{storage, ddpxx::Snapshots::folder_of(manifest.run.step), manifest}.verify().value_or("");
  }

  std::ptrdiff_t published() const {
    const auto all = snapshots_.list();
    return std::count_if(all.begin(), all.end(), [](const auto& stored) { return stored.committed; });
  }

  /// The snapshot of a step, or the newest one, in which `find_damage` finds nothing.
  template <class FindDamage>
  static ddpxx::Manifest chosen(ddpxx::Storage& storage, std::int64_t step, FindDamage&& find_damage) {
    const ddpxx::Snapshots snapshots{storage};
    std::string damages;
    auto all = snapshots.list();
    int listings = 1;
    for (auto stored = all.begin(); stored != all.end();) {
      if (!stored->committed || (step >= 0 && stored->step != step)) {
        ++stored;
        continue;
      }
      const auto is_removed = [&] {
        return listings < ddpxx::Snapshots::kMaxListings && !snapshots.is_there(stored->step);
      };
      try {
        auto snapshot = snapshots.read(*stored);
        if (snapshot.manifest) snapshot.damage = find_damage(*snapshot.manifest);
        if (snapshot.damage.empty()) return std::move(*snapshot.manifest);
        if (!is_removed()) {
          if (step < 0) ddpxx::Log{0}.info("ddpxx: " + snapshot.damage + "; trying the snapshot before it");
          damages += "\n  " + snapshot.damage;
          ++stored;
          continue;
        }
      } catch (const ddpxx::Error&) {
        if (!is_removed()) throw;
      }
      ++listings;
      all = snapshots.list();  // there is a newer one now, for which this one was removed
      stored = all.begin();
      damages.clear();
    }
    throw ddpxx::Error{ddpxx::Errc::storage, "there is no usable snapshot" +
                                                 (step >= 0 ? " of step " + std::to_string(step) : "") + " at " +
                                                 storage.full_name("") + damages};
  }

  ddpxx::Snapshot read_snapshot(const ConvertArguments& arguments) const {
    const ddpxx::TensorFilter wanted = [all = arguments.wants_all()](std::string_view name) {
      return all || name.starts_with(python_checkpoint::kModel);
    };
    ddpxx::Snapshot snapshot;
    chosen(*storage_, arguments.step, [&](const ddpxx::Manifest& manifest) {
      auto read = ddpxx::try_read_snapshot(*storage_, manifest, wanted);
      if (auto* damage = std::get_if<std::string>(&read)) return *damage;
      snapshot = std::get<ddpxx::Snapshot>(std::move(read));
      return std::string{};
    });
    if (!arguments.wants_all())
      snapshot.run.optimizer.clear();  // a run that begins with it does not look for its state
    return snapshot;
  }

  ddpxx::Snapshot read_huggingface(const ConvertArguments& arguments) const {
    auto snapshot = huggingface_folder::read(place_);
    snapshot.run.step = std::max<std::int64_t>(arguments.step, 0);
    return snapshot;
  }

  /// A safetensors file of any program as a snapshot.
  static ddpxx::Snapshot read_safetensors(const TensorFile& file, const ConvertArguments& arguments) {
    auto snapshot = python_checkpoint::to_snapshot(file.read_safetensors());
    const auto steps = python_checkpoint::steps_in(snapshot.tensors);
    snapshot.run.step = steps.value_or(std::max<std::int64_t>(arguments.step, 0));
    if (!arguments.wants_all())
      std::erase_if(snapshot.tensors,
                    [](const auto& item) { return !item.first.starts_with(python_checkpoint::kModel); });
    else if (!steps)
      python_checkpoint::begin_optimizer_anew(snapshot, print);
    return snapshot;
  }

  /// A file of a Python program as a snapshot.
  ddpxx::Snapshot read_checkpoint(const TensorFile& file, const ConvertArguments& arguments) const {
    if (file.kind == TensorFile::Kind::safetensors) return read_safetensors(file, arguments);
    const auto value = file.read_pt();
    try {
      const auto checkpoint = ddpxx::from_python(value);
      auto snapshot = python_checkpoint::to_snapshot(checkpoint);
      if (arguments.wants_all())
        python_checkpoint::add_optimizer(snapshot, checkpoint, place_, arguments.step, print);
      else if (!checkpoint.step)
        snapshot.run.step = std::max<std::int64_t>(arguments.step, 0);
      return snapshot;
    } catch (const ddpxx::Error& error) {
      throw ddpxx::Error{error.code(), place_ + ": " + error.what()};
    }
  }

  static ddpxx::PickleValue to_python(const ddpxx::Snapshot& snapshot, const ConvertArguments& arguments) {
    static const std::map<std::string, ddpxx::CheckpointLayout> kLayouts{
        {"mingpt_ddp", ddpxx::CheckpointLayout::mingpt_ddp},
        {"torchrun_tutorial", ddpxx::CheckpointLayout::torchrun_tutorial},
        {"guide", ddpxx::CheckpointLayout::guide},
        {"state_dict", ddpxx::CheckpointLayout::state_dict}};
    const auto checkpoint = python_checkpoint::from_snapshot(snapshot, kLayouts.at(arguments.layout), print);
    if (checkpoint.optimizer.is_none() && arguments.wants_all())
      print(
          arguments.layout == "mingpt_ddp" || arguments.layout == "guide"
              ? "written without an optimizer's state: the snapshot has none of AdamW, Adam or SGD, or does not say in "
                "which order the parameters come"
              : "written without an optimizer's state: layout=" + arguments.layout +
                    " has no place for it, mingpt_ddp and guide have");
    return ddpxx::to_python(checkpoint);
  }

  std::string place_;
  std::unique_ptr<ddpxx::Storage> storage_;
  ddpxx::Snapshots snapshots_;
};

/// Runs a command; `argv` holds the command, the place, and then settings.
inline void snapshot_command(const std::string& command, const std::string& place, int argc, char** argv) {
  const auto run = [&]<class Arguments>(void (SnapshotCommands::*work)(const Arguments&) const) {
    const auto arguments =
        ddpxx::parse_config<Arguments>(argc - 1, argv + 1, {.program = "ddpxx snapshot " + command + " PLACE"});
    (SnapshotCommands{place}.*work)(arguments);
  };
  if (command == "list") return run(&SnapshotCommands::list);
  if (command == "show") return run(&SnapshotCommands::show);
  if (command == "verify") return run(&SnapshotCommands::verify);
  if (command == "diff") return run(&SnapshotCommands::diff);
  if (command == "convert") return run(&SnapshotCommands::convert);
  if (command == "prune") return run(&SnapshotCommands::prune);
  const std::vector<std::string> known{"list", "show", "verify", "diff", "convert", "prune"};
  const auto meant = ddpxx::nearest(command, known);
  throw ddpxx::Error{ddpxx::Errc::config, "ddpxx snapshot has no command \"" + command + "\"" +
                                              (meant ? " (did you mean " + *meant + "?)" : "") + ": see --help"};
}
