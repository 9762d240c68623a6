// ddpxx/snapshot/load_model_inl.hpp — the definitions of load_model.hpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/flat/model_tensors.hpp>
#include <ddpxx/flat/named_tensors.hpp>
#include <ddpxx/snapshot/load_model.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/snapshot_in_memory.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

DDPXX_INLINE std::optional<std::string> try_load_model(torch::nn::Module& model, Storage& storage,
                                                       const Manifest& manifest) {
  constexpr std::string_view kModel = "model.", kAverage = "optimizer.ema.";
  const auto& stored = manifest.tensors;
  const ModelTensors own{model};
  TensorShapes shapes;
  for (const auto& [full_name, tensor] : stored) {
    if (!full_name.starts_with(kModel)) continue;
    auto name = full_name.substr(kModel.size());
    if (!own.further_names.contains(name)) shapes.emplace(std::move(name), tensor.shape);
  }
  if (const auto differences = shape_differences(shapes, shapes_of(own.tensors), "the snapshot"); !differences.empty())
    throw Error{Errc::storage,
                "the snapshot is of another model:" + differences + "\nchoose the configuration it was saved with"};
  NamedTensors wanted;  // a parameter that has an average takes that, and nothing else is read
  for (const auto& [name, target] : own.tensors) {
    auto average = std::string{kAverage} + name;
    wanted.emplace(stored.contains(average) ? std::move(average) : std::string{kModel} + name, target);
  }
  auto read =
      try_read_snapshot(storage, manifest, [&](std::string_view name) { return wanted.contains(std::string{name}); });
  if (auto* damage = std::get_if<std::string>(&read)) return std::move(*damage);
  const auto& tensors = std::get<Snapshot>(read).tensors;
  const c10::NoGradGuard no_grad;
  for (const auto& [name, target] : wanted) target.copy_(tensors.at(name));
  return std::nullopt;
}

DDPXX_INLINE void load_model(torch::nn::Module& model, Storage& storage, const Manifest& manifest) {
  if (const auto damage = try_load_model(model, storage, manifest)) throw Error{Errc::storage, *damage};
}

}  // namespace ddpxx
