// ddpxx/interop/state_dicts_inl.hpp — the definitions of state_dicts.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/flat/named_tensors.hpp>
#include <ddpxx/interop/pickle_value.hpp>
#include <ddpxx/interop/state_dicts.hpp>
#include <ddpxx/snapshot/quotes.hpp>

namespace ddpxx {

namespace detail {

struct CheckpointKeys {
  CheckpointLayout layout;
  const char* model;
  const char* optimizer;  ///< Null if the layout has no optimizer.
  const char* epoch;      ///< Null if the layout has no epoch.
  const char* step;       ///< Null if the layout has no step; otherwise the layout needs this key.
  int epochs_behind = 0;  ///< How much the saved epoch is behind the one with which a resumed run begins.
};
inline constexpr CheckpointKeys kCheckpointKeys[] = {
    {CheckpointLayout::torchrun_tutorial, "MODEL_STATE", nullptr, "EPOCHS_RUN", nullptr},
    {CheckpointLayout::mingpt_ddp, "model_state", "optimizer_state", "finished_epoch", nullptr},
    {CheckpointLayout::guide, "model_state_dict", "optimizer_state_dict", "epoch", nullptr},
    {CheckpointLayout::nanogpt, "model", "optimizer", nullptr, "iter_num"},
    {CheckpointLayout::lightning, "state_dict", "optimizer_states", "epoch", "global_step"},
    {CheckpointLayout::torchvision, "model", "optimizer", "epoch", nullptr, 1}};

/// Reads a checkpoint's model, without its optimizer.
inline TrainingCheckpoint model_from_python(CheckpointLayout layout, const PickleDict& dict) {
  TrainingCheckpoint checkpoint;
  checkpoint.layout = layout;
  auto& names = checkpoint.names;
  std::vector<at::Tensor> tensors;
  for (const auto& [key, value] : dict.entries) {
    names.push_back(key.get<std::string>("a key of the model's state"));
    tensors.push_back(value.get<at::Tensor>(in_quotes(names.back())));
  }
  std::vector<std::string_view> fronts{"module.", "_orig_mod.", "module."};
  if (layout == CheckpointLayout::lightning) fronts = {"model.", "_orig_mod.", "module."};
  for (const auto front : fronts)
    if (std::ranges::all_of(names, [front](const auto& name) { return name.starts_with(front); }))
      for (auto& name : names) name.erase(0, front.size());
  for (std::size_t i = 0; i < names.size(); ++i) checkpoint.model.emplace(names[i], tensors[i]);
  return checkpoint;
}

/// Returns the only entry of Lightning's list of optimizers, or the list where it has several.
inline PickleValue only_optimizer(const PickleValue& value) {
  const auto* list = value.get_if<PickleList>();
  if (list == nullptr || list->size() > 1) return value;
  return list->empty() ? PickleValue{} : list->front();
}

/// The number of epochs that Lightning has processed; none if the checkpoint does not say it. At the end of an epoch
/// its callbacks save the checkpoint after this number is raised, and before the number under the key `epoch` is.
inline std::optional<std::int64_t> epochs_processed(const PickleDict& checkpoint) {
  const auto* dict = &checkpoint;
  for (const char* key : {"loops", "fit_loop", "epoch_progress", "current"}) {
    const auto* value = dict->find(key);
    dict = value != nullptr ? value->get_if<PickleDict>() : nullptr;
    if (dict == nullptr) return std::nullopt;
  }
  const auto* number = dict->find("processed");
  const auto* count = number != nullptr ? number->get_if<std::int64_t>() : nullptr;
  return count != nullptr ? std::optional{*count} : std::nullopt;
}

/// Reads nanoGPT's `model_args`. Returns none for those of another network, such as llama2.c's, which has other keys.
inline std::optional<NanoGPTArguments> nanogpt_arguments(const PickleValue& value) {
  const auto* dict = value.get_if<PickleDict>();
  if (dict == nullptr) return std::nullopt;
  NanoGPTArguments arguments;
  for (const auto& [key, size] :
       {std::pair{"n_layer", &arguments.n_layer}, std::pair{"n_head", &arguments.n_head},
        std::pair{"n_embd", &arguments.n_embd}, std::pair{"block_size", &arguments.block_size},
        std::pair{"vocab_size", &arguments.vocab_size}}) {
    const auto* found = dict->find(key);
    const auto* number = found != nullptr ? found->get_if<std::int64_t>() : nullptr;
    if (number == nullptr) return std::nullopt;
    *size = *number;
  }
  if (const auto* bias = dict->find("bias")) arguments.bias = bias->get<bool>("bias of model_args");
  if (const auto* dropout = dict->find("dropout")) {
    const auto* count = dropout->get_if<std::int64_t>();  // `--dropout=0` is an integer
    arguments.dropout = count != nullptr ? static_cast<double>(*count) : dropout->get<double>("dropout of model_args");
  }
  return arguments;
}

/// Reads a step: a tensor of one number, or an integer before PyTorch 1.12.
inline double step_count(const PickleValue& value) {
  if (const auto* number = value.get_if<std::int64_t>()) return static_cast<double>(*number);
  const auto& tensor = value.get<at::Tensor>("step");
  if (tensor.numel() != 1)
    throw Error{Errc::storage,
                "the optimizer's step is a tensor of " + std::to_string(tensor.numel()) +
                    " elements, and should have one: the file is damaged, or PyTorch's optimizers did not write it"};
  return tensor.item<double>();
}

inline constexpr std::string_view kOptimizerFront = "optimizer.";
inline constexpr std::string_view kStepName = "optimizer.step";
inline constexpr std::string_view kAverageName = "ema";

}  // namespace detail

DDPXX_INLINE PickleDict to_python(const AdamWSettings& settings) {
  PickleDict dict;
  dict.add("lr", settings.learning_rate)
      .add("betas", PickleTuple{{settings.beta1, settings.beta2}})
      .add("eps", settings.epsilon)
      .add("weight_decay", settings.weight_decay)
      .add("amsgrad", settings.amsgrad)
      .add("maximize", false)
      .add("foreach", {})
      .add("capturable", false)
      .add("differentiable", false);
  return dict.add("fused", {}).add("decoupled_weight_decay", settings.optimizer == PythonAdam::adamw);
}

DDPXX_INLINE PickleDict to_python(const SGDSettings& settings) {
  PickleDict dict;
  dict.add("lr", settings.learning_rate)
      .add("momentum", settings.momentum)
      .add("dampening", settings.dampening)
      .add("weight_decay", settings.weight_decay)
      .add("nesterov", settings.nesterov)
      .add("maximize", false);
  return dict.add("foreach", {}).add("differentiable", false).add("fused", {});
}

DDPXX_INLINE bool has_optimizer(CheckpointLayout layout) {
  return std::ranges::any_of(detail::kCheckpointKeys, [layout](const detail::CheckpointKeys& keys) {
    return keys.layout == layout && keys.optimizer != nullptr;
  });
}

DDPXX_INLINE PickleValue to_python(const TrainingCheckpoint& checkpoint) {
  PickleDict model;
  auto left = checkpoint.model;
  for (const auto& name : checkpoint.names)
    if (const auto node = left.extract(name)) model.add(node.key(), node.mapped());
  for (const auto& [name, tensor] : left) model.add(name, tensor);
  for (const auto& keys : detail::kCheckpointKeys)
    if (keys.layout == checkpoint.layout) {
      if (keys.step != nullptr)
        throw Error{Errc::config,
                    "checkpoints of nanoGPT and Lightning are read and not written: choose mingpt_ddp, "
                    "torchrun_tutorial, guide, torchvision or state_dict"};
      PickleDict dict;
      dict.add(keys.model, std::move(model));
      if (keys.optimizer != nullptr) dict.add(keys.optimizer, checkpoint.optimizer);
      return dict.add(keys.epoch, checkpoint.epoch - keys.epochs_behind);
    }
  return model;
}

DDPXX_INLINE TrainingCheckpoint from_python(const PickleValue& value) {
  const auto& dict = value.get<PickleDict>("the checkpoint");
  for (const auto& keys : detail::kCheckpointKeys) {
    const auto* model = dict.find(keys.model);
    const bool is_parameter = model != nullptr && model->get_if<at::Tensor>() != nullptr;
    if (model != nullptr && !is_parameter && (keys.step == nullptr || dict.find(keys.step))) {
      auto checkpoint = detail::model_from_python(keys.layout, model->get<PickleDict>(keys.model));
      if (const auto* optimizer = keys.optimizer != nullptr ? dict.find(keys.optimizer) : nullptr)
        checkpoint.optimizer = detail::only_optimizer(*optimizer);
      const auto count = [&](const char* key) {
        const auto* number = key != nullptr ? dict.find(key) : nullptr;
        return number != nullptr ? std::optional{number->get<std::int64_t>(key)} : std::nullopt;
      };
      if (const auto epoch = count(keys.epoch))
        checkpoint.epoch = *epoch + (*epoch < std::numeric_limits<std::int64_t>::max() ? keys.epochs_behind : 0);
      if (keys.layout == CheckpointLayout::lightning)
        checkpoint.epoch = std::max(checkpoint.epoch, detail::epochs_processed(dict).value_or(0));
      checkpoint.step = count(keys.step);
      if (const auto* arguments = dict.find("model_args"); keys.layout == CheckpointLayout::nanogpt && arguments)
        checkpoint.model_args = detail::nanogpt_arguments(*arguments);
      return checkpoint;
    }
  }
  std::string names;
  bool only_tensors = true;
  for (const auto& [key, item] : dict.entries) {
    only_tensors = only_tensors && item.get_if<at::Tensor>() != nullptr;
    if (const auto* name = key.get_if<std::string>(); name != nullptr && names.size() < 500)
      names += ' ' + detail::in_quotes(*name);
  }
  if (only_tensors) return detail::model_from_python(CheckpointLayout::state_dict, dict);
  throw Error{Errc::storage, "the checkpoint's keys are" + names +
                                 "; expected MODEL_STATE, model_state, model_state_dict or model, Lightning's "
                                 "state_dict and global_step, or a model's tensors alone"};
}

DDPXX_INLINE PickleValue optimizer_to_python(const NamedTensors& snapshot, std::span<const OptimizerGroup> groups) {
  std::map<std::string_view, PickleDict> states;
  const auto step = snapshot.find(std::string{detail::kStepName});
  for (const auto& [name, tensor] : snapshot) {
    auto rest = std::string_view{name};
    if (!rest.starts_with(detail::kOptimizerFront) || rest == detail::kStepName) continue;
    rest.remove_prefix(detail::kOptimizerFront.size());
    const auto dot = rest.find('.');
    if (dot == std::string_view::npos || rest.substr(0, dot) == detail::kAverageName) continue;
    auto& state = states[rest.substr(dot + 1)];
    // A clone for each parameter: Python increments each step in place.
    if (state.entries.empty() && step != snapshot.end()) state.add("step", step->second.to(at::kFloat).clone());
    state.add(rest.substr(0, dot), tensor);
  }
  PickleDict all_states;
  PickleList all_groups;
  std::int64_t index = 0;
  for (const auto& group : groups) {
    PickleList indices;
    for (const auto& name : group.parameters) {
      if (auto state = states.extract(name)) all_states.add(index, std::move(state.mapped()));
      indices.emplace_back(index++);
    }
    all_groups.emplace_back(PickleDict{group.settings}.add("params", std::move(indices)));
  }
  if (!states.empty())
    throw Error{Errc::storage, "the optimizer has a state for " + detail::in_quotes(states.begin()->first) +
                                   ", which is in none of the groups"};
  return PickleDict{}.add("state", std::move(all_states)).add("param_groups", std::move(all_groups));
}

DDPXX_INLINE NamedTensors optimizer_from_python(const PickleValue& state_dict, std::span<const OptimizerGroup> groups) {
  const auto& dict = state_dict.get<PickleDict>("the optimizer's state");
  const auto part = [&](const char* name) -> const PickleValue& {
    if (const auto* value = dict.find(name)) return *value;
    throw Error{Errc::storage, std::string{"the optimizer's state lacks "} + name};
  };
  std::map<std::int64_t, const PickleDict*> states;
  for (const auto& [key, value] : part("state").get<PickleDict>("state").entries)
    states.emplace(key.get<std::int64_t>("a key of state"), &value.get<PickleDict>("an entry of state"));
  const auto& saved_groups = part("param_groups").get<PickleList>("param_groups");
  if (saved_groups.size() != groups.size())
    throw Error{Errc::storage, "the optimizer has " + std::to_string(saved_groups.size()) + " groups in the file, " +
                                   std::to_string(groups.size()) + " here"};

  NamedTensors tensors;
  std::optional<double> steps;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto* indices = saved_groups[g].get<PickleDict>("a group").find("params");
    if (indices == nullptr) throw Error{Errc::storage, "a group of the optimizer lacks params"};
    const auto& saved = indices->get<PickleList>("params");
    if (saved.size() != groups[g].parameters.size())
      throw Error{Errc::storage, "group " + std::to_string(g) + " of the optimizer has " +
                                     std::to_string(saved.size()) + " parameters in the file, " +
                                     std::to_string(groups[g].parameters.size()) + " here"};
    for (std::size_t i = 0; i < saved.size(); ++i) {
      const auto& name = groups[g].parameters[i];
      const auto state = states.find(saved[i].get<std::int64_t>("an entry of params"));
      if (state == states.end()) continue;  // it was frozen, or had no gradient yet
      for (const auto& [key, value] : state->second->entries) {
        const auto& moment = key.get<std::string>("a key of an optimizer's state");
        if (value.is_none()) continue;  // for example momentum_buffer of SGD without momentum
        if (moment != "step") {
          tensors.emplace(std::string{detail::kOptimizerFront} + moment + '.' + name, value.get<at::Tensor>(moment));
          continue;
        }
        const auto count = detail::step_count(value);
        if (steps.value_or(count) != count)
          throw Error{Errc::storage, "the parameters have done different numbers of steps: " + std::to_string(*steps) +
                                         " and, for " + detail::in_quotes(name) + ", " + std::to_string(count)};
        steps = count;
      }
    }
  }
  if (steps) tensors.emplace(detail::kStepName, at::full({}, *steps, at::kFloat));
  return tensors;
}

}  // namespace ddpxx
