// ddpxx/nn/generate.hpp — generates text with a language model, token by token.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/nn/evaluation_mode.hpp>
#include <ddpxx/nn/generate_config.hpp>
#include <ddpxx/nn/key_value_cache.hpp>

namespace ddpxx {

/// A model that computes only the tokens that are not in a cache.
template <class Model, class Run>
concept CachesKeys = requires(Model& model, Run& run, const at::Tensor& ids_BT, KeyValueCache& cache) {
  { model.logits(run, ids_BT, cache) } -> std::convertible_to<at::Tensor>;
};

namespace detail {

/// Sets the scores of tokens that are not drawn to minus infinity: all but the `top_k` largest, then those behind the
/// most likely tokens that together have the probability `top_p`.
/// Source  Holtzman et al. 2020, arXiv:1904.09751, section 3.1 (top_p).
inline void leave_likely(at::Tensor& scores_BV, const GenerateConfig& config) {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  if (config.top_k > 0 && config.top_k < scores_BV.size(-1)) {
    const auto least_B1 = std::get<0>(at::topk(scores_BV, config.top_k)).select(-1, -1).unsqueeze(-1);
    scores_BV.masked_fill_(scores_BV < least_B1, kNever);
  }
  if (config.top_p < 1.0) {
    const auto [sorted_BV, index_BV] = at::sort(at::softmax(scores_BV, -1), /*dim=*/-1, /*descending=*/true);
    const auto before_BV = at::cumsum(sorted_BV, -1) - sorted_BV;  // probability of all tokens that are more likely
    const auto unlikely_BV = before_BV >= config.top_p;            // in the order of `sorted_BV`
    unlikely_BV.select(-1, 0).fill_(false);                        // a top_p below all numbers of the type leaves one
    scores_BV.masked_fill_(unlikely_BV.scatter(-1, index_BV, unlikely_BV), kNever);
  }
}

/// A program may set the settings in code, where nothing else checks their ranges.
inline void check_sampling(const GenerateConfig& config) {
  if (!config.sample) return;
  if (!(config.temperature > 0.0))
    throw Error{Errc::config, "generate: temperature=" + std::to_string(config.temperature) +
                                  " is not above 0; to take the most likely tokens set sample=false"};
  if (!(config.top_p > 0.0 && config.top_p <= 1.0))
    throw Error{Errc::config,
                "generate: top_p=" + std::to_string(config.top_p) + " is outside (0, 1]; 1 draws from all tokens"};
}

}  // namespace detail

/// Appends `config.tokens` tokens to `ids_BT`, each predicted from the block_size tokens before it. The model is in
/// evaluation mode meanwhile. A model that takes a KeyValueCache computes each token once, until the text is longer
/// than block_size: from then on all positions move with each token, and everything is computed for each.
/// Shapes  `ids_BT` int64, T at least 1; result [B, T + tokens].
/// Ranks   Local: the parameters must be whole, see a strategy's `gathered()`.
/// Errors  `config` for a temperature that is not above 0 and a top_p outside (0, 1], where tokens are drawn.
template <class Model, class Run>
at::Tensor generate(Model& model, Run&& run, at::Tensor ids_BT, const GenerateConfig& config,
                    const std::optional<at::Generator>& random = std::nullopt) {
  detail::check_sampling(config);
  const EvaluationMode mode{model};
  [[maybe_unused]] KeyValueCache cache;
  const auto logits_of_last = [&] {
    const auto T = ids_BT.size(1);
    if constexpr (CachesKeys<Model, std::remove_reference_t<Run>>)
      if (config.cache && T <= model.block_size())
        return model.logits(run, ids_BT.narrow(1, cache.num_tokens(), T - cache.num_tokens()), cache).select(1, -1);
    const auto context_BT =
        T > model.block_size() ? ids_BT.narrow(1, T - model.block_size(), model.block_size()) : ids_BT;
    return model.logits(run, context_BT).select(1, -1);
  };
  for (std::int64_t i = 0; i < config.tokens; ++i) {
    const auto next_B1 = [&] {
      auto scores_BV = logits_of_last();
      // A temperature near 0 would make the scores infinite.
      if (!config.sample || config.temperature < 1e-6) return at::argmax(scores_BV, -1, /*keepdim=*/true);
      // In 16 bits a low temperature overflows, and cumulative probabilities are too coarse for top_p.
      scores_BV = scores_BV.to(at::toOpMathType(scores_BV.scalar_type())) / config.temperature;
      detail::leave_likely(scores_BV, config);
      return at::multinomial(at::softmax(scores_BV, -1), 1, /*replacement=*/false, random);
    }();
    ids_BT = at::cat({ids_BT, next_B1}, 1);
  }
  return ids_BT;
}

}  // namespace ddpxx
