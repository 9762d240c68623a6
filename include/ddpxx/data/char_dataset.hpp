// ddpxx/data/char_dataset.hpp — text as characters, each to be foretold from those before it (minGPT's dataset).
// Shape suffixes: B batch, T block_size.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/data/char_dataset_config.hpp>
#include <ddpxx/data/concept.hpp>
#include <ddpxx/data/stored_text.hpp>
#include <ddpxx/data/text_files.hpp>
#include <ddpxx/data/utf8.hpp>

namespace ddpxx {

/// Sample i has the characters [i, i + block_size) as input and [i + 1, i + block_size + 1) as targets. A character is
/// a Unicode code point; its id is its rank among the different characters of the text. One, two or four bytes a
/// character stay in memory.
/// Errors  `data` when there is no text at the path, it cannot be read, or it is too short for one sample; `config` for
///         a setting outside its range, and for s3:// in a program that is not linked to ddpxx::s3.
/// Source  minGPT-ddp's char_dataset.py.
class CharDataset {
 public:
  using Config = CharDatasetConfig;

  explicit CharDataset(const Config& config);

  std::int64_t size() const noexcept { return num_chars_ - config_.block_size; }
  std::int64_t block_size() const noexcept { return config_.block_size; }
  std::int64_t num_chars() const noexcept { return num_chars_; }
  std::int64_t vocab_size() const noexcept { return std::ssize(vocabulary_); }

  /// The line that minGPT prints.
  std::string describe() const {
    return "Data has " + std::to_string(num_chars()) + " characters, " + std::to_string(vocab_size()) + " unique.";
  }

  /// Shapes  Inputs and targets int64 [B, T].
  /// Errors  `data` for an index outside [0, size).
  Batch batch(std::span<const std::int64_t> indices) const;

  /// Ids of a text's characters.
  /// Errors  `data` naming a character that is not in the vocabulary.
  std::vector<std::int64_t> encode(std::string_view text) const;

  /// Errors  `data` for an id outside [0, vocab_size).
  std::string decode(std::span<const std::int64_t> ids) const;

 private:
  using Ids = std::variant<std::vector<std::uint8_t>, std::vector<std::uint16_t>, std::vector<std::uint32_t>>;

  void collect_vocabulary(std::string_view text);
  void look_up(std::string_view text);

  Config config_;
  std::int64_t num_chars_ = 0;
  std::vector<char32_t> vocabulary_;  ///< Sorted; the place of a character is its id.
  Ids ids_;
};

inline CharDataset::CharDataset(const Config& config) : config_{config} {
  if (config.path.empty())
    throw Error{Errc::config, "no text to train on: path names no file, folder, pattern or s3://bucket/prefix"};
  if (config.block_size < 1 || config.max_bytes < 0 || !(config.truncate > 0.0 && config.truncate <= 1.0))
    throw Error{Errc::config, "block_size must be at least 1, truncate in (0, 1], max_bytes at least 0"}
        .with("block_size", config.block_size)
        .with("truncate", config.truncate)
        .with("max_bytes", config.max_bytes);

  const auto most = static_cast<std::size_t>(config.max_bytes);
  const auto memory =
      is_stored(config.path) ? read_stored_text(config.path, most) : read_text(find_text_files(config.path), most);
  std::string_view text = memory;
  if (text.empty()) throw Error{Errc::data, "there is no text in " + config.path};
  if (config.truncate < 1.0) {
    std::int64_t count = 0;
    for_each_code_point(text, [&count](char32_t) { ++count; });
    text = first_code_points(text, static_cast<std::int64_t>(static_cast<double>(count) * config.truncate));
  }
  collect_vocabulary(text);
  if (num_chars_ <= config.block_size)
    throw Error{Errc::data, "block_size=" + std::to_string(config.block_size) + " needs a text of at least " +
                                std::to_string(config.block_size + 1) + " characters, " + config.path + " has " +
                                std::to_string(num_chars_)};
  look_up(text);
}

inline void CharDataset::collect_vocabulary(std::string_view text) {
  std::vector<std::uint8_t> seen(kNumCodePoints);
  for_each_code_point(text, [&](char32_t character) {
    seen[character] = 1;
    ++num_chars_;
  });
  for (std::size_t character = 0; character < seen.size(); ++character)
    if (seen[character] != 0) vocabulary_.push_back(static_cast<char32_t>(character));
}

inline void CharDataset::look_up(std::string_view text) {
  if (vocabulary_.size() <= 0x100)
    ids_.emplace<std::vector<std::uint8_t>>();
  else if (vocabulary_.size() <= 0x10000)
    ids_.emplace<std::vector<std::uint16_t>>();
  else
    ids_.emplace<std::vector<std::uint32_t>>();

  std::vector<std::uint32_t> id_of(vocabulary_.back() + std::size_t{1});
  for (std::uint32_t id = 0; const auto character : vocabulary_) id_of[character] = id++;
  std::visit(
      [&]<class Id>(std::vector<Id>& ids) {
        ids.resize(static_cast<std::size_t>(num_chars_));
        auto* next = ids.data();
        for_each_code_point(text, [&](char32_t character) { *next++ = static_cast<Id>(id_of[character]); });
      },
      ids_);
}

inline Batch CharDataset::batch(std::span<const std::int64_t> indices) const {
  const auto block = config_.block_size;
  for (const auto index : indices)
    if (index < 0 || index >= size())
      throw Error{Errc::data, "sample " + std::to_string(index) + " of a text with " + std::to_string(size())};

  const auto num_tokens = std::ssize(indices) * block;
  auto inputs_BT = at::empty({std::ssize(indices), block}, at::kLong);
  auto targets_BT = at::empty({std::ssize(indices), block}, at::kLong);
  std::visit(
      [&](const auto& ids) {
        auto* input = inputs_BT.mutable_data_ptr<std::int64_t>();
        auto* target = targets_BT.mutable_data_ptr<std::int64_t>();
        for (const auto index : indices) {
          const auto* id = ids.data() + index;
          for (std::int64_t t = 0; t < block; ++t) {
            *input++ = id[t];
            *target++ = id[t + 1];
          }
        }
      },
      ids_);
  return {std::move(inputs_BT), std::move(targets_BT), num_tokens};
}

inline std::vector<std::int64_t> CharDataset::encode(std::string_view text) const {
  std::vector<std::int64_t> ids;
  for_each_code_point(text, [&](char32_t character) {
    const auto place = std::lower_bound(vocabulary_.begin(), vocabulary_.end(), character);
    if (place == vocabulary_.end() || *place != character) {
      std::string shown;
      append_utf8(shown, character);
      throw Error{Errc::data, "the character '" + shown + "' does not occur in the text " + config_.path};
    }
    ids.push_back(place - vocabulary_.begin());
  });
  return ids;
}

inline std::string CharDataset::decode(std::span<const std::int64_t> ids) const {
  std::string text;
  for (const auto id : ids) {
    if (id < 0 || id >= vocab_size())
      throw Error{Errc::data, "character " + std::to_string(id) + " of " + std::to_string(vocab_size())};
    append_utf8(text, vocabulary_[static_cast<std::size_t>(id)]);
  }
  return text;
}

static_assert(MapDataset<CharDataset> && explain_dataset<CharDataset>());

}  // namespace ddpxx
