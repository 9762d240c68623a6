// spellings.hpp — settings of nanoGPT and minGPT-ddp whose values have another meaning here, and the defaults of
// nanoGPT's train.py.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include <ddpxx/config/alias.hpp>
#include <ddpxx/config/codec.hpp>
#include <ddpxx/config/raw_value.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/core/environment.hpp>

/// nanoGPT's decay_lr: a warm-up and a cosine, or a constant rate from the first step to the last.
inline ddpxx::Translation schedule_of_decay_lr(std::string_view value) {
  const auto decays = ddpxx::read_bool(value);
  if (!decays) return {.problem = "is neither true nor false"};
  return {.value = *decays ? "cosine" : "none"};
}

/// minGPT-ddp's use_amp: autocast to float16 with a scaled loss.
inline ddpxx::Translation precision_of_use_amp(std::string_view value) {
  const auto is_on = ddpxx::read_bool(value);
  if (!is_on) return {.problem = "is neither true nor false"};
  return {.value = *is_on ? "fp16" : "fp32"};
}

/// nanoGPT counts the micro-batches of all ranks together.
inline ddpxx::Translation accumulation_of_a_rank(std::string_view value) {
  const auto world = ddpxx::environment_integer("WORLD_SIZE").value_or(1);
  std::int64_t count = 0;
  const ddpxx::RawValue written{.kind = ddpxx::RawValue::Kind::text, .text = std::string{value}};
  const bool is_count = ddpxx::ConfigCodec<std::int64_t>::decode(count, written, {}).problem.empty();
  if (!is_count || world <= 1) return {.value = std::string{value}};
  const auto ranks = std::to_string(world) + " ranks";
  if (count % world != 0)
    return {.problem = std::string{value} +
                       " micro-batches, which nanoGPT counts over all ranks, do not divide among " + ranks +
                       "; give a multiple, or training.accumulation_steps for each rank"};
  return {.value = std::to_string(count / world),
          .notice = "counts the micro-batches of all " + ranks +
                    ", as in nanoGPT: training.accumulation_steps=" + std::to_string(count / world)};
}

/// nanoGPT and the guides name a dataset that a script has prepared; ddpxx takes the path of a text.
inline ddpxx::Translation path_of_dataset(std::string_view value) {
  std::error_code ignored;
  const bool is_name = value.find_first_of("./*:") == std::string_view::npos;
  if (!is_name || std::filesystem::exists(std::filesystem::path{value}, ignored)) return {.value = std::string{value}};
  return {.value = "",
          .notice = "is the name of a prepared dataset, and no text here: set data.path=FILE",
          .keeps_earlier = true};
}

inline constexpr ddpxx::FileDefaults kDefaultsOfNanoGPT{
    .name = "nanoGPT's train.py",
    .yaml = R"(data: {batch_size: 12, block_size: 1024}
model: {n_layer: 12, n_head: 12, n_embd: 768, dropout: 0.0, bias: false, gelu: exact, tied_head: true}
gradient_accumulation_steps: 40
decay_lr: true
optimizer:
  {learning_rate: 6e-4, weight_decay: 0.1, beta1: 0.9, beta2: 0.95, warmup_steps: 2000, decay_steps: 600000,
   final_learning_rate: 6e-5}
training:
  {max_steps: 600000, max_epochs: 0, grad_norm_clip: 1.0, eval_every: 2000, save_dir: out,
   save_every: "${training.eval_every}"}
)",
    .notice =
        "is read as one of nanoGPT's, over the defaults of its train.py; not as there: characters are the tokens "
        "unless data.format=tokens, the embeddings do not decay, nor does a tied head, precision=fp32 unless dtype "
        "says otherwise, and a run resumes from its newest snapshot"};
