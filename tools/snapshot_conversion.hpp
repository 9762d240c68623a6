// snapshot_conversion.hpp — `ddpxx snapshot convert`: snapshots as files of other programs, and such files as
// snapshots.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/host_name.hpp>
#include <ddpxx/interop/pickle_value.hpp>
#include <ddpxx/interop/state_dicts.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/snapshot.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/storage/open_storage.hpp>
#include <ddpxx/storage/storage.hpp>

#include "huggingface_folder.hpp"
#include "python_checkpoint.hpp"
#include "tensor_file.hpp"
#include "usable_snapshot.hpp"

/// The settings of `convert`.
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
                      choices("mingpt_ddp", "torchrun_tutorial", "guide", "torchvision", "state_dict", "huggingface")));
  }
};

/// Converts a snapshot, or a file or folder of another program.
class SnapshotConversion {
 public:
  /// `storage` is what `place` names. `tell` is called with each line for the user.
  SnapshotConversion(std::string place, ddpxx::Storage& storage, ConvertArguments arguments,
                     std::function<void(const std::string&)> tell)
      : place_{std::move(place)},
        storage_{&storage},
        arguments_{std::move(arguments)},
        target_{TensorFile::writable(arguments_.to)},
        tell_{std::move(tell)} {}

  /// Errors  `config` if the target has no such layout; `storage` if nothing usable is at the place.
  void run() const {
    check_layout();
    const auto source = TensorFile::readable(place_);
    const auto snapshot = source                               ? read_checkpoint(*source)
                          : huggingface_folder::is_one(place_) ? read_huggingface()
                                                               : read_snapshot();
    const auto written = write(snapshot);
    tell_("step " + std::to_string(snapshot.run.step) + ": " + std::to_string(written) + " tensors to " +
          arguments_.to);
  }

 private:
  bool to_huggingface() const { return arguments_.layout == "huggingface"; }
  bool to_pt() const { return target_ && target_->kind == TensorFile::Kind::pt; }

  void check_layout() const {
    if (to_huggingface() && (target_ || arguments_.to.find("://") != std::string::npos))
      throw ddpxx::Error{ddpxx::Errc::config, "layout=huggingface writes a folder, and to=" + arguments_.to +
                                                  " is none: name a folder on a disk"};
    if (!to_huggingface() && !to_pt() && arguments_.layout != ConvertArguments{}.layout)
      throw ddpxx::Error{ddpxx::Errc::config, "layout=" + arguments_.layout + " is one of a .pt file, and to=" +
                                                  arguments_.to + " is none: name a .pt file or leave layout out"};
  }

  /// Returns the number of tensors that were written: of the model, with the buffers that Python expects beside them,
  /// and of the optimizer's state where the target has it.
  std::size_t write(const ddpxx::Snapshot& snapshot) const {
    const auto count = [&](const auto& is_wanted) {
      return static_cast<std::size_t>(
          std::ranges::count_if(snapshot.tensors, [&](const auto& item) { return is_wanted(item.first); }));
    };
    const auto is_of_model = [](std::string_view name) { return name.starts_with(python_checkpoint::kModel); };
    if (to_huggingface()) {
      if (python_checkpoint::has_average(snapshot.tensors)) tell_(std::string{python_checkpoint::kWithoutAverage});
      huggingface_folder::write(arguments_.to, snapshot);
      return count(is_of_model);
    }
    if (to_pt()) {
      const auto checkpoint = checkpoint_of(snapshot);
      target_->write(ddpxx::to_python(checkpoint));
      const auto is_of_optimizer = [&](std::string_view name) {
        return !checkpoint.optimizer.is_none() && name.starts_with("optimizer.") &&
               !name.starts_with(python_checkpoint::kAverage);
      };
      return checkpoint.model.size() + count(is_of_optimizer);
    }
    if (target_)
      target_->write(snapshot.tensors);
    else
      save_at_place(snapshot);
    return snapshot.tensors.size();
  }

  /// Keeps a run that saves to the same folder away: it would remove the snapshot as one of its own that it need not
  /// keep. A bucket has no lock.
  void save_at_place(const ddpxx::Snapshot& snapshot) const {
    const auto target = ddpxx::open_storage(arguments_.to);
    if (arguments_.to.find("://") == std::string::npos) {
      target->prepare();
      target->claim("ddpxx snapshot convert on " + ddpxx::host_name());
    }
    ddpxx::save_snapshot(*target, snapshot);
  }

