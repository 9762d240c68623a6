// ddpxx/data/token_dataset.hpp — a file of token ids, each predicted from those before it (nanoGPT's train.bin).
// Shape suffixes: B batch, T block_size.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <ddpxx/core/crc32c.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/mapped_file.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/data/concept.hpp>
#include <ddpxx/data/token_dataset_config.hpp>
#include <ddpxx/data/token_format.hpp>

namespace ddpxx {

/// A file of token ids as a dataset. Sample i has the tokens [i, i + block_size) as input and [i + 1, i + block_size +
/// 1) as targets. The file holds unsigned 16-bit numbers in little-endian order and nothing else. It is mapped, not
/// read: the ranks of a machine share its pages, and it may be larger than the memory.
/// Errors  `data` if the file cannot be read, has an odd number of bytes, is too short for one sample, holds text,
///         32-bit numbers or a NumPy header, or has an id of vocab_size or more. Ids in the middle of the file are
///         checked when a batch reads them. `config` for a block_size below 1.
/// Source  nanoGPT's data/openwebtext/prepare.py.
class TokenDataset {
 public:
  using Config = TokenDatasetConfig;

  explicit TokenDataset(const Config& config)
      : config_{checked(config)}, file_{config.path, Errc::data}, checksum_{check_ends()} {}

  std::int64_t size() const noexcept { return num_tokens() - config_.block_size; }
  std::int64_t block_size() const noexcept { return config_.block_size; }
  std::int64_t num_tokens() const noexcept { return std::ssize(file_.bytes()) / kTokenBytes; }
  std::int64_t vocab_size() const noexcept { return config_.vocab_size; }
  static const char* unit() noexcept { return "tokens"; }

  std::string describe() const {
    return "Data has " + std::to_string(num_tokens()) + " tokens, of " + std::to_string(vocab_size()) + " different.";
  }

  /// The number of tokens and a checksum of the file's first and last 1 MiB, for snapshots: a run does not resume on
  /// other tokens.
  Settings recorded() const {
    return {{"the tokens",
             std::to_string(num_tokens()) + " tokens, CRC-32C of both ends " + crc32c_text(checksum_),
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
  static constexpr std::int64_t kTokenBytes = 2;
  static constexpr std::int64_t kCheckedTokens = 1 << 19;  ///< 1 MiB at each end of the file.
  static_assert(std::endian::native == std::endian::little, "the file's numbers are in little-endian order");

  /// A program may set a config in code, where no parser checks it.
  static const Config& checked(const Config& config) {
    if (config.block_size < 1)
      throw Error{Errc::config, "block_size is " + std::to_string(config.block_size) + ", and must be at least 1"};
    return config;
  }

  /// Copies `count` ids from token `first` on, and checks them.
  void copy(std::int64_t first, std::int64_t count, std::int64_t* ids) const {
    const auto* from = file_.bytes().data() + first * kTokenBytes;
    // The compiler uses vector instructions for loops of a length that it knows.
    constexpr std::int64_t kAtOnce = 32;
    std::array<std::uint16_t, kAtOnce> some{}, largest_of{};
    std::int64_t done = 0;
    for (; done + kAtOnce <= count; done += kAtOnce) {
      std::memcpy(some.data(), from + done * kTokenBytes, sizeof some);
      for (std::size_t i = 0; i < some.size(); ++i) ids[done + static_cast<std::int64_t>(i)] = some[i];
      for (std::size_t i = 0; i < some.size(); ++i) largest_of[i] = std::max(largest_of[i], some[i]);
    }
    std::int64_t largest = *std::max_element(largest_of.begin(), largest_of.end());
    for (; done < count; ++done) {
      std::uint16_t id = 0;
      std::memcpy(&id, from + done * kTokenBytes, sizeof id);
      ids[done] = id;
      largest = std::max<std::int64_t>(largest, id);
    }
    if (largest < config_.vocab_size) return;
    const auto wrong = std::find(ids, ids + count, largest) - ids;
    throw Error{Errc::data, "token " + std::to_string(first + wrong) + " of " + config_.path + " is " +
                                std::to_string(largest) + ", and vocab_size=" + std::to_string(config_.vocab_size) +
                                " has the ids below that: set the number of tokens of the tokenizer that wrote the "
                                "file, which holds 16-bit numbers"};
  }

  /// Checks the file's length, its format and the ids at its ends; returns the checksum of these ends.
  std::uint32_t check_ends() const {
    const auto bytes = std::as_bytes(file_.bytes());
    if (std::ssize(bytes) % kTokenBytes != 0)
      throw Error{Errc::data,
                  config_.path + " has " + std::to_string(bytes.size()) +
                      " bytes, an odd number, and a token takes two: this is not a file of 16-bit tokens, or "
                      "it was cut off"};
    if (num_tokens() <= config_.block_size)
      throw Error{Errc::data, "block_size=" + std::to_string(config_.block_size) +
                                  " needs more tokens: " + config_.path + " has " + std::to_string(num_tokens()) +
                                  ", and a sample takes block_size tokens and the one behind them"};
    const auto count = std::min(num_tokens(), kCheckedTokens);
    const auto part = static_cast<std::size_t>(count * kTokenBytes);
    if (const auto why = detail::not_tokens(bytes.first(part), config_.vocab_size); !why.empty())
      throw Error{Errc::data, config_.path + " is not a file of 16-bit tokens: it " + why};
    const auto ids = at::empty({count}, at::kLong);
    copy(0, count, ids.mutable_data_ptr<std::int64_t>());
    copy(num_tokens() - count, count, ids.mutable_data_ptr<std::int64_t>());
    return crc32c(bytes.last(part), crc32c(bytes.first(part)));
  }

  Config config_;
  MappedFile file_;
  std::uint32_t checksum_;
};

inline Batch TokenDataset::batch(std::span<const std::int64_t> indices) const {
  const auto block = config_.block_size;
  for (const auto index : indices)
    if (index < 0 || index >= size())
      throw Error{Errc::data, "sample " + std::to_string(index) + " of a file with " + std::to_string(size())};

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
