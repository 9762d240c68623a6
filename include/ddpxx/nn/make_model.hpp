// ddpxx/nn/make_model.hpp — makes a model whose initial weights depend only on the seed.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include <ATen/Context.h>
#include <c10/core/Device.h>

#include <ddpxx/layers/random_state.hpp>
#include <ddpxx/nn/concept.hpp>

namespace ddpxx {

/// Makes a `Model` from the other arguments, with initial weights drawn from `seed`, and moves it to `device`. All
/// ranks and all runs with one seed begin with equal weights, whatever was drawn before. The states of the CPU's
/// generator and of that of `device` do not change; those of other GPUs are set to `seed`.
///
///     auto model = make_model<GPT>(config.training.seed, group.device(), config.model, vocab_size, block_size);
template <IsModule Model, class... Arguments>
std::shared_ptr<Model> make_model(std::uint64_t seed, at::Device device, Arguments&&... arguments) {
  const RandomScope random{random_states(device)};
  at::manual_seed(seed);
  auto model = std::make_shared<Model>(std::forward<Arguments>(arguments)...);
  model->to(device);
  return model;
}

}  // namespace ddpxx
