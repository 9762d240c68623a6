// ddpxx/nn/gpt2_description_inl.hpp — the definitions of gpt2_description.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/nn/gpt2_description.hpp>
#include <ddpxx/nn/gpt_config.hpp>

namespace ddpxx {

namespace detail {

/// A config.json and what is read from it.
class GPT2ConfigReader {
 public:
  // Parentheses, since braces around a value of nlohmann::json make an array that holds the value with GCC, and a copy
  // of the value with Clang.
  explicit GPT2ConfigReader(std::string_view text) : json_(nlohmann::json::parse(text, nullptr, false)) {
    if (!json_.is_object()) throw Error{Errc::storage, "config.json is not a JSON object"};
  }

  /// The value under a key; `otherwise` where the key is missing.
  nlohmann::json value(const char* key, const nlohmann::json& otherwise) const {
    const auto found = json_.find(key);
    return found == json_.end() ? otherwise : *found;
  }

  std::int64_t size(const char* key, std::int64_t otherwise) const {
    constexpr std::int64_t kMax = std::int64_t{1} << 31;
    const auto found = value(key, otherwise);
    if (!found.is_number_integer() || found < 1 || found > kMax) refuse(key, found, "a count is needed");
    return found.get<std::int64_t>();
  }

  void must_be(const char* key, const nlohmann::json& expected) const {
    if (const auto found = value(key, expected); found != expected)
      refuse(key, found, "GPT computes with " + expected.dump());
  }

  [[noreturn]] static void refuse(const std::string& key, const nlohmann::json& value, const std::string& why) {
    const auto shown = value.is_structured() ? std::string{value.type_name()} : value.dump();
    throw Error{Errc::storage, "config.json has " + key + "=" + shown + ": " + why};
  }

 private:
  nlohmann::json json_;
};

}  // namespace detail

DDPXX_INLINE GPT2Description read_gpt2_config(std::string_view json) {
  const detail::GPT2ConfigReader file{json};
  GPT2Description description{.config = {.model_type = "gpt2"}};
  auto& config = description.config;
  file.must_be("model_type", "gpt2");
  config.n_layer = file.size("n_layer", 12);
  config.n_head = file.size("n_head", 12);
  config.n_embd = file.size("n_embd", 768);
  description.vocab_size = file.size("vocab_size", 50257);
  description.block_size = file.size("n_positions", 1024);
  for (const auto& error : config.check()) detail::GPT2ConfigReader::refuse(error.field, *config.n_embd, error.text);

  const auto activation = file.value("activation_function", "gelu_new");
  if (activation == "gelu")
    config.gelu = GELUForm::exact;
  else if (activation != "gelu_pytorch_tanh")  // another name of gelu_new
    file.must_be("activation_function", "gelu_new");
  if (!file.value("n_inner", nullptr).is_null()) file.must_be("n_inner", 4 * *config.n_embd);
  file.must_be("layer_norm_epsilon", 1e-5);
  file.must_be("scale_attn_weights", true);
  file.must_be("scale_attn_by_inverse_layer_idx", false);
  file.must_be("add_cross_attention", false);

  config.bias = file.value("bias", true) != false;
  const auto tied = file.value("tie_word_embeddings", true), dropout = file.value("resid_pdrop", 0.1);
  if (!tied.is_boolean()) detail::GPT2ConfigReader::refuse("tie_word_embeddings", tied, "true or false is needed");
  config.tied_head = tied.get<bool>();
  if (!dropout.is_number() || dropout < 0.0 || dropout >= 1.0)
    detail::GPT2ConfigReader::refuse("resid_pdrop", dropout, "a fraction below 1 is needed");
  for (const char* key : {"embd_pdrop", "attn_pdrop"})
    if (const auto other = file.value(key, 0.1); other != dropout)
      detail::GPT2ConfigReader::refuse(key, other, "GPT has one dropout, and resid_pdrop=" + dropout.dump());
  config.dropout = dropout.get<double>();
  return description;
}

DDPXX_INLINE std::string gpt2_config_json(const GPT2Description& description) {
  const auto& config = description.config;
  const auto [layers, heads, width] = config.sizes();
  constexpr std::int64_t kEndOfText = 50256;
  // transformers warns of an end token that the vocabulary does not have.
  const auto end = description.vocab_size > kEndOfText ? nlohmann::ordered_json(kEndOfText) : nullptr;
  nlohmann::ordered_json json{{"architectures", {"GPT2LMHeadModel"}},
                              {"model_type", "gpt2"},
                              {"n_layer", layers},
                              {"n_head", heads},
                              {"n_embd", width},
                              {"n_inner", nullptr},
                              {"n_positions", description.block_size},
                              {"vocab_size", description.vocab_size},
                              {"activation_function", config.gelu_form() == GELUForm::tanh ? "gelu_new" : "gelu"},
                              {"layer_norm_epsilon", 1e-5},
                              {"tie_word_embeddings", config.tied_head},
                              {"resid_pdrop", config.dropout},
                              {"embd_pdrop", config.dropout},
                              {"attn_pdrop", config.dropout},
                              {"bos_token_id", end},
                              {"eos_token_id", end}};
  if (!config.bias) json["bias"] = false;
  return json.dump(2) + '\n';
}

}  // namespace ddpxx
