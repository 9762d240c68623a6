// ddpxx/nn/gpt2_description.hpp — the sizes of a GPT-2, as Hugging Face's config.json has them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <ddpxx/nn/gpt_config.hpp>

namespace ddpxx {

/// What a GPT of layout gpt2 is made from.
struct GPT2Description {
  GPTConfig config;
  std::int64_t vocab_size = 0;
  std::int64_t block_size = 0;
};

/// Reads the text of a config.json. Keys that are missing have the values of transformers' GPT2Config. GELU is exact if
/// activation_function is gelu. The key `bias`, which transformers ignores, is false where gpt2_config_json() has
/// written it for a GPT without biases.
/// Errors  `storage` for another model than GPT-2, for one that GPT does not compute, such as with another activation,
///         and for sizes that are not counts.
/// Source  Hugging Face transformers, configuration_gpt2.py.
GPT2Description read_gpt2_config(std::string_view json);

/// The text of a config.json with which transformers loads the model as GPT2LMHeadModel. A GPT2LMHeadModel always has
/// biases: gpt2_to_huggingface() writes zeros for a model that has none, and the key `bias` says so.
std::string gpt2_config_json(const GPT2Description& description);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/nn/gpt2_description_inl.hpp>
#endif
