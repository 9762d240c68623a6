// src/nn.cpp — the part of ddpxx::core that comes from the room nn/: see ddpxx/core/inline.hpp.
#include <ddpxx/nn/add_norm_inl.hpp>
#include <ddpxx/nn/bias_gelu_inl.hpp>
#include <ddpxx/nn/biased_linear_inl.hpp>
#include <ddpxx/nn/chunked_cross_entropy_inl.hpp>
#include <ddpxx/nn/fused_block_inl.hpp>
#include <ddpxx/nn/gpt2_description_inl.hpp>
#include <ddpxx/nn/gpt2_weights_inl.hpp>
#include <ddpxx/nn/gpt_inl.hpp>
