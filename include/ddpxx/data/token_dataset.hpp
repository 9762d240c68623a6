// ddpxx/data/token_dataset.hpp — files of token ids, each predicted from those before it (nanoGPT's train.bin).
// Shape suffixes: B batch, T block_size.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <ddpxx/core/crc32c.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/data/concept.hpp>
#include <ddpxx/data/data_files.hpp>
#include <ddpxx/data/token_dataset_config.hpp>
#include <ddpxx/data/token_file.hpp>

namespace ddpxx {

/// The files of token ids that a path names: a file, the files below a folder that end with .bin, or those that match a
/// pattern, sorted by the bytes of their paths.
/// Errors  `data` as those of find_data_files.
inline std::vector<std::string> find_token_files(const std::string& path) { return find_data_files(path, ".bin"); }

/// Files of token ids as a dataset: the ids of all files in the order of find_token_files are one sequence. Sample i
/// has the tokens [i, i + block_size) of it as input and [i + 1, i + block_size + 1) as targets.
/// Errors  `data` if no file is found, one has no tokens or all together are too short for one sample, and the errors
///         of TokenFile. Ids in
///         the middle of a file are checked when a batch reads them. `config` for a block_size below 1.
class TokenDataset {
 public:
  using Config = TokenDatasetConfig;

  explicit TokenDataset(const Config& config) : config_{config} {
    // A program may set a config in code, where no parser checks it.
    if (config.block_size < 1)
      throw Error{Errc::config, "block_size is " + std::to_string(config.block_size) + ", and must be at least 1"};
    for (const auto& path : find_token_files(config.path)) {
      begins_.push_back(num_tokens_);
      const auto size = files_.emplace_back(path, config.vocab_size).size();
      if (size == 0) throw Error{Errc::data, path + " holds no tokens: write it again, or remove it"};
      num_tokens_ += size;
      checksum_ = files_.back().check_ends(checksum_);
    }
    if (num_tokens_ <= config.block_size)
      throw Error{Errc::data, "block_size=" + std::to_string(config.block_size) + " needs more tokens: " + config.path +
                                  " has " + std::to_string(num_tokens_) +
                                  ", and a sample takes block_size tokens and the one behind them"};
  }

  std::int64_t size() const noexcept { return num_tokens() - config_.block_size; }
  std::int64_t block_size() const noexcept { return config_.block_size; }
  std::int64_t num_tokens() const noexcept { return num_tokens_; }
  std::int64_t vocab_size() const noexcept { return config_.vocab_size; }
  static const char* unit() noexcept { return "tokens"; }

  std::string describe() const {
    return "Data has " + std::to_string(num_tokens()) + " tokens" + in_files() + "; vocab_size is " +
           std::to_string(vocab_size()) + ".";
  }

  /// The number of tokens and a checksum of each file's first and last 1 MiB, for snapshots: a run does not resume on
  /// other tokens.
  Settings recorded() const {
    return {{"the tokens",
             std::to_string(num_tokens()) + " tokens" + in_files() + ", CRC-32C of both ends " + crc32c_text(checksum_),
             Resume::must_match,
             {}}};
  }

  /// Whether equal ids mean equal tokens in `other`, as far as the number of tokens tells.
  bool shares_vocabulary(const TokenDataset& other) const { return vocab_size() == other.vocab_size(); }

  /// The samples with these indices.
  /// Shapes  Inputs and targets int64 [B, T].
  /// Errors  `data` for an index outside [0, size), and for an id that is not below vocab_size.
  Batch batch(std::span<const std::int64_t> indices) const;

 private:
  /// Empty for one file: snapshots of earlier versions record no number of files.
  std::string in_files() const { return files_.size() == 1 ? "" : " in " + std::to_string(files_.size()) + " files"; }

  /// Copies `count` ids from token `first` on, and checks them.
  void copy(std::int64_t first, std::int64_t count, std::int64_t* ids) const {
    auto file = static_cast<std::size_t>(std::ranges::upper_bound(begins_, first) - begins_.begin()) - 1;
    for (; count > 0; ++file) {
      const auto offset = first - begins_[file];
      const auto part = std::min(count, files_[file].size() - offset);
      files_[file].copy(offset, part, ids);
      first += part;
      count -= part;
      ids += part;
    }
  }

  Config config_;
  std::vector<TokenFile> files_;
  std::vector<std::int64_t> begins_;  ///< The token with which each file begins.
  std::int64_t num_tokens_ = 0;
  std::uint32_t checksum_ = 0;
};

inline Batch TokenDataset::batch(std::span<const std::int64_t> indices) const {
  const auto block = config_.block_size;
  for (const auto index : indices)
    if (index < 0 || index >= size())
      throw Error{Errc::data, "sample " + std::to_string(index) + " does not exist: " + config_.path + " has " +
                                  std::to_string(size()) + " samples"};

  auto inputs_BT = at::empty({std::ssize(indices), block}, at::kLong);
  auto targets_BT = at::empty({std::ssize(indices), block}, at::kLong);
  auto* input = inputs_BT.mutable_data_ptr<std::int64_t>();
  auto* target = targets_BT.mutable_data_ptr<std::int64_t>();
  for (const auto index : indices) {
    copy(index, block, input);
    std::copy(input + 1, input + block, target);
    copy(index + block, 1, target + block - 1);
    input += block;
    target += block;
  }
  return {std::move(inputs_BT), std::move(targets_BT), std::ssize(indices) * block};
}

static_assert(MapDataset<TokenDataset> && explain_dataset<TokenDataset>());

}  // namespace ddpxx
