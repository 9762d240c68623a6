#include <cstddef>

#include "base.hpp"

struct DataOfUnsignedSize {
  std::size_t size() const { return 1; }
  ddpxx::Batch batch(std::span<const std::int64_t>) const { return {}; }
};

template class ddpxx::Trainer<Model, DataOfUnsignedSize, ddpxx::AdamW, ddpxx::Float32, ddpxx::DDP>;
