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
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/config/number_text.hpp>
#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/host_name.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/suggest.hpp>
#include <ddpxx/core/units.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/ranking.hpp>
#include <ddpxx/snapshot/snapshot_choice.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/snapshot/stored_snapshot.hpp>
#include <ddpxx/storage/open_storage.hpp>
#include <ddpxx/storage/storage.hpp>

#include "argument_numbers.hpp"
#include "snapshot_conversion.hpp"
#include "snapshot_diff.hpp"
#include "tensor_text.hpp"
#include "usable_snapshot.hpp"

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

struct PruneArguments {
  std::optional<std::int64_t> keep_last = {};
  std::int64_t keep_best = 0;
  std::int64_t keep_every = 0;
  std::int64_t keep_every_epochs = 0;
  double keep_every_time = 0.0;

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(
        field<&PruneArguments::keep_last>("Number of newest snapshots to keep", at_least(1)),
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
        line << uncommitted_text(stored);
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
    const auto manifest =
        usable_snapshot(*storage_, arguments.step, [](const ddpxx::Manifest&) { return std::string{}; });
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
        if (arguments.step >= 0 && stored.step != arguments.step) continue;
        if (!stored.committed) {
          if (listings == 0) print(std::to_string(stored.step) + "  " + uncommitted_text(stored));
          continue;
        }
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
    const auto lines = differences(arguments, *other);
    for (const auto& line : lines) print(line);
    if (!lines.empty()) throw std::runtime_error{"the snapshots differ"};
  }

  void convert(const ConvertArguments& arguments) const {
    if (arguments.to.empty()) throw needs("to=FILE or to=PLACE");
    SnapshotConversion{place_, *storage_, arguments, print}.run();
  }

  void prune(const PruneArguments& arguments) const {
    if (!arguments.keep_last) throw needs("keep_last=N, at least 1");
    if (snapshots_.list().empty()) throw none_there();
    storage_->claim("ddpxx snapshot prune on " + ddpxx::host_name());
    const auto before = published();
    const auto newest =
        arguments.keep_best > 0 ? ddpxx::choose_snapshot(*storage_, {}).run.settings : ddpxx::Settings{};
    const auto ranking = ddpxx::recorded_ranking(newest);
    snapshots_.prune({.last = *arguments.keep_last,
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

  /// Compares a snapshot here with one of `other`; returns a line for each difference. Chooses again where a run has
  /// removed one of the two meanwhile.
  std::vector<std::string> differences(const DiffArguments& arguments, ddpxx::Storage& other) const {
    const auto pick = [](ddpxx::Storage& storage, std::int64_t step) {
      return usable_snapshot(storage, step,
                             [&](const ddpxx::Manifest& manifest) { return damage_of(storage, manifest); });
    };
    for (int choices = 1;; ++choices) {
      const auto ours = pick(*storage_, arguments.step), theirs = pick(other, arguments.other_step);
      std::vector<std::string> lines;
      try {
        SnapshotDiff{
            {storage_.get(), &ours}, {&other, &theirs}, [&](const std::string& line) { lines.push_back(line); }}
            .run();
        return lines;
      } catch (const ddpxx::Error&) {
        const bool are_there = snapshots_.is_there(ours.run.step) && ddpxx::Snapshots{other}.is_there(theirs.run.step);
        if (are_there || choices == ddpxx::Snapshots::kMaxListings) throw;
      }
    }
  }

  static void print(const std::string& line) { std::cout << ddpxx::harmless(line) << '\n'; }
  static ddpxx::Error needs(const std::string& what) {
    return ddpxx::Error{ddpxx::Errc::config, "this command needs " + what + ": see ddpxx snapshot --help"};
  }
  /// `step`: the one that was looked for; -1 for any.
  ddpxx::Error none_there(std::int64_t step = -1) const {
    return ddpxx::Error{ddpxx::Errc::storage, "there is no snapshot" +
                                                  (step >= 0 ? " of step " + std::to_string(step) : "") + " at " +
                                                  storage_->full_name("") + hint_of_place(*storage_)};
  }
  /// What a step without a manifest is.
  static std::string uncommitted_text(const ddpxx::StoredSnapshot& stored) {
    return stored.set_aside ? "damaged, set aside (manifest.rejected.json)"
                            : "begun and not finished, or its manifest.json was lost";
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
  std::ptrdiff_t published() const {
    const auto all = snapshots_.list();
    return std::count_if(all.begin(), all.end(), [](const auto& stored) { return stored.committed; });
  }

  std::string place_;
  std::unique_ptr<ddpxx::Storage> storage_;
  ddpxx::Snapshots snapshots_;
};

/// Errors  `config` where a second place or file stands behind the place without its key. A config file may stand there.
inline void check_second_place(const std::string& word, const std::string& key) {
  const auto ending = std::filesystem::path{word}.extension();
  const bool is_file = ending == ".yaml" || ending == ".yml" || ending == ".json";
  if (!word.empty() && !word.starts_with('-') && word.find('=') == std::string::npos && !is_file)
    throw ddpxx::Error{ddpxx::Errc::config,
                       "argument 4: " + ddpxx::shown(word) + ": write " + key + '=' + ddpxx::harmless(word)};
}

/// Runs a command; `argv` holds the command, the place, and then settings.
inline void snapshot_command(const std::string& command, const std::string& place, int argc, char** argv) {
  if (argc > 2 && command == "diff") check_second_place(argv[2], "other");
  if (argc > 2 && command == "convert") check_second_place(argv[2], "to");
  const auto run = [&]<class Arguments>(void (SnapshotCommands::*work)(const Arguments&) const) {
    const auto arguments = ddpxx::parse_config<Arguments>(
        argc - 1, argv + 1,
        {.program = "ddpxx snapshot " + command + " PLACE", .argument_numbers = argument_numbers(4, argc - 1)});
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
