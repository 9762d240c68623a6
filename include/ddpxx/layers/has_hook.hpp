// ddpxx/layers/has_hook.hpp — tells whether a program has registered a hook on a parameter.
#pragma once

#include <algorithm>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

namespace ddpxx::detail {

/// Whether a hook of register_hook() is on the parameter. One that was removed does not count.
inline bool has_hook(const at::Tensor& parameter) {
  const auto* const meta = torch::autograd::impl::get_autograd_meta(parameter);
  return meta != nullptr && meta->cpp_hooks_list_ != nullptr &&
         std::ranges::any_of(*meta->cpp_hooks_list_, [](const auto& hook) { return static_cast<bool>(hook); });
}

}  // namespace ddpxx::detail
