// ddpxx/interop/state_dicts.hpp — converts between a snapshot's tensors and the checkpoints of PyTorch programs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/flat/named_tensors.hpp>
#include <ddpxx/interop/pickle_value.hpp>

namespace ddpxx {

/// The layout of a checkpoint: which program wrote it, and so which keys it has.
enum class CheckpointLayout {
  torchrun_tutorial,  ///< MODEL_STATE, EPOCHS_RUN: epochs count from 0, and a resumed run repeats the saved epoch.
  mingpt_ddp,  ///< model_state, optimizer_state, finished_epoch: epochs count from 1, and a resumed run begins with the
               ///< next epoch.
  guide,       ///< model_state_dict, optimizer_state_dict, epoch.
  nanogpt,     ///< model, optimizer, model_args, iter_num, best_val_loss, config. Read only.
  lightning,   ///< state_dict, optimizer_states, epoch, global_step. Read only.
  torchvision,  ///< model, optimizer, epoch, as in torchvision's training scripts, which save the epoch that has ended.
  state_dict    ///< The model's tensors alone, without outer keys.
};

/// The arguments of a GPT in nanoGPT, which its checkpoints have under `model_args`.
struct NanoGPTArguments {
  std::int64_t n_layer = 0;
  std::int64_t n_head = 0;
  std::int64_t n_embd = 0;
  std::int64_t block_size = 0;
  std::int64_t vocab_size = 0;
  bool bias = true;  ///< True also for a file without this key, from before nanoGPT could leave biases out.
  double dropout = 0.0;
};

struct TrainingCheckpoint {
  CheckpointLayout layout = CheckpointLayout::mingpt_ddp;
  NamedTensors model = {};     ///< Parameters and buffers, under the model's own names.
  PickleValue optimizer = {};  ///< The state_dict() of a torch.optim optimizer, None, or a list of several of them.
  std::int64_t epoch = 0;      ///< The epoch with which a resumed run begins, counted from 0.
  /// The names of the model's tensors in the order of the file, which is the order of Python's module. When a
  /// checkpoint is written, tensors that are not in this list come last.
  std::vector<std::string> names = {};
  std::optional<std::int64_t> step = {};            ///< Optimizer steps done; none if the file does not say.
  std::optional<NanoGPTArguments> model_args = {};  ///< Only in checkpoints of nanoGPT.
};

/// Returns whether checkpoints of a layout have a place for the optimizer's state.
bool has_optimizer(CheckpointLayout layout);

/// Returns the value that Python would give to torch.save. The tutorial's layout leaves out the optimizer.
PickleValue to_python(const TrainingCheckpoint& checkpoint);

/// Reads a checkpoint of any of the layouts. Removes the prefixes `module.` and `_orig_mod.` of wrappers and
/// Lightning's `model.` from the names.
/// Errors  `storage` for any other value, listing its keys.
TrainingCheckpoint from_python(const PickleValue& value);

/// A group of an optimizer's parameters, in Python's order. Python identifies parameters by this order alone.
struct OptimizerGroup {
  std::vector<std::string> parameters;
  PickleDict settings;  ///< The entries of `param_groups` other than `params`.
};

/// Whether weight decay changes the weight directly, as in torch.optim.AdamW, or through the gradient, as in Adam.
enum class PythonAdam { adamw, adam };

/// The settings of torch.optim.AdamW and Adam.
struct AdamWSettings {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  PythonAdam optimizer = PythonAdam::adamw;
  bool amsgrad = false;
};
PickleDict to_python(const AdamWSettings& settings);

/// The settings of torch.optim.SGD.
struct SGDSettings {
  double learning_rate = 1e-3;
  double momentum = 0.0;
  double dampening = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
};
PickleDict to_python(const SGDSettings& settings);

/// Returns the two groups of minGPT and minGPT-ddp: parameters with weight decay, then those without, each by name.
template <class Decays, class OptimizerSettings = AdamWSettings>
std::vector<OptimizerGroup> mingpt_groups(std::vector<std::string> names, Decays&& decays, OptimizerSettings settings) {
  std::sort(names.begin(), names.end());
  std::vector<OptimizerGroup> groups(2);
  groups[0].settings = to_python(settings);
  settings.weight_decay = 0.0;
  groups[1].settings = to_python(settings);
  for (auto& name : names) groups[decays(name) ? 0 : 1].parameters.push_back(std::move(name));
  return groups;
}

/// Returns the state_dict() of an optimizer from a snapshot's tensors `optimizer.MOMENT.NAME` and `optimizer.step`.
/// Ignores other tensors and the moving average `optimizer.ema.NAME`, which Python's optimizers do not have.
/// Errors  `storage` for a moment of a parameter that is in no group.
PickleValue optimizer_to_python(const NamedTensors& snapshot, std::span<const OptimizerGroup> groups);

/// Returns those tensors from a state_dict(), for the parameters of the groups. Returns none for a parameter
/// that has not had a gradient, which has no state in Python.
/// Errors  `storage` if the groups have other lengths, or the parameters have done different numbers of steps.
NamedTensors optimizer_from_python(const PickleValue& state_dict, std::span<const OptimizerGroup> groups);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/interop/state_dicts_inl.hpp>
#endif
