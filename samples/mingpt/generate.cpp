// generate.cpp — `mingpt generate`.
#include "generate.hpp"

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/ops/tensor.h>

#include <ddpxx/comm/device.hpp>
#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/data/alphabet.hpp>
#include <ddpxx/nn/generate.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/snapshot/load_model.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/snapshot_choice.hpp>
#include <ddpxx/train/chosen_snapshot.hpp>

#include "command_line.hpp"
#include "prompt.hpp"
#include "run_config.hpp"
#include "shown_text.hpp"
#include "snapshot_place.hpp"
#include "training_text.hpp"
#include "vocabulary.hpp"

void generate(const RunConfig& config) {
  if (ddpxx::environment("RANK").value_or("0") != "0") return;
  const auto storage = open_snapshot_place(config.snapshot.name, "generate");
  const auto device = ddpxx::pick_device(config.training.device, {});
  ddpxx::Group alone;
  std::optional<Vocabulary> vocabulary;
  std::shared_ptr<ddpxx::GPT> model;
  auto settings = config.generate;
  if (settings.tokens == 0) settings.tokens = kUsualTokens;
  const auto prompt = prompt_text(settings);
  std::vector<std::int64_t> ids;
  ddpxx::read_chosen(
      *storage, ddpxx::parse_snapshot_choice(config.snapshot.name), alone, [&](const ddpxx::Manifest& manifest) {
        if (config.data.format == DataFormat::tokens)
          vocabulary = token_vocabulary(config.data);
        else if (auto alphabet = ddpxx::Alphabet::find(manifest.run.settings))
          vocabulary = Vocabulary{std::move(*alphabet)};
        else
          throw ddpxx::Error{ddpxx::Errc::storage,
                             "the snapshot does not record which characters its model knows: it was "
                             "written by an older version, or converted; train one step more with its "
                             "text, and the next snapshot does"};
        // Check the prompt before the model is built and read, because the model may be large.
        ids = vocabulary->encode_prompt(prompt);
        at::manual_seed(config.training.seed);
        model = std::make_shared<ddpxx::GPT>(config.model, vocabulary->size(), config.data.text.block_size);
        model->to(device);
        return ddpxx::try_load_model(*model, *storage, manifest).value_or("");
      });

  ddpxx::SingleDevice strategy{{}, alone};
  const auto text =
      ddpxx::generate(*model, strategy.runner(), at::tensor(ids, at::kLong).unsqueeze(0).to(device), settings)
          .to(at::kCPU);
  const auto* first = text.const_data_ptr<std::int64_t>();
  std::cout << shown_text(vocabulary->decode({first, static_cast<std::size_t>(text.numel())})) << std::endl;
}
