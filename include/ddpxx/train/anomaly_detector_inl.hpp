// ddpxx/train/anomaly_detector_inl.hpp — definitions of anomaly_detector.hpp; ddpxx/core/inline.hpp says how they are
// compiled.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/isnan.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/nn/module.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/hollow.hpp>
#include <ddpxx/flat/intercepted_operations.hpp>
#include <ddpxx/train/anomaly_detector.hpp>

namespace ddpxx {

namespace detail {

/// Adds the tensors of `value`, which may be a list of them.
inline void add_tensors(const c10::IValue& value, std::vector<at::Tensor>& tensors) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) tensors.push_back(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) add_tensors(element, tensors);
  }
}

inline std::vector<at::Tensor> tensors_of(std::span<const c10::IValue> values) {
  std::vector<at::Tensor> tensors;
  for (const auto& value : values) add_tensors(value, tensors);
  return tensors;
}

/// Whether two tensors have the same storage. Does not ask for its memory, which a parameter under FSDP may not have.
inline bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.has_storage() && b.has_storage() && a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl();
}

/// The number of elements that are NaN.
inline std::int64_t count_nan(const at::Tensor& tensor) {
  if (!tensor.is_floating_point() && !tensor.is_complex()) return 0;
  if (tensor.numel() == 0 || tensor.is_meta() || tensor.layout() != at::kStrided) return 0;
  const auto is_nan = tensor.detach().isnan();
  return is_nan.any().item<bool>() ? is_nan.sum().item<std::int64_t>() : 0;
}

/// Its sizes, type, and the range of its numbers: `[4, 8] float32 from -1.5 to 3`.
inline std::string described(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes() << ' ' << c10::toString(tensor.scalar_type());
  if (tensor.is_floating_point() && tensor.numel() > 0 && tensor.layout() == at::kStrided) {
    const auto [least, most] = tensor.detach().to(at::kDouble).aminmax();
    text << " from " << least.item<double>() << " to " << most.item<double>();
  }
  return text.str();
}

/// Whether the operation returns memory that nothing has written to.
inline bool returns_raw_memory(std::string_view operation) {
  return operation.starts_with("aten::empty") || operation.starts_with("aten::new_empty") ||
         operation.starts_with("aten::resize");
}

}  // namespace detail

DDPXX_INLINE AnomalyDetector::AnomalyDetector(const torch::nn::Module& model) {
  for (const auto& parameter : model.named_parameters()) parameters_.emplace_back(parameter.key(), parameter.value());
}

DDPXX_INLINE void AnomalyDetector::note_parameter(const std::vector<at::Tensor>& arguments) {
  const auto is_same = [](const at::Tensor& a, const at::Tensor& b) {
    return detail::share_memory(a, b) && a.storage_offset() == b.storage_offset() && a.numel() == b.numel();
  };
  for (const auto& argument : arguments)
    for (const auto& [name, parameter] : parameters_)
      if (is_same(argument, parameter)) {
        const std::lock_guard lock{mutex_};
        last_parameter_ = name;
      }
}

DDPXX_INLINE void AnomalyDetector::call(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                                        torch::jit::Stack& stack) {
  const InterceptedOperations::Pause pause;
  const c10::NoGradGuard no_grad;
  const auto& schema = op.schema();
  // The results of a collective are written later, and NaN that one rank sends has been found there.
  if (schema.name().starts_with("c10d::")) return op.redispatchBoxed(keys, &stack);
  const auto last = [&](std::size_t count) { return std::span<const c10::IValue>{stack}.last(count); };
  const auto arguments = detail::tensors_of(last(schema.arguments().size()));
  note_parameter(arguments);
  const bool had_nan = std::ranges::any_of(arguments, detail::count_nan);
  op.redispatchBoxed(keys, &stack);
  if (had_nan || detail::returns_raw_memory(schema.name())) return;
  for (const auto& result : detail::tensors_of(last(schema.returns().size()))) {
    const auto count = detail::count_nan(result);
    if (count == 0) continue;
    std::string given;
    for (const auto& argument : arguments) {
      given += given.empty() ? "" : ", ";
      given += detail::share_memory(argument, result) ? "the memory of its result" : detail::described(argument);
    }
    const auto node = torch::autograd::get_current_node();
    auto error = Error{Errc::numerics, schema.name() +
                                           " has made NaN of numbers without NaN: keep what it is given in "
                                           "the range in which it has a result"};
    error.with("results", std::to_string(count) + " of " + std::to_string(result.numel()) + " are NaN")
        .with("pass", node ? "backward (" + node->name() + ")" : "forward")
        .with("given", given.empty() ? "no tensor" : given);
    const std::lock_guard lock{mutex_};
    if (!last_parameter_.empty()) error.with("last_parameter", last_parameter_);
    throw error;
  }
}

DDPXX_INLINE void AnomalyDetector::check_loss(const at::Tensor& loss) const {
  if (detail::count_nan(loss) == 0) return;
  for (const auto& [name, parameter] : parameters_)
    if (!is_hollow(parameter) && detail::count_nan(parameter) > 0)
      throw Error{Errc::numerics,
                  "the loss is NaN, because parameter " + name + " holds NaN: begin with weights that do not"};
  throw Error{Errc::numerics,
              "the loss is NaN, and no operation that was watched has made NaN of numbers without: look for NaN in the "
              "batch, and set model.fused=false, since fused kernels of a GPU are not watched"};
}

}  // namespace ddpxx
