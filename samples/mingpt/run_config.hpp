// run_config.hpp — all settings of a minGPT run; the path of a field is its YAML key and its argument.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ddpxx/comm/connect_config.hpp>
#include <ddpxx/config/alias.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/data/char_dataset_config.hpp>
#include <ddpxx/data/token_dataset_config.hpp>
#include <ddpxx/nn/generate_config.hpp>
#include <ddpxx/nn/gpt_config.hpp>
#include <ddpxx/optim/adamw_config.hpp>
#include <ddpxx/optim/parameter_groups_config.hpp>
#include <ddpxx/optim/plateau_config.hpp>
#include <ddpxx/precision/loss_scaler_config.hpp>
#include <ddpxx/snapshot/snapshot_config.hpp>
#include <ddpxx/train/early_stopping_config.hpp>
#include <ddpxx/train/idle_snapshot_settings.hpp>
#include <ddpxx/train/training_config.hpp>

#include "data_format.hpp"
#include "outputs_among_texts.hpp"
#include "precision_name.hpp"
#include "prompt.hpp"
#include "spellings.hpp"
#include "strategy_config.hpp"

struct DataConfig {
  ddpxx::CharDatasetConfig text;
  DataFormat format = DataFormat::text;
  std::optional<std::int64_t> vocab_size = {};
  std::string tokenizer = {};
  std::string val_path = {};
  std::string split = "tail";
  double train_split = 0.9;
  std::int64_t batch_size = 8;
  std::int64_t num_workers = 0;

  ddpxx::CharDatasetConfig validation_text() const { return {.path = val_path, .block_size = text.block_size}; }
  ddpxx::TokenDatasetConfig tokens(const std::string& path) const {
    return {.path = path,
            .block_size = text.block_size,
            .vocab_size = vocab_size.value_or(ddpxx::TokenDatasetConfig{}.vocab_size)};
  }

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(
        flatten<&DataConfig::text>(),
        field<&DataConfig::format>(
            "What path holds: text, or tokens: token ids in files as nanoGPT's train.bin; of a folder, those that end "
            "with .bin",
            Resume::must_match),
        field<&DataConfig::vocab_size>(
            "Number of different tokens, with format=tokens; the ids are 16-bit numbers, or above 65536 tokens 32-bit "
            "numbers; null takes 50304, GPT-2's number rounded up",
            between(1, TokenDatasetConfig::kMaxVocabSize), Unit::tokens, Resume::must_match),
        field<&DataConfig::tokenizer>(
            "Tokenizer that made the tokens, for prompts and generated text: a tokenizer.json, a vocab.json with "
            "merges.txt beside it, or a folder with one of the two; empty: prompts and text are numbers of tokens",
            Resume::free),
        field<&DataConfig::val_path>(
            "Text to validate on, named as path is, without a file of tokens that path names too; all of path is then "
            "used for training",
            Resume::free),
        field<&DataConfig::split>(
            "What validates without val_path: tail is the end of the text, random are overlapping samples drawn as "
            "minGPT-ddp draws them, which also measure memorizing",
            choices("tail", "random"), Resume::must_match),
        field<&DataConfig::train_split>("Fraction of the text used for training; the rest is used for validation",
                                        above(0.0), at_most(1.0), Resume::must_match),
        field<&DataConfig::batch_size>("Samples in each batch of a rank", at_least(1), Unit::samples, Resume::free),
        field<&DataConfig::num_workers>("Threads that prepare the next batches during a step; with 0 the training "
                                        "thread prepares them between steps",
                                        between(0, 1024), Unit::threads, Resume::free));
  }
  std::vector<ddpxx::FieldError> check() const {
    std::vector<ddpxx::FieldError> errors;
    const auto refuse = [&](bool is_wrong, const char* field, const char* why) {
      if (is_wrong) errors.push_back({field, why});
    };
    const bool is_text = format == DataFormat::text;
    refuse(text.path.empty(), "path",
           is_text ? "no text to train on: set data.path=FILE, a folder, a pattern or s3://bucket/prefix"
                   : "no tokens to train on: set data.path=FILE, a folder or a pattern");
    refuse(is_text && vocab_size, "vocab_size",
           "a text has as many tokens as different characters: leave it out, or set format=tokens");
    refuse(is_text && !tokenizer.empty(), "tokenizer",
           "a text is trained on by its characters: make tokens of it with `ddpxx tokenize`, and set "
           "format=tokens, or leave the tokenizer out");
    refuse(!is_text && text.max_bytes != 0, "max_bytes", "tokens are used as a whole: set it to 0, or set format=text");
    refuse(!is_text && text.truncate != 1.0, "truncate", "tokens are used as a whole: set it to 1, or set format=text");
    refuse(!val_path.empty() && split == "random", "split",
           "split=random takes validation samples out of data.path, but data.val_path names a text for "
           "validation: leave out one of the two");
    return errors;
  }
};

