#include "base.hpp"

struct DataOfOddFacts : Data {
  ddpxx::Settings recorded() { return {}; }
};

template class ddpxx::Trainer<Model, DataOfOddFacts, ddpxx::AdamW, ddpxx::Float32, ddpxx::DDP>;
