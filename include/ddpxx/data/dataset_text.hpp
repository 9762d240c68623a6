// ddpxx/data/dataset_text.hpp — reads the text that the settings of a CharDataset name.
#pragma once

#include <string>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/data/char_dataset_config.hpp>
#include <ddpxx/storage/storage_opener.hpp>

namespace ddpxx {

/// The text that `config` names, up to max_bytes and truncate. `open` opens the storage of a text behind s3://.
/// Errors  those of CharDataset, except for a text that is too short.
std::string read_dataset_text(const CharDatasetConfig& config, StorageOpener open);

namespace detail {

/// The error for a text that takes more memory than there is.
Error text_too_large(const CharDatasetConfig& config);

}  // namespace detail

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/data/dataset_text_inl.hpp>
#endif
