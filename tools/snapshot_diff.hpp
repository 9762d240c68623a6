// snapshot_diff.hpp — prints the differences of two snapshots, a line for each.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <ddpxx/config/number_text.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/snapshot.hpp>
#include <ddpxx/storage/storage.hpp>

#include "tensor_text.hpp"

/// Compares two snapshots, with only some of their tensors in memory at a time.
template <class Tell>
class SnapshotDiff {
 public:
  struct Side {
    ddpxx::Storage* storage;
    const ddpxx::Manifest* manifest;
  };

  /// `tell` is called with a line for each difference.
  SnapshotDiff(Side ours, Side theirs, Tell tell) : ours_{ours}, theirs_{theirs}, tell_{std::move(tell)} {}

  void run() {
    const auto &ours = *ours_.manifest, &theirs = *theirs_.manifest;
    compare("step", ours.run.step, theirs.run.step);
    compare("epoch", ours.run.epoch, theirs.run.epoch);
    compare("position", ours.run.position, theirs.run.position);
    compare("tokens", ours.run.tokens, theirs.run.tokens);
    if (ours.run.optimizer != theirs.run.optimizer)
      tell_("optimizer: " + ours.run.optimizer + ", " + theirs.run.optimizer);
    compare_metrics();
    compare_parameters();
    compare_settings();
    std::uint64_t bytes = 0;
    for (const auto& [name, tensor] : ours.tensors) {
      const auto found = theirs.tensors.find(name);
      if (found == theirs.tensors.end()) {
        tell_(name + ": only in the first");
      } else if (found->second.shape != tensor.shape || found->second.dtype != tensor.dtype) {
        tell_(name + ": " + tensor_text(tensor) + ", " + tensor_text(found->second));
      } else {
        names_.insert(name);
        bytes += static_cast<std::uint64_t>(tensor.numel()) * at::elementSize(tensor.dtype);
      }
      if (bytes < kBytesAtOnce) continue;
      compare_values();
      bytes = 0;
    }
    compare_values();
    for (const auto& [name, tensor] : theirs.tensors)
      if (!ours.tensors.contains(name)) tell_(name + ": only in the second");
  }

 private:
  static constexpr std::uint64_t kBytesAtOnce = std::uint64_t{1} << 26;

  void compare(const std::string& name, std::int64_t ours, std::int64_t theirs) {
    if (ours != theirs) tell_(name + ": " + std::to_string(ours) + ", " + std::to_string(theirs));
  }

  void compare_metrics() {
    std::map<std::string, std::array<std::optional<double>, 2>> values;
    for (const auto& [name, value] : ours_.manifest->run.metrics) values[name][0] = value;
    for (const auto& [name, value] : theirs_.manifest->run.metrics) values[name][1] = value;
    const auto text = [](const std::optional<double>& value) { return value ? ddpxx::real_text(*value) : "none"; };
    for (const auto& [name, both] : values)
      if (both[0] != both[1]) tell_("val_" + name + ": " + text(both[0]) + ", " + text(both[1]));
  }

  void compare_parameters() {
    const auto &ours = ours_.manifest->run.parameters, &theirs = theirs_.manifest->run.parameters;
    const auto is_same = [](const auto& a, const auto& b) { return a.name == b.name && a.decays == b.decays; };
    if (!std::ranges::equal(ours, theirs, is_same))
      tell_("parameters: their order, or which of them decay, is not the same");
  }

  static bool has_same_bytes(const at::Tensor& a, const at::Tensor& b) {
    return a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
  }

  /// Leaves out from where and to where the runs went: two places of snapshots have different names in any case.
  void compare_settings() {
    constexpr std::array<std::string_view, 7> kPlaces{"snapshot.name", "training.save_dir",    "training.metrics",
                                                      "training.csv",  "training.tensorboard", "training.profile",
                                                      "run_folder"};
    std::map<std::string, std::array<std::string, 2>> values;
    for (const auto& setting : ours_.manifest->run.settings) values[setting.path][0] = setting.value;
    for (const auto& setting : theirs_.manifest->run.settings) values[setting.path][1] = setting.value;
    for (const auto& [path, both] : values)
      if (both[0] != both[1] && std::ranges::find(kPlaces, path) == kPlaces.end())
        tell_(path + ": " + both[0] + ", " + both[1]);
  }

  /// Compares the values of the tensors that are batched.
  void compare_values() {
    const auto read = [this](const Side& side) {
      return ddpxx::read_snapshot(*side.storage, *side.manifest,
                                  [this](std::string_view name) { return names_.contains(name); })
          .tensors;
    };
    const auto exact = [](const at::Tensor& tensor) {
      return tensor.to(tensor.is_complex() ? at::kComplexDouble : at::kDouble);
    };
    const auto ours = read(ours_), theirs = read(theirs_);
    for (const auto& [name, tensor] : ours)
      if (const auto& other = theirs.at(name); !has_same_bytes(other, tensor))
        tell_(name + ": largest difference " +
              ddpxx::real_text((exact(other) - exact(tensor)).abs().max().template item<double>()));
    names_.clear();
  }

  Side ours_, theirs_;
  Tell tell_;
  std::set<std::string, std::less<>> names_;
};
