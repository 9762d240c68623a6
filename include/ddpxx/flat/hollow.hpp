// ddpxx/flat/hollow.hpp — parameters without values: using one throws an error that names it.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/hollow_storage.hpp>

namespace ddpxx {

/// True if a tensor has elements but no memory for them.
inline bool is_hollow(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return false;
  if (tensor.storage().nbytes() == 0) return true;
  try {
    static_cast<void>(tensor.const_data_ptr());
    return false;
  } catch (const c10::Error&) {
    return true;
  }
}

/// The error text about a parameter without values, with what to do.
inline std::string hollow_sentence(const std::string& name) {
  return "parameter \"" + name +
         "\" has no values on this rank: the trainer that held it ended before it made the model whole. Call "
         "Trainer::close() on every rank before the trainer ends, or build the model anew and load a snapshot";
}

/// Removes the values of a segment's parameters for good: reading or writing one of them throws a c10::Error with
/// `hollow_sentence`.
inline void make_hollow(const Arena& arena, const Segment& segment) {
  const c10::NoGradGuard no_grad;
  for (auto i = segment.first; i < segment.last; ++i) {
    const auto& entry = arena[i];
    const auto storage =
        hollow_storage(entry.parameter.nbytes(), entry.parameter.device(), hollow_sentence(entry.name));
    auto hollow = at::empty({0}, entry.parameter.options().requires_grad(false));
    hollow.set_(storage, 0, entry.shape);
    at::Tensor{entry.parameter}.set_data(hollow);
  }
}

}  // namespace ddpxx