struct RunConfig {
  DataConfig data;
  ddpxx::GPTConfig model;
  /// The values of minGPT where they differ from torch.optim.AdamW's.
  ddpxx::AdamWConfig optimizer{.learning_rate = 3e-4, .weight_decay = 0.1, .beta2 = 0.95};
  ddpxx::ParameterGroupsConfig parameter_groups;
  ddpxx::TrainingConfig training;
  ddpxx::SnapshotConfig snapshot;
  ddpxx::EarlyStoppingConfig early_stopping;
  ddpxx::PlateauConfig plateau;
  StrategyConfig strategy{std::in_place_index<kDDP>};
  std::string recompute = "none";
  PrecisionName precision = PrecisionName::fp32;
  ddpxx::LossScalerConfig scaler;
  ddpxx::ConnectConfig comm;
  ddpxx::GenerateConfig generate;
  std::string run_folder = {};
  std::string init_from = {};

  /// nanoGPT's "resume" asks for what ddpxx always does: a run resumes if save_dir has a snapshot.
  bool has_initial_weights() const { return !init_from.empty() && init_from != "resume"; }

  ddpxx::RecomputeConfig recompute_config() const {
    return read_recompute(recompute).value_or(ddpxx::RecomputeConfig{});
  }

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(
        field<&RunConfig::model>("The network", Resume::must_match),
        field<&RunConfig::strategy>("How parameters are held over the ranks",
                                    std::apply([](auto... name) { return choices(name...); }, kStrategyNames),
                                    Resume::free),
        field<&RunConfig::recompute>(
            "Activations that backward computes again: none, all, every:K, segments:K or selective", Resume::free),
        field<&RunConfig::precision>("Number format: bf16 and fp16 are autocast, with parameters in float32; with "
                                     "bf16_params the model's parameters are bfloat16"),
        field<&RunConfig::run_folder>(
            "Folder of this run's configuration and metrics, with strftime's %Y-%m-%d and %H-%M-%S; empty or . makes "
            "none",
            Output::run_folder, Resume::free),
        field<&RunConfig::init_from>("Weights at step 0: FILE.safetensors, FILE.pt, a folder with a GPT-2, or a "
                                     "snapshot, written as in snapshot.name; if empty, they are random",
                                     Resume::free));
  }

  std::vector<ddpxx::FieldError> check() const {
    auto errors = ddpxx::idle_snapshot_settings(training, snapshot);
    if (const auto setting = training.evaluation_setting();
        !setting.empty() && data.train_split == 1.0 && data.val_path.empty())
      errors.push_back({"training." + setting,
                        "data.train_split=1 leaves nothing to evaluate on: lower it, set data.val_path, or set " +
                            training.settings_without_evaluations()});
    if (data.format == DataFormat::text && data.text.max_bytes == 0)  // a maximum may end before the files of the run
      for (const auto& [key, folder] : {std::pair{"data.path", &data.text.path}, {"data.val_path", &data.val_path}})
        for (auto& error :
             outputs_among_texts(*folder, key,
                                 {{"training.save_dir", training.save_dir},
                                  {"training.metrics", training.metrics},
                                  {"training.csv", training.csv},
                                  {"training.tensorboard", training.tensorboard},
                                  {"training.profile", training.profile},
                                  {"run_folder", run_folder == "." || run_folder == "./" ? "" : run_folder}}))
          errors.push_back(std::move(error));
    if (init_from == "scratch")
      errors.push_back(
          {"init_from",
           "a run begins anew where training.save_dir has no snapshot, and resumes where it has one: leave "
           "init_from out, and choose another training.save_dir to begin anew"});
    if (!read_recompute(recompute))
      errors.push_back({"recompute", "\"" + recompute + "\" is none of none, all, every:K, segments:K, selective"});
    const auto does_nothing = [&](const char* field, const char* why) {
      errors.push_back({field, why, ddpxx::Severity::warning});
    };
    if (optimizer.schedule != ddpxx::Schedule::none && training.max_steps > 0 &&
        optimizer.warmup_steps > training.max_steps)
      does_nothing("optimizer.warmup_steps", "is above training.max_steps: the run ends before its peak learning rate");
    if (has_initial_weights() && !snapshot.name.empty())
      does_nothing("init_from", "does nothing beside snapshot=, which names what the run begins with: leave out one");
    if (precision != PrecisionName::fp16 && !(scaler == ddpxx::LossScalerConfig{}))
      does_nothing("scaler", "does nothing unless precision=fp16: no other one scales the loss");
    try {
      prompt_text(generate);
    } catch (const ddpxx::Error& error) {
      errors.push_back({"generate.prompt", error.what()});
    }
    return errors;
  }

  /// `mingpt 50 10`: the tutorials' total_epochs and save_every.
  static constexpr auto positionals() { return std::array{"training.max_epochs", "training.save_every_epochs"}; }

  /// The spellings of the guides, minGPT-ddp, minGPT and nanoGPT.
  static constexpr auto aliases() {
    using ddpxx::Alias;
    return std::array{
        Alias{"ddp", "strategy"},
        Alias{"data.dataset", "data.path", path_of_dataset},
        Alias{"training.batch_size", "data.batch_size"},
        Alias{"training.learning_rate", "optimizer.learning_rate"},
        Alias{"training.weight_decay", "optimizer.weight_decay"},
        Alias{"data_config", "data"},
        Alias{"gpt_config", "model"},
        Alias{"optimizer_config", "optimizer"},
        Alias{"trainer_config", "training"},
        Alias{"trainer_config.data_loader_workers", "data.num_workers"},
        Alias{"trainer_config.snapshot_path", "training.save_dir"},  // a place for several snapshots
        Alias{"trainer_config.save_every", "training.save_every_epochs"},
        Alias{"trainer_config.use_amp", "precision", precision_of_use_amp},
        Alias{"trainer", "training"},
        Alias{"trainer.num_workers", "data.num_workers"},
        Alias{"trainer.max_iters", "training.max_steps"},
        Alias{"trainer.betas[0]", "optimizer.beta1"},
        Alias{"trainer.betas[1]", "optimizer.beta2"},
        Alias{"system.seed", "training.seed"},
        Alias{"system.work_dir", "run_folder"},
        Alias{"hydra.run.dir", "run_folder"},
        Alias{"total_epochs", "training.max_epochs"},
        Alias{"save_every", "training.save_every_epochs"},
        Alias{"batch_size", "data.batch_size"},
        Alias{"block_size", "data.block_size"},
        Alias{"dataset", "data.path", path_of_dataset},
        Alias{"n_layer", "model.n_layer"},
        Alias{"n_head", "model.n_head"},
        Alias{"n_embd", "model.n_embd"},
        Alias{"dropout", "model.dropout"},
        Alias{"bias", "model.bias"},
        Alias{"learning_rate", "optimizer.learning_rate"},
        Alias{"weight_decay", "optimizer.weight_decay"},
        Alias{"beta1", "optimizer.beta1"},
        Alias{"beta2", "optimizer.beta2"},
        Alias{"warmup_iters", "optimizer.warmup_steps"},
        Alias{"lr_decay_iters", "optimizer.decay_steps"},
        Alias{"min_lr", "optimizer.final_learning_rate"},
        Alias{"grad_clip", "training.grad_norm_clip"},
        Alias{"max_iters", "training.max_steps"},
        Alias{"eval_interval", "training.eval_every"},
        Alias{"gradient_accumulation_steps", "training.accumulation_steps", accumulation_of_a_rank},
        Alias{"decay_lr", "optimizer.schedule", schedule_of_decay_lr},
        Alias{"out_dir", "training.save_dir"},
        Alias{"device", "training.device"},
        Alias{"seed", "training.seed"},
        Alias{"dtype", "precision"},
        Alias{"start", "generate.prompt"},
        Alias{"max_new_tokens", "generate.tokens"},
        Alias{"temperature", "generate.temperature"},
        Alias{"top_k", "generate.top_k"},
        Alias{"top_p", "generate.top_p"},
    };
  }
  static constexpr ddpxx::FileDefaults python_defaults() { return kDefaultsOfNanoGPT; }
  static constexpr auto ignored() {
    using ddpxx::choices, ddpxx::Ignored;
    return std::array{
        Ignored{"hydra", "the working directory is never changed; run_folder makes a folder for each run"},
        Ignored{"hydra.sweep", "--sweep-dir names the folder of a sweep"},
        Ignored{"eval_only", "mingpt evaluate --from PLACE evaluates a snapshot", choices("false")},
        Ignored{"always_save_checkpoint", "training.save_every and snapshot.keep_best say what is kept"},
        Ignored{"backend", "comm.backend chooses it; auto is NCCL for GPUs, and shared memory or Gloo for CPUs"},
        Ignored{"num_samples", "one text is generated"},
        Ignored{"wandb_log", "training.metrics, training.csv and training.tensorboard write files that any tool reads"},
        Ignored{"wandb_project",
                "training.metrics, training.csv and training.tensorboard write files that any tool reads"},
        Ignored{"wandb_run_name",
                "training.metrics, training.csv and training.tensorboard write files that any tool reads"},
        Ignored{"compile", "there is nothing to compile at run time"},
        Ignored{"eval_iters", "training.eval_samples says how many samples an evaluation uses"},
        Ignored{"log_interval", "training.progress_every is the time between two lines of progress"},
    };
  }
};
