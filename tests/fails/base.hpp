// base.hpp — the parts of a trainer that compiles; each test replaces one of them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <ddpxx/data/batch.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/train/trainer.hpp>

struct Data {
  std::int64_t size() const { return 1; }
  ddpxx::Batch batch(std::span<const std::int64_t>) const { return {}; }
};

struct Model : torch::nn::Module {
  ddpxx::Loss forward(const ddpxx::Batch&) { return {}; }
};
