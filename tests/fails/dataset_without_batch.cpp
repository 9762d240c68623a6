#include "base.hpp"

struct Empty {
  std::int64_t size() const { return 0; }
};

template class ddpxx::Trainer<Model, Empty, ddpxx::AdamW, ddpxx::Float32, ddpxx::DDP>;
