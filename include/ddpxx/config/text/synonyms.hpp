// ddpxx/config/text/synonyms.hpp — names that other programs use for settings and values. They are suggested, never
// accepted.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ddpxx/config/synonym.hpp>
#include <ddpxx/core/suggest.hpp>

namespace ddpxx::detail {

/// Names used by Lightning, Hugging Face's Trainer, PyTorch, DeepSpeed and minGPT. A root config may add its own in
/// `static constexpr auto synonyms()`.
inline constexpr std::array kKeySynonyms{
    Synonym{"lr", "learning_rate"},
    Synonym{"wd", "weight_decay"},
    Synonym{"betas", "beta1"},
    Synonym{"adam_beta1", "beta1"},
    Synonym{"adam_beta2", "beta2"},
    Synonym{"eps", "epsilon"},
    Synonym{"adam_epsilon", "epsilon"},
    Synonym{"epochs", "max_epochs"},
    Synonym{"num_epochs", "max_epochs"},
    Synonym{"num_train_epochs", "max_epochs"},
    Synonym{"steps", "max_steps"},
    Synonym{"num_steps", "max_steps"},
    Synonym{"max_train_steps", "max_steps"},
    Synonym{"bs", "batch_size"},
    Synonym{"per_device_train_batch_size", "batch_size"},
    Synonym{"train_micro_batch_size_per_gpu", "batch_size"},
    Synonym{"train_batch_size", "global_batch_size"},
    Synonym{"total_batch_size", "global_batch_size"},
    Synonym{"effective_batch_size", "global_batch_size"},
    Synonym{"workers", "num_workers"},
    Synonym{"dataloader_num_workers", "num_workers"},
    Synonym{"gradient_clip_val", "grad_norm_clip"},
    Synonym{"gradient_clipping", "grad_norm_clip"},
    Synonym{"max_grad_norm", "grad_norm_clip"},
    Synonym{"clip_grad_norm", "grad_norm_clip"},
    Synonym{"accumulate_grad_batches", "accumulation_steps"},
    Synonym{"grad_accum_steps", "accumulation_steps"},
    Synonym{"ema", "ema_decay"},
    Synonym{"checkpoint_dir", "save_dir"},
    Synonym{"ckpt_dir", "save_dir"},
    Synonym{"ckpt_path", "save_dir"},
    Synonym{"output_dir", "save_dir"},
    Synonym{"resume", "save_dir"},
    Synonym{"resume_from_checkpoint", "save_dir"},
    Synonym{"save_steps", "save_every"},
    Synonym{"save_interval", "save_every"},
    Synonym{"every_n_train_steps", "save_every"},
    Synonym{"save_total_limit", "keep_last"},
    Synonym{"save_top_k", "keep_best"},
    Synonym{"eval_steps", "eval_every"},
    Synonym{"val_check_interval", "eval_every"},
    Synonym{"check_val_every_n_epoch", "eval_every_epochs"},
    Synonym{"limit_val_batches", "eval_samples"},
    Synonym{"warmup", "warmup_steps"},
    Synonym{"num_warmup_steps", "warmup_steps"},
    Synonym{"scheduler", "schedule"},
    Synonym{"lr_scheduler", "schedule"},
    Synonym{"lr_scheduler_type", "schedule"},
    Synonym{"lr_step_size", "decay_every"},
    Synonym{"lr_gamma", "decay_factor"},
    Synonym{"lr_milestones", "decay_at"},
    Synonym{"milestones", "decay_at"},
    Synonym{"accelerator", "device"},
    Synonym{"fp16", "precision"},
    Synonym{"bf16", "precision"},
    Synonym{"amp", "precision"},
    Synonym{"use_amp", "precision"},
    Synonym{"mixed_precision", "precision"},
    Synonym{"num_layers", "n_layer"},
    Synonym{"num_hidden_layers", "n_layer"},
    Synonym{"num_heads", "n_head"},
    Synonym{"num_attention_heads", "n_head"},
    Synonym{"hidden_size", "n_embd"},
    Synonym{"d_model", "n_embd"},
    Synonym{"context_length", "block_size"},
    Synonym{"seq_len", "block_size"},
    Synonym{"max_seq_length", "block_size"},
    Synonym{"n_positions", "block_size"},
    Synonym{"n_ctx", "block_size"},
    Synonym{"max_position_embeddings", "block_size"},
    Synonym{"embd_pdrop", "dropout"},
    Synonym{"attn_pdrop", "dropout"},
    Synonym{"resid_pdrop", "dropout"},
    Synonym{"gradient_checkpointing", "recompute"},
    Synonym{"activation_checkpointing", "recompute"},
    Synonym{"default_root_dir", "run_folder"},
};

inline constexpr std::array kValueSynonyms{
    Synonym{"gpu", "cuda"},
    Synonym{"cuda:0", "cuda"},
    Synonym{"32", "fp32"},
    Synonym{"32-true", "fp32"},
    Synonym{"16", "fp16"},
    Synonym{"16-mixed", "fp16"},
    Synonym{"half", "fp16"},
    Synonym{"bf16-mixed", "bf16"},
    Synonym{"bfloat16-mixed", "bf16"},
    Synonym{"bf16-true", "bf16_params"},
    Synonym{"deepspeed_stage_1", "zero1"},
    Synonym{"deepspeed_stage_2", "zero2"},
    Synonym{"deepspeed_stage_3", "fsdp"},
    Synonym{"full_shard", "fsdp"},
    Synonym{"hybrid_shard", "hsdp"},
};

/// The meaning of the word in `synonyms`, where `-` equals `_` and case does not matter.
inline std::optional<std::string> synonym_of(std::string_view word, std::span<const Synonym> synonyms) {
  const auto wanted = folded(word);
  for (const auto& [known, meant] : synonyms)
    if (folded(known) == wanted) return std::string{meant};
  return std::nullopt;
}

/// The value of `names` that the text probably means: by a synonym, by its first letters, or the nearest one.
inline std::optional<std::string> meant_value(std::string_view text, std::span<const std::string> names) {
  if (const auto meant = synonym_of(text, kValueSynonyms); meant && std::ranges::find(names, *meant) != names.end())
    return meant;
  return nearest(text, names);
}

}  // namespace ddpxx::detail
