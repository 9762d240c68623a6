#include "base.hpp"

struct ChangingData {
  std::int64_t size() const { return 1; }
  ddpxx::Batch batch(std::span<const std::int64_t>) { return {}; }
};

template class ddpxx::Trainer<Model, ChangingData, ddpxx::AdamW, ddpxx::Float32, ddpxx::DDP>;
