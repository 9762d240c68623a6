#include "base.hpp"

struct Idle {
  using Config = ddpxx::AdamWConfig;
  Idle(const Config&, std::span<const ddpxx::Slice>) {}
  std::span<const ddpxx::Moment> moments() const { return {}; }
};

template class ddpxx::Trainer<Model, Data, Idle, ddpxx::Float32, ddpxx::DDP>;
