// ddpxx/parallel/same_model.hpp — checks that all ranks hold the same model.
#pragma once

#include <ddpxx/comm/group.hpp>
#include <ddpxx/flat/flat_model.hpp>

namespace ddpxx {

/// Compares names, shapes, dtypes and order of the parameters and buffers of all ranks.
/// Ranks   Collective: either all ranks throw or none does.
/// Errors  `peer`, naming the first difference and both ranks.
void check_same_model(const FlatModel& model, const Group& group);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/parallel/same_model_inl.hpp>
#endif
