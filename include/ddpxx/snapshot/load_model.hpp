// ddpxx/snapshot/load_model.hpp — a snapshot's model in one process, to be used and not trained on.
#pragma once

#include <optional>
#include <string>

#include <torch/nn/module.h>

#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

/// Copies a snapshot's parameters and buffers into a model. Uses the moving average of the parameters if the run kept
/// one, as the run's own evaluations did. A parameter that the model registers under several names is read by the first
/// of them, under which a trainer saves it. Returns none, or a text that names the damage.
/// Errors  `storage` if the storage does not answer, and for a snapshot of another model, listing every name that is
///         missing, superfluous or of another shape. After damage or an error the model is unchanged.
std::optional<std::string> try_load_model(torch::nn::Module& model, Storage& storage, const Manifest& manifest);
/// Copies as `try_load_model` does.
/// Errors  `storage` also for damage.
void load_model(torch::nn::Module& model, Storage& storage, const Manifest& manifest);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/snapshot/load_model_inl.hpp>
#endif
