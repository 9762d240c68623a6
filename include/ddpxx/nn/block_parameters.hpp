// ddpxx/nn/block_parameters.hpp — the parameters of a transformer block with GPT-2's structure.
#pragma once

#include <ATen/core/Tensor.h>

namespace ddpxx {

/// The parameters of a transformer block with GPT-2's structure.
/// Shapes  norms [C]; qkv [3C, C] and [3C]; projection [C, C] and [C]; widen [4C, C] and [4C]; narrow [C, 4C] and [C].
struct BlockParameters {
  at::Tensor norm_1_weight, norm_1_bias;
  at::Tensor qkv_weight, qkv_bias;
  at::Tensor projection_weight, projection_bias;
  at::Tensor norm_2_weight, norm_2_bias;
  at::Tensor widen_weight, widen_bias;
  at::Tensor narrow_weight, narrow_bias;
};

}  // namespace ddpxx
