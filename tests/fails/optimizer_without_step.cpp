#include "base.hpp"

struct Idle {
  using Config = ddpxx::AdamWConfig;
  Idle(const Config&, std::span<const ddpxx::Slice>) {}
  std::int64_t steps_done() const { return 0; }
  std::span<const ddpxx::Moment> moments() const { return {}; }
  void resume_at(std::int64_t) {}
};

template class ddpxx::Trainer<Model, Data, Idle, ddpxx::Float32, ddpxx::DDP>;
