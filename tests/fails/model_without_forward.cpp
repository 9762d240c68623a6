#include "base.hpp"

struct Mute : torch::nn::Module {};

template class ddpxx::Trainer<Mute, Data, ddpxx::AdamW, ddpxx::Float32, ddpxx::DDP>;
