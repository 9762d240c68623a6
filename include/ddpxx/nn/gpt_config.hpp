// ddpxx/nn/gpt_config.hpp — settings of a GPT, and minGPT's presets.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// gpt2: fused qkv, tanh GELU by default, one projection after attention, GPT-2's names.
/// mingpt_ddp: torch's multi-head attention with a second projection, exact GELU by default, minGPT-ddp's names.
enum class GPTLayout { gpt2, mingpt_ddp };

constexpr auto enum_names(GPTLayout) {
  return std::array{Named{GPTLayout::gpt2, "gpt2"}, Named{GPTLayout::mingpt_ddp, "mingpt_ddp"}};
}

/// tanh: the approximation of GPT-2 and minGPT. exact: x times the normal distribution function, as in nanoGPT.
enum class GELUForm { tanh, exact };

constexpr auto enum_names(GELUForm) {
  return std::array{Named{GELUForm::tanh, "tanh"}, Named{GELUForm::exact, "exact"}};
}

/// The sizes of a GPT.
struct GPTSizes {
  std::int64_t n_layer = 0;
  std::int64_t n_head = 0;
  std::int64_t n_embd = 0;
};

struct GPTPreset {
  std::string_view name;
  GPTSizes sizes;
};

inline constexpr std::array kGPTPresets{
    GPTPreset{"openai-gpt", {12, 12, 768}},   GPTPreset{"gpt2", {12, 12, 768}},
    GPTPreset{"gpt2-medium", {24, 16, 1024}}, GPTPreset{"gpt2-large", {36, 20, 1280}},
    GPTPreset{"gpt2-xl", {48, 25, 1600}},     GPTPreset{"gopher-44m", {8, 16, 512}},
    GPTPreset{"gpt-mini", {6, 6, 192}},       GPTPreset{"gpt-micro", {4, 4, 128}},
    GPTPreset{"gpt-nano", {3, 3, 48}}};

struct GPTConfig {
  std::string model_type = "gpt-nano";
  std::optional<std::int64_t> n_layer = {};
  std::optional<std::int64_t> n_head = {};
  std::optional<std::int64_t> n_embd = {};
  double dropout = 0.1;
  GPTLayout layout = GPTLayout::gpt2;
  bool bias = true;
  std::optional<GELUForm> gelu = {};
  bool tied_head = false;
  std::int64_t loss_chunk = 0;
  bool fused = false;

  /// The preset's sizes, with n_layer, n_head and n_embd in place of the preset's where they are set.
  GPTSizes sizes() const {
    for (const auto& preset : kGPTPresets)
      if (preset.name == model_type)
        return {n_layer.value_or(preset.sizes.n_layer), n_head.value_or(preset.sizes.n_head),
                n_embd.value_or(preset.sizes.n_embd)};
    std::string names;
    for (const auto& preset : kGPTPresets) (names += names.empty() ? "" : ", ") += preset.name;
    throw Error{Errc::config, "model_type \"" + model_type + "\" is not a preset: choose one of " + names};
  }

  /// The form that `gelu` says, otherwise that of the layout.
  GELUForm gelu_form() const { return gelu.value_or(layout == GPTLayout::gpt2 ? GELUForm::tanh : GELUForm::exact); }

  static constexpr auto describe() {
    return fields(
        field<&GPTConfig::model_type>("Preset of n_layer, n_head and n_embd",
                                      choices("openai-gpt", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl",
                                              "gopher-44m", "gpt-mini", "gpt-micro", "gpt-nano"),
                                      resets<&GPTConfig::n_layer, &GPTConfig::n_head, &GPTConfig::n_embd>()),
        field<&GPTConfig::n_layer>("Number of blocks, instead of the preset's", at_least(1)),
        field<&GPTConfig::n_head>("Attention heads of each block, instead of the preset's", at_least(1)),
        field<&GPTConfig::n_embd>("Width, instead of the preset's; a multiple of n_head", at_least(1)),
        field<&GPTConfig::dropout>("Fraction of activations that dropout sets to 0 in training", at_least(0.0),
                                   below(1.0), Resume::warn),
        field<&GPTConfig::layout>("Structure and parameter names"),
        field<&GPTConfig::bias>(
            "The linear layers of the blocks and all layer norms have biases; false leaves them out, as nanoGPT's "
            "train.py does by default"),
        field<&GPTConfig::gelu>(
            "GELU in its tanh approximation or exact, instead of the layout's: tanh for gpt2, exact for mingpt_ddp"),
        field<&GPTConfig::tied_head>(
            "The head uses the weight of the token embedding, as in GPT-2 and nanoGPT; false trains its own"),
        field<&GPTConfig::loss_chunk>(
            "Positions of a batch whose logits the loss computes at once, which saves memory, and time on a GPU, where "
            "one kernel computes losses and gradients; 0 computes all",
            at_least(0), Unit::tokens, Resume::free),
        field<&GPTConfig::fused>(
            "Compute a block of layout gpt2 with biases and tanh GELU in one operation on a CPU with AVX2, in fp32 or "
            "bf16, "
            "without dropout, and with heads whose width is a multiple of 8; elsewhere each layer norm with the "
            "addition before it, and the bias before GELU with GELU, in one kernel, and the gradients of the other "
            "biases in two; results differ by their rounding",
            Resume::free));
  }
  std::vector<FieldError> check() const {
    const auto [layers, heads, width] = sizes();
    std::vector<FieldError> errors;
    for (const auto& [name, size] :
         {std::pair{"n_layer", layers}, std::pair{"n_head", heads}, std::pair{"n_embd", width}})
      if (size < 1) errors.push_back({name, std::to_string(size) + " is below 1"});
    if (errors.empty() && width % heads != 0) {
      const auto below = width / heads * heads;
      errors.push_back({"n_embd", std::to_string(width) + " is not divisible by n_head (" + std::to_string(heads) +
                                      "); nearest: " + (below > 0 ? std::to_string(below) + " or " : "") +
                                      std::to_string(below + heads)});
    }
    return errors;
  }
};

}  // namespace ddpxx
