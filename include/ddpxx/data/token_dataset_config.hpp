// ddpxx/data/token_dataset_config.hpp — settings of a file of tokens to train on.
#pragma once

#include <cstdint>
#include <string>

#include <ddpxx/core/describe.hpp>

namespace ddpxx {

struct TokenDatasetConfig {
  std::string path;
  std::int64_t block_size = 1024;
  std::int64_t vocab_size = 50304;

  static constexpr auto describe() {
    return fields(
        field<&TokenDatasetConfig::path>("File of token ids, 16-bit numbers, as nanoGPT's train.bin", Resume::free),
        field<&TokenDatasetConfig::block_size>("Length of a sample, the context of the model", at_least(1),
                                               Unit::tokens, Resume::must_match),
        field<&TokenDatasetConfig::vocab_size>(
            "Number of different tokens; the default is GPT-2's 50257, rounded up to a multiple of 64",
            between(1, 65536), Unit::tokens, Resume::must_match));
  }
};

}  // namespace ddpxx
