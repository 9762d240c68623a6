// train.hpp — one training run, for any strategy and precision.
#pragma once

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/tensor.h>

#include <ddpxx/comm/on_every_rank.hpp>
#include <ddpxx/config/number_text.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/data/held_out_text.hpp>
#include <ddpxx/nn/generate.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/nn/make_model.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/snapshot/load_model.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/storage/open_storage.hpp>
#include <ddpxx/train/chosen_snapshot.hpp>
#include <ddpxx/train/recorded_gpt.hpp>
#include <ddpxx/train/trainer.hpp>

#include "initial_weights.hpp"
#include "prompt.hpp"
#include "run_config.hpp"
#include "saved_network.hpp"
#include "strategies/strategies.hpp"
#include "text_parts.hpp"
#include "training_text.hpp"
#include "vocabulary.hpp"

void print_sample(ddpxx::GPT& model, auto& strategy, const Vocabulary& vocabulary, const at::Tensor& prompt,
                  const ddpxx::GenerateConfig& config, ddpxx::Group& group) {
  if (config.tokens == 0) return;
  [[maybe_unused]] const auto whole = strategy.gathered();
  if (group.rank() != 0) return;
  const at::Tensor ids = ddpxx::generate(model, strategy.runner(), prompt.to(group.device()), config).to(at::kCPU);
  const auto* first = ids.const_data_ptr<std::int64_t>();
  // The text is for people to read, and a launcher passes it on to its terminal.
  std::cout << "--- generated text ---\n"
            << ddpxx::harmless_lines(vocabulary.decode({first, static_cast<std::size_t>(ids.numel())})) << std::endl;
}

template <class Strategy, class Precision>
void train(const Run& run, const typename Strategy::Config& strategy, const typename Precision::Config& precision,
           ddpxx::Group& group, const std::shared_ptr<const TrainingText>& text) {
  using Data = ddpxx::Subset<TrainingText>;
  using Train = ddpxx::Trainer<ddpxx::GPT, Data, ddpxx::AdamW, Precision, Strategy>;

  const RunConfig& config = run.config;
  // Check the prompt before the training, so that a wrong one is reported at once.
  const auto& vocabulary = text->vocabulary();
  const auto prompt = at::tensor(vocabulary.encode_prompt(prompt_text(config.generate)), at::kLong).unsqueeze(0);
  auto model = ddpxx::make_model<ddpxx::GPT>(config.training.seed, group.device(), config.model, vocabulary.size(),
                                             text->block_size());
  if (run.loads_file)
    ddpxx::on_every_rank(group, ddpxx::Errc::storage, [&] {
      load_weights_file(*model, config, group);
      return true;
    });
  if (!run.chosen.place.empty()) {
    const auto storage = ddpxx::open_storage(run.chosen.place);
    ddpxx::read_chosen(*storage, run.chosen, group, [&](const ddpxx::Manifest& manifest) {
      return ddpxx::on_every_rank(group, ddpxx::Errc::storage, [&] {
        if (const auto saved = ddpxx::recorded_gpt(manifest.run.settings))
          check_network(*saved, config.model, "the snapshot", group);
        return ddpxx::try_load_model(*model, *storage, manifest).value_or("");
      });
    });
  }
  if (!run.only_evaluates && group.rank() == 0) {
    std::printf("%s\nnumber of parameters: %.2fM\n", text->describe().c_str(),
                static_cast<double>(model->num_block_parameters()) / 1e6);
  }

  const auto parts = text_parts(config, text, run.only_evaluates);
  auto training = config.training;
  auto batch_size = config.data.batch_size;
  if (run.only_evaluates) {  // the evaluated text may differ from the training text, which sets the limits of a step
    training.accumulation_steps = 1;
    training.global_batch_size = 0;
    batch_size = std::min(batch_size, (parts.train->size() + group.size() - 1) / group.size());
  }
  Train trainer{group,
                model,
                parts.train,
                {.batch_size = batch_size,
                 .num_workers = config.data.num_workers,
                 .training = training,
                 .snapshot = config.snapshot,
                 .optimizer = config.optimizer,
                 .precision = precision,
                 .strategy = strategy,
                 .early_stopping = config.early_stopping,
                 .plateau = config.plateau,
                 .parameter_groups = config.parameter_groups},
                run.record,
                {.validation = parts.validation,
                 .strategy_name = name_of(config.strategy) +
                                  (config.recompute == "none" ? std::string{} : ", recompute " + config.recompute),
                 .precision_name = text_of(config.precision)}};
  if (run.only_evaluates) {
    const auto result = trainer.evaluate();
    if (group.rank() == 0) {
      std::cout << "val_loss " << ddpxx::real_text(result.mean_loss) << std::endl;
      for (const auto& metric : result.metrics)
        std::cout << "val_" << metric.name << ' ' << ddpxx::real_text(metric.value) << std::endl;
    }
    return;
  }
  trainer.fit();
  print_sample(*model, trainer.strategy(), vocabulary, prompt, config.generate, group);
}
