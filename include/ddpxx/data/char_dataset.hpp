// ddpxx/data/char_dataset.hpp — text as characters, each predicted from those before it (minGPT's dataset).
// Shape suffixes: B batch, T block_size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <ddpxx/core/crc32c.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/data/alphabet.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/data/char_dataset_config.hpp>
#include <ddpxx/data/char_ids.hpp>
#include <ddpxx/data/concept.hpp>
#include <ddpxx/data/dataset_text.hpp>
#include <ddpxx/storage/open_storage.hpp>

namespace ddpxx {

/// A text as a dataset. Sample i has the characters [i, i + block_size) as input and [i + 1, i + block_size + 1) as
/// targets. A character is a Unicode code point; its id is its index in the alphabet. The text takes one, two or four
/// bytes of memory for each character.
/// Errors  `data` if the path has no text, or the text cannot be read, is not UTF-8, has a NUL byte or is too short for
///         one sample; `memory` if it is too large; `config` for a setting outside its range, and for s3:// in a
///         program that is not linked to ddpxx::s3.
/// Source  minGPT-ddp's char_dataset.py.
class CharDataset {
 public:
  using Config = CharDatasetConfig;

  /// A text in its own alphabet.
  explicit CharDataset(const Config& config) : CharDataset{config, read_dataset_text(config, open_storage)} {}

  /// A text in the alphabet of another one, such as a validation text in that of the training text.
  /// Errors  `data` naming a character that is not in the alphabet.
  CharDataset(const Config& config, const Alphabet& alphabet)
      : CharDataset{config, alphabet, read_dataset_text(config, open_storage)} {}

  std::int64_t size() const noexcept { return num_chars() - config_.block_size; }
  std::int64_t block_size() const noexcept { return config_.block_size; }
  std::int64_t num_chars() const noexcept { return num_chars_; }
  std::int64_t vocab_size() const noexcept { return alphabet_.size(); }
  const Alphabet& alphabet() const noexcept { return alphabet_; }
  static const char* unit() noexcept { return "characters"; }
  /// Whether equal ids mean equal characters in `other`.
  bool shares_vocabulary(const CharDataset& other) const { return alphabet_ == other.alphabet_; }

  /// The line that minGPT prints about its dataset.
  std::string describe() const {
    return "Data has " + std::to_string(num_chars()) + " characters, " + std::to_string(vocab_size()) + " unique.";
  }

  /// The alphabet and a checksum of the text, for snapshots: a run does not resume on another text.
  Settings recorded() const { return {alphabet_.recorded(), {"the text", fingerprint(), Resume::must_match, {}}}; }

  /// The samples with these indices.
  /// Shapes  Inputs and targets int64 [B, T].
  /// Errors  `data` for an index outside [0, size).
  Batch batch(std::span<const std::int64_t> indices) const;

 private:
  CharDataset(const Config& config, std::string text) : CharDataset{config, Alphabet{text}, std::move(text)} {}
  CharDataset(const Config& config, Alphabet alphabet, std::string text)
      : config_{config},
        alphabet_{std::move(alphabet)},
        checksum_{crc32c(std::as_bytes(std::span{text}))},
        ids_{encode(config, std::move(text), alphabet_)},
        num_chars_{ids_.size()} {
    if (num_chars_ <= config.block_size)
      throw Error{Errc::data, "block_size=" + std::to_string(config.block_size) +
                                  " needs a longer text: " + config.path + " has " + std::to_string(num_chars_) +
                                  " characters, and a sample takes " + "block_size characters and the one behind them"};
  }

  static CharIds encode(const Config& config, std::string text, const Alphabet& alphabet) {
    try {
      return CharIds{std::move(text), alphabet};
    } catch (Error& error) {
      error.with("in", config.path);
      throw;
    } catch (const std::bad_alloc&) {
      throw detail::text_too_large(config);
    }
  }
  std::string fingerprint() const {
    return std::to_string(num_chars_) + " characters, CRC-32C " + crc32c_text(checksum_);
  }

  Config config_;
  Alphabet alphabet_;
  std::uint32_t checksum_;  ///< CRC-32C of the text in UTF-8.
  CharIds ids_;
  std::int64_t num_chars_;
};

inline Batch CharDataset::batch(std::span<const std::int64_t> indices) const {
  const auto block = config_.block_size;
  for (const auto index : indices)
    if (index < 0 || index >= size())
      throw Error{Errc::data, "sample " + std::to_string(index) + " of a text with " + std::to_string(size())};

  const auto num_tokens = std::ssize(indices) * block;
  auto inputs_BT = at::empty({std::ssize(indices), block}, at::kLong);
  auto targets_BT = at::empty({std::ssize(indices), block}, at::kLong);
  auto* input = inputs_BT.mutable_data_ptr<std::int64_t>();
  auto* target = targets_BT.mutable_data_ptr<std::int64_t>();
  for (const auto index : indices) {
    ids_.copy(index, block, input);
    ids_.copy(index + 1, block, target);
    input += block;
    target += block;
  }
  return {std::move(inputs_BT), std::move(targets_BT), num_tokens};
}

static_assert(MapDataset<CharDataset> && explain_dataset<CharDataset>());

}  // namespace ddpxx
