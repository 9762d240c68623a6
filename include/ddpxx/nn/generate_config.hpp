// ddpxx/nn/generate_config.hpp — settings of generated text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ddpxx/core/describe.hpp>

namespace ddpxx {

struct GenerateConfig {
  std::int64_t tokens = 0;
  std::string prompt = {};
  double temperature = 1.0;
  std::int64_t top_k = 0;
  double top_p = 1.0;
  bool sample = true;
  bool cache = true;

  static constexpr auto describe() {
    return fields(
        field<&GenerateConfig::tokens>("Tokens to generate after training; 0 is none", between(0, 1'000'000),
                                       Unit::tokens, Resume::free),
        field<&GenerateConfig::prompt>(
            "Text to continue; empty begins with the tokenizer's end-of-text token, or else with token 0, which is the "
            "first character of an alphabet",
            Resume::free),
        field<&GenerateConfig::temperature>("Temperature of sampling: above 1 more varied, below 1 more certain",
                                            above(0.0), Resume::free),
        field<&GenerateConfig::top_k>("Sample from the k most likely tokens only; 0 is all", at_least(0), Resume::free),
        field<&GenerateConfig::top_p>(
            "Sample from the most likely tokens only whose probabilities together reach this; 1 is all", above(0.0),
            at_most(1.0), Resume::free),
        field<&GenerateConfig::sample>("Draw tokens at random; false always takes the most likely", Resume::free),
        field<&GenerateConfig::cache>(
            "Keep keys and values of earlier tokens, while they fit the context; false computes them for each token",
            Resume::free));
  }
  std::vector<FieldError> check() const {
    if (tokens > 0 || prompt.empty()) return {};
    return {{"prompt", "does nothing without tokens: no text is generated", Severity::warning}};
  }
};

}  // namespace ddpxx
