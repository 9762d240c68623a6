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

class TrainingText {
 public:
  /// Reads what `text` names. Characters get the ids of `vocabulary` where one is given, as for a validation text.
  TrainingText(const DataConfig& config, const ddpxx::CharDatasetConfig& text,
               const std::optional<Vocabulary>& vocabulary = {})
      : data_{read(config, text, vocabulary)} {}

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
  Vocabulary vocabulary() const {
    if (const auto* text = std::get_if<ddpxx::CharDataset>(&data_)) return Vocabulary{text->alphabet()};
    return Vocabulary{std::get<ddpxx::TokenDataset>(data_).vocab_size()};
  }

 private:
  using Data = std::variant<ddpxx::CharDataset, ddpxx::TokenDataset>;

  static Data read(const DataConfig& config, const ddpxx::CharDatasetConfig& text,
                   const std::optional<Vocabulary>& vocabulary) {
    if (config.format == DataFormat::tokens) return ddpxx::TokenDataset{config.tokens(text.path)};
    if (vocabulary && vocabulary->alphabet()) return ddpxx::CharDataset{text, *vocabulary->alphabet()};
    return ddpxx::CharDataset{text};
  }

  Data data_;
};
