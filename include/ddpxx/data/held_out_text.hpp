// ddpxx/data/held_out_text.hpp — splits the windows of a text into a training part and a validation part.
// Windows that overlap share characters: a model that has memorised one predicts the other. So validation uses text
// that is in no training window. Validation windows start block_size apart, so that each character is predicted once.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/char_dataset.hpp>
#include <ddpxx/data/concept.hpp>
#include <ddpxx/data/random_split.hpp>
#include <ddpxx/data/subset.hpp>

namespace ddpxx {

/// A text whose sample i is the window that begins with its i-th character or token: CharDataset, TokenDataset.
template <class D>
concept WindowDataset = MapDataset<D> && requires(const D& text) {
  { text.block_size() } -> std::convertible_to<std::int64_t>;
  { text.shares_vocabulary(text) } -> std::same_as<bool>;
  std::string{text.unit()};  // what a sample consists of, such as "characters"
};

template <WindowDataset Text>
struct WindowParts {
  std::shared_ptr<const Subset<Text>> train;
  std::shared_ptr<const Subset<Text>> validation;  ///< Null if no window is held out.
};
using TextParts = WindowParts<CharDataset>;

/// Trains on the windows inside the first `train_share` (a fraction) of the characters, and validates on those behind
/// it. A tail that is too short for one window is not used.
/// Errors  `data` when the training part is too short for one window; `config` for a share outside (0, 1].
template <WindowDataset Text>
WindowParts<Text> hold_out_tail(std::shared_ptr<const Text> text, double train_share);

/// Trains on every window of `text` and validates on another text, which has the alphabet of `text`.
/// Errors  `config` when the alphabets, or the numbers of different tokens, differ.
template <WindowDataset Text>
WindowParts<Text> hold_out_text(std::shared_ptr<const Text> text, std::shared_ptr<const Text> validation);

/// Splits the windows at random, for comparison with minGPT-ddp. Training and validation windows overlap, so that the
/// validation loss also falls for a model that only memorises. A small share may leave a part without windows.
/// Errors  `config` for a share outside (0, 1].
template <WindowDataset Text>
WindowParts<Text> hold_out_random(std::shared_ptr<const Text> text, double train_share, std::uint64_t seed);

namespace detail {

/// The number of characters or tokens of a text.
template <WindowDataset Text>
std::int64_t length_of(const Text& text) {
  return text.size() + text.block_size();
}

/// Windows that do not overlap, from the character or token `first` on.
template <WindowDataset Text>
std::shared_ptr<const Subset<Text>> evaluated_windows(std::shared_ptr<const Text> text, std::int64_t first) {
  const auto count = (length_of(*text) - first - 1) / text->block_size();
  if (count < 1) return nullptr;
  const SampleRange range{.first = first, .count = count, .stride = text->block_size()};
  return std::make_shared<const Subset<Text>>(std::move(text), range);
}

inline void check_share(double share) {
  if (!(share > 0.0 && share <= 1.0))
    throw Error{Errc::config, "the share of the text to train on is " + std::to_string(share) + ", outside (0, 1]"};
}

}  // namespace detail

template <WindowDataset Text>
WindowParts<Text> hold_out_tail(std::shared_ptr<const Text> text, double train_share) {
  detail::check_share(train_share);
  const auto length = detail::length_of(*text);
  const auto trained = static_cast<std::int64_t>(static_cast<double>(length) * train_share);
  const auto count = trained - text->block_size();
  if (count < 1)
    throw Error{Errc::data, "the text to train on has " + std::to_string(trained) + " of all " +
                                std::to_string(length) + ' ' + text->unit() +
                                ", the rest is held out; a sample of block_size=" + std::to_string(text->block_size()) +
                                " takes one more than block_size: use a longer text, a smaller block_size, or hold out "
                                "less"};
  auto train = std::make_shared<const Subset<Text>>(text, SampleRange{.first = 0, .count = count});
  return {std::move(train), detail::evaluated_windows(std::move(text), trained)};
}

template <WindowDataset Text>
WindowParts<Text> hold_out_text(std::shared_ptr<const Text> text, std::shared_ptr<const Text> validation) {
  if (!text->shares_vocabulary(*validation))
    throw Error{Errc::config, "the validation text must be made with the alphabet of the training text"};
  const SampleRange all{.first = 0, .count = text->size()};
  return {std::make_shared<const Subset<Text>>(std::move(text), all),
          detail::evaluated_windows(std::move(validation), 0)};
}

template <WindowDataset Text>
WindowParts<Text> hold_out_random(std::shared_ptr<const Text> text, double train_share, std::uint64_t seed) {
  detail::check_share(train_share);
  const auto count = static_cast<std::int64_t>(static_cast<double>(text->size()) * train_share);
  const auto parts = random_split({count, text->size() - count}, seed);
  auto train = std::make_shared<const Subset<Text>>(text, parts[0]);
  if (parts[1].numel() == 0) return {std::move(train), nullptr};
  return {std::move(train), std::make_shared<const Subset<Text>>(std::move(text), parts[1])};
}

}  // namespace ddpxx
