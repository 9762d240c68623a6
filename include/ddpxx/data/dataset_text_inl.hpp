// ddpxx/data/dataset_text_inl.hpp — definitions of dataset_text.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/char_dataset_config.hpp>
#include <ddpxx/data/data_files.hpp>
#include <ddpxx/data/dataset_text.hpp>
#include <ddpxx/data/stored_text.hpp>
#include <ddpxx/data/text_files.hpp>
#include <ddpxx/data/utf8.hpp>
#include <ddpxx/storage/storage_opener.hpp>

namespace ddpxx {

DDPXX_INLINE Error detail::text_too_large(const CharDatasetConfig& config) {
  return Error{Errc::memory, "the text of " + config.path +
                                 " does not fit into memory: max_bytes=N takes its first N "
                                 "bytes"};
}

DDPXX_INLINE std::string read_dataset_text(const CharDatasetConfig& config, StorageOpener open) {
  if (config.path.empty())
    throw Error{Errc::config, "no text to train on: path names no file, folder, pattern or s3://bucket/prefix"};
  if (config.block_size < 1 || config.max_bytes < 0 || !(config.truncate > 0.0 && config.truncate <= 1.0))
    throw Error{Errc::config, "block_size must be at least 1, truncate in (0, 1], max_bytes at least 0"}
        .with("block_size", config.block_size)
        .with("truncate", config.truncate)
        .with("max_bytes", config.max_bytes);

  const auto most = static_cast<std::size_t>(config.max_bytes);
  std::string text;
  try {
    text = is_stored(config.path) ? read_stored_text(config.path, most, open)
                                  : read_text(find_data_files(config.path), most);
  } catch (const std::bad_alloc&) {
    throw detail::text_too_large(config);
  }
  if (text.empty()) throw Error{Errc::data, "there is no text in " + config.path};
  if (config.truncate < 1.0) {
    std::int64_t count = 0;
    for_each_code_point(text, [&count](char32_t) { ++count; });
    const auto kept = static_cast<std::int64_t>(static_cast<double>(count) * config.truncate);
    text.resize(first_code_points(text, kept).size());
  }
  return text;
}

}  // namespace ddpxx