  ddpxx::Snapshot read_snapshot() const {
    const ddpxx::TensorFilter wanted = [all = arguments_.wants_all()](std::string_view name) {
      return all || name.starts_with(python_checkpoint::kModel);
    };
    ddpxx::Snapshot snapshot;
    const auto chosen = usable_snapshot(*storage_, arguments_.step, [&](const ddpxx::Manifest& manifest) {
      auto read = ddpxx::try_read_snapshot(*storage_, manifest, wanted);
      if (auto* damage = std::get_if<std::string>(&read)) return *damage;
      snapshot = std::get<ddpxx::Snapshot>(std::move(read));
      return std::string{};
    });
    if (arguments_.wants_all()) return snapshot;
    if (python_checkpoint::has_average(chosen.tensors)) tell_(std::string{python_checkpoint::kWithoutAverage});
    snapshot.run.optimizer.clear();  // a run that begins with it does not look for its state
    return snapshot;
  }

  ddpxx::Snapshot read_huggingface() const {
    auto snapshot = huggingface_folder::read(place_);
    snapshot.run.step = std::max<std::int64_t>(arguments_.step, 0);
    return snapshot;
  }

  /// A safetensors file of any program as a snapshot.
  ddpxx::Snapshot read_safetensors(const TensorFile& file) const {
    auto snapshot = python_checkpoint::to_snapshot(file.read_safetensors());
    const auto steps = python_checkpoint::steps_in(snapshot.tensors);
    snapshot.run.step = steps.value_or(std::max<std::int64_t>(arguments_.step, 0));
    if (!arguments_.wants_all())
      std::erase_if(snapshot.tensors,
                    [](const auto& item) { return !item.first.starts_with(python_checkpoint::kModel); });
    else if (!steps)
      python_checkpoint::begin_optimizer_anew(snapshot, tell_);
    return snapshot;
  }

  /// A file of a Python program as a snapshot.
  ddpxx::Snapshot read_checkpoint(const TensorFile& file) const {
    if (file.kind == TensorFile::Kind::safetensors) return read_safetensors(file);
    const auto value = file.read_pt();
    try {
      const auto checkpoint = ddpxx::from_python(value);
      auto snapshot = python_checkpoint::to_snapshot(checkpoint);
      if (arguments_.wants_all())
        python_checkpoint::add_optimizer(snapshot, checkpoint, place_, arguments_.step, tell_);
      else if (!checkpoint.step)
        snapshot.run.step = std::max<std::int64_t>(arguments_.step, 0);
      python_checkpoint::add_network(snapshot, checkpoint, place_, tell_);
      return snapshot;
    } catch (const ddpxx::Error& error) {
      throw ddpxx::Error{error.code(), place_ + ": " + error.what()};
    }
  }

  ddpxx::TrainingCheckpoint checkpoint_of(const ddpxx::Snapshot& snapshot) const {
    static const std::map<std::string, ddpxx::CheckpointLayout> kLayouts{
        {"mingpt_ddp", ddpxx::CheckpointLayout::mingpt_ddp},
        {"torchrun_tutorial", ddpxx::CheckpointLayout::torchrun_tutorial},
        {"guide", ddpxx::CheckpointLayout::guide},
        {"torchvision", ddpxx::CheckpointLayout::torchvision},
        {"state_dict", ddpxx::CheckpointLayout::state_dict}};
    auto checkpoint = python_checkpoint::from_snapshot(snapshot, kLayouts.at(arguments_.layout), tell_);
    if (checkpoint.optimizer.is_none() && arguments_.wants_all())
      tell_(
          ddpxx::has_optimizer(checkpoint.layout)
              ? "written without an optimizer's state: the snapshot has none of AdamW, Adam or SGD, or does not say in "
                "which order the parameters come"
              : "written without an optimizer's state: layout=" + arguments_.layout +
                    " has no place for it; mingpt_ddp, guide and torchvision have");
    return checkpoint;
  }

  std::string place_;
  ddpxx::Storage* storage_;
  ConvertArguments arguments_;
  std::optional<TensorFile> target_;  ///< The file to write; none for a place of snapshots or a folder.
  std::function<void(const std::string&)> tell_;
};
