#include <ddpxx/parallel/step_in_backward.hpp>
#include <ddpxx/precision/autocast.hpp>

#include "base.hpp"

template class ddpxx::Trainer<Model, Data, ddpxx::AdamW, ddpxx::AutocastFP16, ddpxx::StepInBackward<ddpxx::DDP>>;
