// ddpxx/nn/fused_block.hpp — a transformer block as one operation of autograd, for CPUs.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <ddpxx/core/inline.hpp>
#include <ddpxx/nn/block_parameters.hpp>

namespace ddpxx {

/// True if fused_block() can compute a block for this input: everything is float32 on an x86-64 CPU with AVX2, without
/// autocast or with autocast to bfloat16, the width of a head is a multiple of 8, and the parameters are contiguous and
/// have the sizes of BlockParameters. False while operations are intercepted (by SizesOnly or an AnomalyDetector),
/// which would not see this one.
DDPXX_INLINE bool fused_block_runs(const at::Tensor& x_BTC, const BlockParameters& parameters, std::int64_t heads);

/// y = x + attention(norm(x)), then y + feed-forward(norm(y)), with GELU in its tanh approximation and without dropout.
/// Forward and backward pass each are one operation of autograd, which keeps 9 C + 4 + H numbers of a token between
/// them, beside its input. Under autocast to bfloat16, the operands and results of the products with the four weights
/// are rounded to it, and 8 C of these numbers are bfloat16; all else, attention included, is computed in float32.
/// Under Recompute the attention is computed again, too.
/// Shapes  `x_BTC` [B, T, C]; result [B, T, C], float32.
/// Errors  `config` where fused_block_runs() is false, and in a backward pass with create_graph.
DDPXX_INLINE at::Tensor fused_block(const at::Tensor& x_BTC, const BlockParameters& parameters, std::int64_t heads);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/nn/fused_block_inl.hpp>
#endif
