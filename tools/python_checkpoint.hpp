// python_checkpoint.hpp — converts a snapshot to a file as a Python program would have saved it, and such a file to a
// snapshot.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones_like.h>

#include <ddpxx/config/number_text.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/interop/model_file.hpp>
#include <ddpxx/interop/pickle_value.hpp>
#include <ddpxx/interop/state_dicts.hpp>
#include <ddpxx/nn/gpt2_description.hpp>
#include <ddpxx/nn/gpt2_weights.hpp>
#include <ddpxx/nn/gpt_config.hpp>
#include <ddpxx/nn/mingpt_state.hpp>
#include <ddpxx/snapshot/safetensors.hpp>
#include <ddpxx/snapshot/snapshot.hpp>

#include "gpt_settings.hpp"
#include "python_groups.hpp"
#include "python_optimizer.hpp"

namespace python_checkpoint {

using python_groups::kModel;

inline constexpr std::string_view kAverage = "optimizer.ema.";
inline constexpr std::string_view kWithoutAverage =
    "the moving average of the parameters, with which the run was evaluated, is left out: the file has the parameters";

/// Whether a moving average of the parameters is among the tensors of a snapshot.
inline bool has_average(const auto& tensors) {
  return std::ranges::any_of(tensors, [](const auto& item) { return item.first.starts_with(kAverage); });
}

/// The weights, with the buffers that Python expects beside them, and the optimizer's state if the layout has a place
/// for it; `tell` is called with a sentence about each fact that the file cannot hold.
template <class Tell>
ddpxx::TrainingCheckpoint from_snapshot(const ddpxx::Snapshot& snapshot, ddpxx::CheckpointLayout layout, Tell&& tell) {
  ddpxx::TrainingCheckpoint checkpoint;
  checkpoint.layout = layout;
  checkpoint.epoch = snapshot.run.epoch;
  for (const auto& [name, tensor] : snapshot.tensors)
    if (name.starts_with(kModel)) checkpoint.model.emplace(name.substr(kModel.size()), tensor);
  if (has_average(snapshot.tensors)) tell(std::string{kWithoutAverage});
  for (const auto& parameter : snapshot.run.parameters) checkpoint.names.push_back(parameter.name);
  ddpxx::add_masks(checkpoint.model);
  ddpxx::add_tied_head(checkpoint.model);
  auto optimizer = python_optimizer::state_dict(snapshot, layout);
  if (!optimizer) return checkpoint;
  checkpoint.optimizer = std::move(*optimizer);
  if (!python_optimizer::knows_settings(snapshot))
    tell("the snapshot does not say how its optimizer was configured: the file has Python's defaults");
  if (layout != ddpxx::CheckpointLayout::mingpt_ddp && python_optimizer::decays_in_part(snapshot) &&
      python_optimizer::number(snapshot, "optimizer.weight_decay", 0.0) > 0)
    tell(
        "in this layout's one group Python decays all parameters, and the run decayed some of them only: "
        "layout=mingpt_ddp keeps two groups");
  return checkpoint;
}

/// The settings of a group of Python's optimizer.
inline ddpxx::Settings settings_in(const ddpxx::PickleDict& group, const std::string& file) {
  ddpxx::Settings settings;
  const auto add = [&](const char* path, const ddpxx::PickleValue& value) {
    const auto* number = value.get_if<double>();
    const auto* count = value.get_if<std::int64_t>();
    if (number == nullptr && count == nullptr) return;
    settings.push_back({.path = std::string{"optimizer."} + path,
                        .value = ddpxx::real_text(number != nullptr ? *number : static_cast<double>(*count)),
                        .origin = file});
  };
  constexpr std::pair<const char*, const char*> kNames[] = {{"lr", "learning_rate"},
                                                            {"weight_decay", "weight_decay"},
                                                            {"eps", "epsilon"},
                                                            {"momentum", "momentum"},
                                                            {"dampening", "dampening"}};
  for (const auto& [key, path] : kNames)
    if (const auto* value = group.find(key)) add(path, *value);
  if (const auto* value = group.find("nesterov"))
    if (const auto* is_on = value->get_if<bool>(); is_on != nullptr && *is_on)
      settings.push_back({.path = "optimizer.nesterov", .value = "true", .origin = file});
  if (const auto* betas = group.find("betas"))
    if (const auto* both = betas->get_if<ddpxx::PickleTuple>(); both != nullptr && both->items.size() == 2) {
      add("beta1", both->items[0]);
      add("beta2", both->items[1]);
    }
  return settings;
}

/// The name of the optimizer in torch.optim; empty for AdamW and Adam of older versions, which cannot be told apart.
/// Errors  `config` for the settings of another optimizer: RAdam and NAdam have the moments of Adam, and compute
///         otherwise, as AdamW does with amsgrad, and each optimizer with maximize.
inline std::string optimizer_name(const ddpxx::PickleDict& group) {
  const auto has = [&](const char* name) { return group.find(name) != nullptr; };
  for (const char* name : {"amsgrad", "maximize"}) {
    const auto* value = group.find(name);
    const auto* is_on = value != nullptr ? value->get_if<bool>() : nullptr;
    if (is_on != nullptr && *is_on)
      throw ddpxx::Error{ddpxx::Errc::config, "the file's optimizer has " + std::string{name} +
                                                  "=True, which no optimizer here computes: convert the model alone, "
                                                  "with what=model"};
  }
  if (has("momentum") && has("dampening") && has("nesterov")) return "SGD";
  if (!has("amsgrad") || !has("betas"))
    throw ddpxx::Error{ddpxx::Errc::config,
                       "the file's optimizer is none of AdamW, Adam and SGD: convert the model alone, with what=model"};
  const auto* value = group.find("decoupled_weight_decay");
  const auto* decoupled = value != nullptr ? value->get_if<bool>() : nullptr;
  if (decoupled == nullptr) return "";
  return *decoupled ? "AdamW" : "Adam";
}

/// The number of steps that the file records; none if it records none, as with SGD.
/// Errors  `storage` if the value is not a count.
inline std::optional<std::int64_t> steps_in(const std::map<std::string, at::Tensor>& tensors) {
  const auto found = tensors.find("optimizer.step");
  if (found == tensors.end()) return std::nullopt;
  constexpr double kMax = 9007199254740992.0;  // 2^53: above it, not every integer is a double
  const auto steps = found->second.item<double>();
  if (!(steps >= 0 && steps < kMax) || steps != std::floor(steps))
    throw ddpxx::Error{ddpxx::Errc::storage,
                       "the optimizer's step is " + std::to_string(steps) + ", which is not a count"};
  return static_cast<std::int64_t>(steps);
}

/// Whether an optimizer steps the tensor; the running statistics of BatchNorm are not parameters.
inline bool is_parameter(std::string_view name, const at::Tensor& tensor) {
  return tensor.is_floating_point() && !name.ends_with("running_mean") && !name.ends_with("running_var");
}

/// Whether a tensor is a buffer that GPT-2's attention in Python saves beside its weights: `bias` is its causal mask,
/// and `masked_bias` the number that stands for minus infinity.
inline bool is_attention_buffer(const ddpxx::NamedTensors& model, std::string_view name, const at::Tensor& tensor) {
  constexpr std::string_view kMask = ".attn.bias", kMasked = ".attn.masked_bias";
  const auto is_named = [&](std::string_view ending) {
    return name.ends_with(ending) &&
           model.contains(std::string{name.substr(0, name.size() - ending.size())} + ".attn.c_attn.weight");
  };
  if (is_named(kMasked)) return tensor.dim() == 0;
  if (!is_named(kMask) || tensor.dim() < 2) return false;
  const auto values = tensor.to(at::kFloat);
  return at::equal(values, at::ones_like(values).tril_());
}

/// Removes the head of a GPT if it is tied to the token embedding: then both are one memory in the file.
inline void remove_tied_head(ddpxx::TrainingCheckpoint& checkpoint) {
  for (const auto& [embedding, head] : ddpxx::detail::kHeads) {
    const auto tokens = checkpoint.model.find(embedding), own = checkpoint.model.find(head);
    if (tokens == checkpoint.model.end() || own == checkpoint.model.end()) continue;
    if (tokens->second.is_alias_of(own->second)) checkpoint.model.erase(own);
  }
}

/// Gives the weights of GPT-2 the names and shapes of a GPT in ddpxx, in the order of the file, if Hugging Face's model
/// has saved them: its names lack `transformer.`, or its linear layers are transposed.
inline void rename_gpt2(ddpxx::TrainingCheckpoint& checkpoint) {
  auto tensors = ddpxx::gpt2_tensors(checkpoint.model);
  const auto is_known = [&](const auto& item) {
    const auto found = checkpoint.model.find(item.first);
    return item.first == "lm_head.weight" || (found != checkpoint.model.end() && found->second.is_same(item.second));
  };
  if (std::ranges::all_of(tensors, is_known)) return;
  for (auto& name : checkpoint.names)
    if (auto whole = "transformer." + name; tensors.contains(whole)) name = std::move(whole);
  if (std::ranges::find(checkpoint.names, "lm_head.weight") == checkpoint.names.end())
    checkpoint.names.emplace_back("lm_head.weight");
  checkpoint.model = std::move(tensors);
}

/// The model and the progress of the run; the current epoch starts again.
inline ddpxx::Snapshot to_snapshot(ddpxx::TrainingCheckpoint checkpoint) {
  if (checkpoint.epoch < 0)
    throw ddpxx::Error{ddpxx::Errc::storage,
                       "its epoch is " + std::to_string(checkpoint.epoch) + ", which is not a count"};
  ddpxx::Snapshot snapshot;
  snapshot.run.epoch = checkpoint.epoch;
  ddpxx::remove_masks(checkpoint.model);
  remove_tied_head(checkpoint);
  std::erase_if(checkpoint.model, [&model = checkpoint.model](const auto& item) {
    return is_attention_buffer(model, item.first, item.second);
  });
  if (checkpoint.layout == ddpxx::CheckpointLayout::state_dict) rename_gpt2(checkpoint);
  for (const auto& name : checkpoint.names) {
    const auto found = checkpoint.model.find(name);
    if (found == checkpoint.model.end()) continue;
    snapshot.tensors.emplace(std::string{kModel} + name, found->second);
    if (is_parameter(name, found->second))
      snapshot.run.parameters.push_back({name, ddpxx::decays_in_mingpt(name, found->second)});
  }
  snapshot.run.step = checkpoint.step.value_or(0);
  return snapshot;
}

/// The tensors of a safetensors file. If `convert` has written it, the names say what each tensor is; otherwise it is a
/// model, and GPT-2's tensors get the names and shapes of a GPT in ddpxx.
inline ddpxx::Snapshot to_snapshot(const ddpxx::Safetensors& file) {
  ddpxx::Snapshot snapshot;
  if (ddpxx::is_of_snapshot(file)) {
    snapshot.tensors = file.tensors;
    return snapshot;
  }
  for (auto& [name, tensor] : ddpxx::gpt2_tensors(file.tensors))
    snapshot.tensors.emplace(std::string{kModel} + name, tensor);
  return snapshot;
}

/// Adds the settings of nanoGPT's network, if the file is a checkpoint of nanoGPT; `tell` is called with what the file
/// does not say. Its vocabulary is that of GPT-2, with 50257 tokens or more, or one of nanoGPT's meta.pkl, which is
/// another file.
template <class Tell>
void add_network(ddpxx::Snapshot& snapshot, const ddpxx::TrainingCheckpoint& checkpoint, const std::string& file,
                 Tell&& tell) {
  if (!checkpoint.model_args) return;
  const auto& arguments = *checkpoint.model_args;
  const ddpxx::GPT2Description network{.config = {.model_type = "gpt2",
                                                  .n_layer = arguments.n_layer,
                                                  .n_head = arguments.n_head,
                                                  .n_embd = arguments.n_embd,
                                                  .dropout = arguments.dropout,
                                                  .bias = arguments.bias,
                                                  .gelu = ddpxx::GELUForm::exact,
                                                  .tied_head = !snapshot.tensors.contains("model.lm_head.weight")},
                                       .vocab_size = arguments.vocab_size,
                                       .block_size = arguments.block_size};
  const auto origin = "model_args of " + file;
  auto settings = gpt_settings::of_network(network, origin);
  constexpr std::int64_t kTokensOfGPT2 = 50257;
  if (arguments.vocab_size >= kTokensOfGPT2) {
    std::ranges::move(gpt_settings::of_tokens(arguments.vocab_size, origin), std::back_inserter(settings));
  } else {
    const auto count = std::to_string(arguments.vocab_size);
    tell("the file does not say what the model's " + count +
         " tokens are: beside nanoGPT's train.bin, set data.format=tokens data.vocab_size=" + count);
  }
  std::string texts;
  for (const auto& setting : settings) texts += ' ' + setting.path + '=' + setting.value;
  tell("the snapshot records nanoGPT's network, which `mingpt --from` uses:" + texts +
       "; for a file of nanoGPT before June 2023, which had tanh GELU, use init_from=" + file + " model.gelu=tanh");
  std::ranges::move(settings, std::back_inserter(snapshot.run.settings));
}

/// Makes a snapshot without an optimizer's state, from which any optimizer can start.
template <class Tell>
void begin_optimizer_anew(ddpxx::Snapshot& snapshot, Tell&& tell) {
  tell("the file has no optimizer's state: the optimizer of the run that resumes begins anew, at step " +
       std::to_string(snapshot.run.step));
  std::erase_if(snapshot.tensors, [](const auto& item) { return item.first.starts_with("optimizer."); });
  snapshot.run.optimizer.clear();
}

/// Adds the optimizer of a checkpoint. If the file has no optimizer state, neither has the snapshot, and any optimizer
/// can start from it. `steps` is the number of steps if the file does not record it; below 1 it is not known.
/// Errors  `storage` if parameters and moments do not match, and for several optimizers; `config` if the number of
///         steps of SGD is missing.
template <class Tell>
void add_optimizer(ddpxx::Snapshot& snapshot, const ddpxx::TrainingCheckpoint& checkpoint, const std::string& file,
                   std::int64_t steps, Tell&& tell) {
  if (const auto* all = checkpoint.optimizer.get_if<ddpxx::PickleList>())
    throw ddpxx::Error{ddpxx::Errc::storage, "the checkpoint has " + std::to_string(all->size()) +
                                                 " optimizers, and a run has one: what=model converts the model alone"};
  const auto saved = python_groups::saved_in(checkpoint.optimizer);
  if (!saved.empty()) {
    snapshot.run.settings = settings_in(*std::ranges::max_element(saved, {}, python_groups::weight_decay), file);
    if (python_groups::differ_in_rates(saved))
      tell(
          "the groups of the file's optimizer have different learning rates or weight decays, and the snapshot records "
          "those of one group: set the others in parameter_groups");
    for (const auto& group : saved) snapshot.run.optimizer = optimizer_name(group);
    snapshot.tensors.merge(python_groups::state_by_name(snapshot, checkpoint));
    if (python_groups::are_nanogpts(checkpoint))
      tell("nanoGPT decays the embeddings and the head that is tied to them; a run that resumes here does not");
  }
  const bool is_sgd = snapshot.run.optimizer == "SGD";
  const auto known = steps_in(snapshot.tensors);
  const bool has_state = known.value_or(0) > 0 || is_sgd;
  if (known && *known > 0)
    snapshot.run.step = *known;
  else if (!checkpoint.step)
    snapshot.run.step = std::max<std::int64_t>(steps, 0);
  if (snapshot.run.step == 0 && is_sgd)  // SGD initializes its momentum in its first step
    throw ddpxx::Error{ddpxx::Errc::config, "SGD's state does not say after how many steps it was saved: set step=N"};
  if (!has_state) begin_optimizer_anew(snapshot, tell);
}

}  // namespace python_checkpoint
