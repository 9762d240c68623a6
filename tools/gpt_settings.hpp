// gpt_settings.hpp — the settings by which mingpt describes a GPT, for snapshots that are made from other files.
#pragma once

#include <cstdint>
#include <string>

#include <ddpxx/config/codec.hpp>
#include <ddpxx/config/number_text.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/data/token_dataset_config.hpp>
#include <ddpxx/nn/gpt2_description.hpp>
#include <ddpxx/nn/gpt_config.hpp>

namespace gpt_settings {

/// The settings of a GPT of layout gpt2, with which mingpt resumes from a snapshot and generates text with it. `origin`
/// names the file that has the values. They are written as a configuration prints them: a run that resumes compares
/// the texts.
inline ddpxx::Settings of_network(const ddpxx::GPT2Description& gpt, const std::string& origin) {
  const auto& [config, vocab_size, block_size] = gpt;
  const auto truth = [](bool value) { return std::string{value ? "true" : "false"}; };
  ddpxx::Settings settings;
  const auto add = [&](const char* path, const std::string& value) {
    settings.push_back({.path = path, .value = value, .origin = origin});
  };
  const auto [layers, heads, width] = config.sizes();
  add("model.n_layer", std::to_string(layers));
  add("model.n_head", std::to_string(heads));
  add("model.n_embd", std::to_string(width));
  add("model.dropout", ddpxx::real_text(config.dropout));
  add("model.bias", truth(config.bias));
  if (config.gelu) add("model.gelu", ddpxx::ConfigCodec<ddpxx::GELUForm>::print(*config.gelu));
  add("model.tied_head", truth(config.tied_head));
  add("data.block_size", std::to_string(block_size));
  return settings;
}

/// The settings with which mingpt reads tokens, for a model that has `vocab_size` of them. The default number is left
/// out, since a run that does not set it has null there.
inline ddpxx::Settings of_tokens(std::int64_t vocab_size, const std::string& origin) {
  ddpxx::Settings settings{{.path = "data.format", .value = ddpxx::yaml_quoted("tokens"), .origin = origin}};
  if (vocab_size != ddpxx::TokenDatasetConfig{}.vocab_size)
    settings.push_back({.path = "data.vocab_size", .value = std::to_string(vocab_size), .origin = origin});
  return settings;
}

}  // namespace gpt_settings
