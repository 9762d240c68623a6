// ddpxx/data/char_dataset_config.hpp — what a user may set about the characters to train on.
#pragma once

#include <cstdint>
#include <string>

#include <ddpxx/core/describe.hpp>

namespace ddpxx {

struct CharDatasetConfig {
  std::string path;
  std::int64_t block_size = 64;
  double truncate = 1.0;
  std::int64_t max_bytes = 0;

  static constexpr auto describe() {
    return fields(
        field<&CharDatasetConfig::path>(
            "Text: a file, a folder with all below it, a pattern such as 'books/*.txt', or s3://bucket/prefix",
            Resume::free),
        field<&CharDatasetConfig::block_size>("Characters that the model sees at once", at_least(1), Unit::characters,
                                              Resume::must_match),
        field<&CharDatasetConfig::truncate>("Share of the text that is used, from its beginning", above(0.0),
                                            at_most(1.0), Resume::must_match),
        field<&CharDatasetConfig::max_bytes>("Most bytes of text that are read; 0 is all", at_least(0), Unit::bytes,
                                             Resume::must_match));
  }
};

}  // namespace ddpxx
