// ddpxx/train/anomaly_detector_inl.hpp — definitions of anomaly_detector.hpp; ddpxx/core/inline.hpp says how they are
// compiled.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
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
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/isnan.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function.h>
#include <torch/nn/module.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/hollow.hpp>
#include <ddpxx/flat/intercepted_operations.hpp>
#include <ddpxx/train/anomaly_detector.hpp>

namespace ddpxx {

namespace detail {

inline std::vector<at::Tensor> tensors_of(std::span<const c10::IValue> values) {
  std::vector<at::Tensor> tensors;
  for (const auto& value : values) for_each_tensor(value, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

/// Whether two tensors have the same storage. Does not ask for its memory, which a parameter under FSDP may not have.
inline bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.has_storage() && b.has_storage() && a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl();
}

/// Which numbers that are not finite are among those of tensors.
struct NotFinite {
  bool nan = false, infinite = false;
};

inline NotFinite not_finite(std::span<const at::Tensor> tensors) {
  const c10::NoGradGuard no_grad;
  NotFinite found;
  for (const auto& tensor : tensors) {
    if (!tensor.is_floating_point() && !tensor.is_complex()) continue;
    if (tensor.numel() == 0 || tensor.is_meta() || tensor.layout() != at::kStrided) continue;
    if (tensor.isfinite().all().item<bool>()) continue;
    found.nan = found.nan || tensor.isnan().any().item<bool>();
    found.infinite = found.infinite || tensor.isinf().any().item<bool>();
  }
  return found;
}

/// Whether an argument of an operation is an infinite number, such as that of a mask.
inline bool is_infinite(const c10::IValue& argument) { return argument.isDouble() && std::isinf(argument.toDouble()); }

/// Its sizes, type, and the range of its numbers: `[4, 8] Float from -1.5 to 3`.
inline std::string described(const at::Tensor& tensor) {
  const c10::NoGradGuard no_grad;
  std::ostringstream text;
  text << tensor.sizes() << ' ' << c10::toString(tensor.scalar_type());
  if (!tensor.is_floating_point() || tensor.numel() == 0 || tensor.layout() != at::kStrided) return text.str();
  try {
    const auto [least, most] = tensor.aminmax();
    text << " from " << least.item<double>() << " to " << most.item<double>();
  } catch (const c10::Error&) {  // too little memory, or a type without an order; the rest is worth telling
  }
  return text.str();
}

/// `aten::log of the forward pass`
inline std::string named_with_pass(const std::string& operation) {
  const auto node = torch::autograd::get_current_node();
  return operation + (node ? " of " + node->name() : " of the forward pass");
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
  const auto& schema = op.schema();
  // The results of a collective are written later, and NaN that one rank sends has been found there.
  if (schema.name().starts_with("c10d::")) return op.redispatchBoxed(keys, &stack);
  const auto last = [&](std::size_t count) { return std::span<const c10::IValue>{stack}.last(count); };
  const auto given = last(schema.arguments().size());
  const auto arguments = detail::tensors_of(given);
  note_parameter(arguments);
  const auto before = detail::not_finite(arguments);
  const bool was_finite = !before.nan && !before.infinite && std::ranges::none_of(given, detail::is_infinite);
  op.redispatchBoxed(keys, &stack);
  if (before.nan || detail::returns_raw_memory(schema.name())) return;
  const auto results = detail::tensors_of(last(schema.returns().size()));
  const auto after = detail::not_finite(results);
  const std::lock_guard lock{mutex_};
  if (after.infinite && was_finite && first_infinite_.empty()) first_infinite_ = detail::named_with_pass(schema.name());
  if (after.nan) throw made_nan(schema.name(), arguments, results);
}

DDPXX_INLINE Error AnomalyDetector::made_nan(const std::string& operation, std::span<const at::Tensor> arguments,
                                             std::span<const at::Tensor> results) const {
  std::string given;
  for (const auto& argument : arguments) {
    const auto shares_memory = [&](const at::Tensor& result) { return detail::share_memory(argument, result); };
    given += given.empty() ? "" : ", ";
    given += std::ranges::any_of(results, shares_memory) ? "the memory of its result" : detail::described(argument);
  }
  auto error = Error{Errc::numerics, detail::named_with_pass(operation) +
                                         " has made NaN of numbers without NaN: keep what it is given in the range in "
                                         "which it has a result"};
  error.with("given", given.empty() ? "no tensor" : given);
  if (!first_infinite_.empty()) error.with("first_infinite_number", "by " + first_infinite_);
  if (!last_parameter_.empty()) error.with("last_parameter", last_parameter_);
  return error;
}

DDPXX_INLINE void AnomalyDetector::check_loss(const at::Tensor& loss) const {
  const InterceptedOperations::Pause pause;
  if (!detail::not_finite({{loss}}).nan) return;
  for (const auto& [name, parameter] : parameters_)
    if (!is_hollow(parameter) && detail::not_finite({{parameter}}).nan)
      throw Error{Errc::numerics,
                  "the loss is NaN, because parameter " + name + " holds NaN: begin with weights that do not"};
  throw Error{Errc::numerics,
              "the loss is NaN, and no operation that was watched has made NaN of numbers without: look for NaN in the "
              "batch; kernels of fused layers on a GPU are not watched"};
}

}  // namespace ddpxx
