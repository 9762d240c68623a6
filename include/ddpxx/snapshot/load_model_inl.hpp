// ddpxx/snapshot/load_model_inl.hpp — the definitions of load_model.hpp.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>
#include <torch/nn/module.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/snapshot/load_model.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/snapshot_in_memory.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

DDPXX_INLINE std::optional<std::string> try_load_model(torch::nn::Module& model, Storage& storage,
                                                       const Manifest& manifest) {
  constexpr std::string_view kModel = "model.", kAverage = "optimizer.ema.";
  const auto& stored = manifest.tensors;
  std::map<std::string, at::Tensor> targets;
  std::set<const void*> tensors_seen;
  std::set<std::string> other_names;  // of tensors with several names: a trainer saves each under its first name
  for (const auto& item : model.named_parameters())
    if (tensors_seen.insert(item.value().unsafeGetTensorImpl()).second)
      targets.emplace(item.key(), item.value());
    else
      other_names.insert(item.key());
  for (const auto& item : model.named_buffers()) targets.emplace(item.key(), item.value());
  std::string differences;
  for (const auto& [name, target] : targets) {
    const auto found = stored.find(std::string{kModel} + name);
    if (found == stored.end())
      differences += "\n  " + name + ": missing in the snapshot";
    else if (target.sizes() != found->second.shape)
      differences += "\n  " + name + ": " + c10::str(at::IntArrayRef{found->second.shape}) + " in the snapshot, " +
                     c10::str(target.sizes()) + " in the model";
  }
  for (const auto& [full_name, tensor] : stored) {
    if (!full_name.starts_with(kModel)) continue;
    const auto name = full_name.substr(kModel.size());
    if (!targets.contains(name) && !other_names.contains(name)) differences += "\n  " + name + ": only in the snapshot";
  }
  if (!differences.empty())
    throw Error{Errc::storage,
                "the snapshot is of another model:" + differences + "\nchoose the configuration it was saved with"};
  std::map<std::string, at::Tensor*> wanted;  // a parameter that has an average takes that, and nothing else is read
  for (auto& [name, target] : targets) {
    auto average = std::string{kAverage} + name;
    wanted.emplace(stored.contains(average) ? std::move(average) : std::string{kModel} + name, &target);
  }
  auto read =
      try_read_snapshot(storage, manifest, [&](std::string_view name) { return wanted.contains(std::string{name}); });
  if (auto* damage = std::get_if<std::string>(&read)) return std::move(*damage);
  const auto& tensors = std::get<Snapshot>(read).tensors;
  const c10::NoGradGuard no_grad;
  for (const auto& [name, target] : wanted) target->copy_(tensors.at(name));
  return std::nullopt;
}

DDPXX_INLINE void load_model(torch::nn::Module& model, Storage& storage, const Manifest& manifest) {
  if (const auto damage = try_load_model(model, storage, manifest)) throw Error{Errc::storage, *damage};
}

}  // namespace ddpxx
