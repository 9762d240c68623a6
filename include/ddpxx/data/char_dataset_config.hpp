// ddpxx/data/char_dataset_config.hpp — settings of a text to train on.
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
    return fields(field<&CharDatasetConfig::path>("Training text: a file, a folder with all files below it, a pattern "
                                                  "such as 'books/*.txt', or s3://bucket/prefix",
                                                  Resume::free),
                  field<&CharDatasetConfig::block_size>("Length of a sample, the context of the model", at_least(1),
                                                        Unit::characters, Resume::must_match),
                  field<&CharDatasetConfig::truncate>("Fraction of the text that is used, from its start", above(0.0),
                                                      at_most(1.0), Resume::must_match),
                  field<&CharDatasetConfig::max_bytes>("Maximum number of bytes of text to read; 0 means no maximum",
                                                       at_least(0), Unit::bytes, Resume::must_match));
  }
};

}  // namespace ddpxx
