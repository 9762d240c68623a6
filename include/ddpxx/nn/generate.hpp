// ddpxx/nn/generate.hpp — generates text with a language model, token by token.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>

#include <ddpxx/nn/evaluation_mode.hpp>
#include <ddpxx/nn/generate_config.hpp>

namespace ddpxx {

/// Appends `config.tokens` tokens to `ids_BT`, each predicted from the block_size tokens before it. The model is in
/// evaluation mode meanwhile.
/// Shapes  `ids_BT` int64, T at least 1; result [B, T + tokens].
/// Ranks   Local: the parameters must be whole, see a strategy's `gathered()`.
template <class Model, class Run>
at::Tensor generate(Model& model, Run&& run, at::Tensor ids_BT, const GenerateConfig& config,
                    const std::optional<at::Generator>& random = std::nullopt) {
  const EvaluationMode mode{model};
  for (std::int64_t i = 0; i < config.tokens; ++i) {
    const auto T = ids_BT.size(1);
    const auto context_BT =
        T > model.block_size() ? ids_BT.narrow(1, T - model.block_size(), model.block_size()) : ids_BT;
    auto scores_BV = model.logits(run, context_BT).select(1, -1) / config.temperature;
    if (config.top_k > 0 && config.top_k < scores_BV.size(-1)) {
      const auto least_B1 = std::get<0>(at::topk(scores_BV, config.top_k)).select(-1, -1).unsqueeze(-1);
      scores_BV.masked_fill_(scores_BV < least_B1, -std::numeric_limits<double>::infinity());
    }
    const auto next_B1 = config.sample ? at::multinomial(at::softmax(scores_BV, -1), 1, /*replacement=*/false, random)
                                       : at::argmax(scores_BV, -1, /*keepdim=*/true);
    ids_BT = at::cat({ids_BT, next_B1}, 1);
  }
  return ids_BT;
}

}  // namespace ddpxx
