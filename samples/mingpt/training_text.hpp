// training_text.hpp — the data of a run: characters or tokens, as the configuration says. One type for both, so that
// each trainer is compiled once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include <ddpxx/data/char_dataset.hpp>
#include <ddpxx/data/token_dataset.hpp>

#include "run_config.hpp"
#include "vocabulary.hpp"

/// The vocabulary of tokens that the configuration describes.
/// Errors  `data` if the tokenizer cannot be read or has more tokens than the model.
inline Vocabulary token_vocabulary(const DataConfig& config) {
  const auto size = config.tokens({}).vocab_size;
  return config.tokenizer.empty() ? Vocabulary{size} : Vocabulary{size, config.tokenizer};
}

class TrainingText {
 public:
  /// Reads what `text` names. Characters get the ids of `vocabulary` where one is given, as for a validation text.
  TrainingText(const DataConfig& config, const ddpxx::CharDatasetConfig& text,
               const std::optional<Vocabulary>& vocabulary = {})
      : data_{read(config, text, vocabulary)}, vocabulary_{vocabulary ? *vocabulary : vocabulary_of(config, data_)} {}

  std::int64_t size() const {
    return std::visit([](const auto& data) { return data.size(); }, data_);
  }
  std::int64_t block_size() const {
    return std::visit([](const auto& data) { return data.block_size(); }, data_);
  }
  std::string describe() const {
    return std::visit([](const auto& data) { return data.describe(); }, data_);
  }
  const char* unit() const {
    return std::visit([](const auto& data) { return data.unit(); }, data_);
  }
  ddpxx::Settings recorded() const {
    return std::visit([](const auto& data) { return data.recorded(); }, data_);
  }
  ddpxx::Batch batch(std::span<const std::int64_t> indices) const {
    return std::visit([&](const auto& data) { return data.batch(indices); }, data_);
  }
  bool shares_vocabulary(const TrainingText& other) const {
    return std::visit(
        [&]<class Data>(const Data& data) {
          const auto* same_kind = std::get_if<Data>(&other.data_);
          return same_kind != nullptr && data.shares_vocabulary(*same_kind);
        },
        data_);
  }
  const Vocabulary& vocabulary() const noexcept { return vocabulary_; }

 private:
  using Data = std::variant<ddpxx::CharDataset, ddpxx::TokenDataset>;

  static Data read(const DataConfig& config, const ddpxx::CharDatasetConfig& text,
                   const std::optional<Vocabulary>& vocabulary) {
    if (config.format == DataFormat::tokens) return ddpxx::TokenDataset{config.tokens(text.path)};
    if (vocabulary && vocabulary->alphabet()) return ddpxx::CharDataset{text, *vocabulary->alphabet()};
    return ddpxx::CharDataset{text};
  }

  static Vocabulary vocabulary_of(const DataConfig& config, const Data& data) {
    if (const auto* text = std::get_if<ddpxx::CharDataset>(&data)) return Vocabulary{text->alphabet()};
    return token_vocabulary(config);
  }

  Data data_;
  Vocabulary vocabulary_;
};
