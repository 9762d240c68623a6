#include "base.hpp"

struct DataOfOddContext : Data {
  using Data::batch;
  ddpxx::Batch batch(std::span<const std::int64_t>, ddpxx::BatchContext&) const { return {}; }
};

template class ddpxx::Trainer<Model, DataOfOddContext, ddpxx::AdamW, ddpxx::Float32, ddpxx::DDP>;
