// ddpxx/data/token_dataset_config.hpp — settings of files of tokens to train on.
#pragma once

#include <cstdint>
#include <string>

#include <ddpxx/core/describe.hpp>

namespace ddpxx {

struct TokenDatasetConfig {
  static constexpr std::int64_t kMaxVocabSize = std::int64_t{1} << 31;  ///< Signed 32-bit numbers hold these ids, too.

  std::string path;
  std::int64_t block_size = 1024;
  std::int64_t vocab_size = 50304;

  static constexpr auto describe() {
    return fields(
        field<&TokenDatasetConfig::path>("Token ids: a file as nanoGPT's train.bin, a folder with all files .bin below "
                                         "it, or a pattern such as 'data/train_*.bin'",
                                         Resume::free),
        field<&TokenDatasetConfig::block_size>("Length of a sample, the context of the model", at_least(1),
                                               Unit::tokens, Resume::must_match),
        field<&TokenDatasetConfig::vocab_size>(
            "Number of different tokens; ids are 16-bit numbers, or above 65536 tokens 32-bit numbers; the default is "
            "GPT-2's 50257, rounded up to a multiple of 64",
            between(1, kMaxVocabSize), Unit::tokens, Resume::must_match));
  }
};

}  // namespace ddpxx
