// ddpxx/flat/sizes_only.hpp — operations that allocate their results and compute nothing, to find out what memory a
// model needs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <ddpxx/flat/intercepted_operations.hpp>

namespace ddpxx {

/// Thrown under SizesOnly by an operation whose result has a size that depends on values, or that reads a value on the
/// host.
struct NeedsValues : std::exception {
  const char* what() const noexcept override {
    return "an operation needs the values of tensors, not only their sizes";
  }
};

namespace detail {

/// One call of an operation of LibTorch under SizesOnly.
class SizesOnlyCall {
 public:
  SizesOnlyCall(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack)
      : op_{&op}, keys_{keys}, stack_{&stack}, arguments_(stack.end() - num_arguments(), stack.end()) {}

  /// An operation without a kernel for the CPU is made of others, which then come here.
  void run() {
    if (op_->hasTag(at::Tag::data_dependent_output) || op_->hasTag(at::Tag::dynamic_output_shape)) throw NeedsValues{};
    if (is_written_only()) return skip_writing();
    if (!op_->hasKernelForDispatchKey(c10::DispatchKey::CPU)) return op_->redispatchBoxed(keys_, stack_);
    if (is_attention("aten::_scaled_dot_product_flash_attention_for_cpu")) return attend();
    if (is_attention("aten::_scaled_dot_product_flash_attention_for_cpu_backward")) return attend_backward();
    if (!takes_numbers() || has_no_results() || aliases() || !op_->hasKernelForDispatchKey(c10::DispatchKey::Meta))
      return compute();
    allocate_results();
  }

 private:
  std::ptrdiff_t num_arguments() const { return std::ssize(op_->schema().arguments()); }

  /// Whether floating-point or complex numbers go into the operation, all of them on the CPU. Whole numbers are
  /// computed, since they are often indices.
  bool takes_numbers() const {
    bool numbers = false, on_cpu = true;
    for (const auto& argument : arguments_)
      for_each_tensor(argument, [&](const at::Tensor& tensor) {
        numbers = numbers || tensor.is_floating_point() || tensor.is_complex();
        on_cpu = on_cpu && tensor.is_cpu();
      });
    return numbers && on_cpu;
  }
  /// Whether the operation has no tensor as a result, such as the choice of the fastest attention.
  bool has_no_results() const {
    return std::ranges::none_of(op_->schema().returns(), [](const c10::Argument& result) {
      return result.type()->isSubtypeOf(*c10::TensorType::get()) ||
             result.type()->isSubtypeOf(*c10::ListType::ofTensors());
    });
  }
  /// Whether its results are views of its arguments, or it changes the sizes of one.
  bool aliases() const {
    return op_->hasTag(at::Tag::inplace_view) ||
           std::ranges::any_of(op_->schema().arguments(),
                               [](const c10::Argument& argument) { return argument.alias_info() != nullptr; });
  }
  /// Whether all that the operation does is to write into arguments that have their sizes already. An empty `out` gets
  /// its size from the operation.
  bool is_written_only() const {
    const auto& schema = op_->schema();
    const auto writes = [](const c10::Argument& argument) {
      return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    };
    return !op_->hasTag(at::Tag::inplace_view) && takes_numbers() && std::ranges::any_of(schema.arguments(), writes) &&
           std::ranges::all_of(schema.returns(), writes) && !has_empty_out();
  }
  bool has_empty_out() const {
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      if (!op_->schema().arguments()[i].is_out()) continue;
      const auto& out = arguments_[i];
      if (!out.isTensor() || !out.toTensor().defined() || out.toTensor().numel() == 0) return true;
    }
    return false;
  }
  bool is_attention(const char* name) const {
    return op_->schema().name() == name && op_->schema().overload_name().empty() && takes_numbers();
  }

  void compute() {
    const InterceptedOperations::Pause pause;
    op_->redispatchBoxed(keys_, stack_);
  }

  void give(std::vector<c10::IValue> results) {
    torch::jit::drop(*stack_, static_cast<std::size_t>(num_arguments()));
    for (auto& result : results) stack_->push_back(std::move(result));
  }

  void skip_writing() {
    const auto& schema = op_->schema();
    std::vector<c10::IValue> results;
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      const auto* alias = schema.arguments()[i].alias_info();
      if (alias == nullptr || !alias->isWrite()) continue;
      for_each_tensor(arguments_[i], clear_indices);
      if (results.size() < schema.returns().size()) results.push_back(arguments_[i]);
    }
    give(std::move(results));
  }

  /// The results of the kernel that LibTorch has for sizes alone, with memory.
  void allocate_results() {
    torch::jit::Stack sizes;
    {
      const InterceptedOperations::Pause pause;
      const c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
      for (const auto& argument : arguments_) sizes.push_back(without_memory(argument));
      op_->redispatchBoxed(c10::DispatchKeySet{c10::DispatchKey::Meta}, &sizes);
    }
    for (auto& result : sizes) result = with_memory(result);
    give(std::move(sizes));
  }

  static at::Tensor on(at::Device device, const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(device));
  }
  static c10::IValue without_memory(const c10::IValue& value) {
    if (value.isTensor()) return on(at::kMeta, value.toTensor());
    if (value.isDevice()) return at::Device{at::kMeta};
    if (value.isTensorList()) {
      c10::List<at::Tensor> tensors;
      for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(on(at::kMeta, tensor));
      return tensors;
    }
    if (value.isList() && value.toList().elementType()->isSubtypeOf(*c10::OptionalType::ofTensor())) {
      c10::List<std::optional<at::Tensor>> tensors;
      for (const c10::IValue& element : value.toListRef())
        tensors.push_back(element.isNone() ? std::nullopt : std::optional{on(at::kMeta, element.toTensor())});
      return tensors;
    }
    return value;
  }
  static at::Tensor with_memory(const at::Tensor& tensor) {
    const InterceptedOperations::Pause pause;
    const auto allocated = on(at::kCPU, tensor);
    if (allocated.defined()) clear_indices(allocated);
    return allocated;
  }
  static c10::IValue with_memory(const c10::IValue& value) {
    if (value.isTensor()) return with_memory(value.toTensor());
    if (!value.isTensorList()) return value;
    c10::List<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(with_memory(tensor));
    return tensors;
  }
  /// Whole numbers that would follow from others which are not computed are 0, which is a valid index.
  static void clear_indices(const at::Tensor& tensor) {
    const InterceptedOperations::Pause pause;
    if (!tensor.is_floating_point() && !tensor.is_complex()) at::Tensor{tensor}.zero_();
  }

  /// LibTorch has no kernel for the sizes of attention.
  ///
  /// Shapes  arguments [B, H, T, D].
  void attend() {
    const auto query = arguments_[0].toTensor();
    const auto type = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const InterceptedOperations::Pause pause;
    auto result = rows_first(query, arguments_[2].toTensor().size(3));
    give({std::move(result),
          at::empty({query.size(0), query.size(2), query.size(1)}, query.options().dtype(type)).transpose(1, 2)});
  }
  void attend_backward() {
    const InterceptedOperations::Pause pause;
    std::vector<c10::IValue> results;
    for (std::size_t i = 1; i <= 3; ++i)
      results.emplace_back(rows_first(arguments_[i].toTensor(), arguments_[i].toTensor().size(3)));
    give(std::move(results));
  }
  static at::Tensor rows_first(const at::Tensor& like, std::int64_t width) {
    return at::empty({like.size(0), like.size(2), like.size(1), width}, like.options()).transpose(1, 2);
  }

  const c10::OperatorHandle* op_;
  c10::DispatchKeySet keys_;
  torch::jit::Stack* stack_;
  std::vector<c10::IValue> arguments_;
};

}  // namespace detail

/// While the object lives, operations of this thread on floating-point tensors of the CPU compute nothing: they
/// allocate their results, as LibTorch would. What these tensors hold is undefined. Whole numbers, views, and
/// operations of which LibTorch knows no sizes, are computed. Autograd records as usual, and its backward pass in this
/// thread computes nothing either. Memory that is never written costs no time, so that a step of a large model takes
/// milliseconds. Buffers that a kernel has while it runs are left out.
/// Errors  `NeedsValues` from an operation whose result depends on values.
class SizesOnly {
 private:
  InterceptedOperations operations_{
      [](const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
        detail::SizesOnlyCall{op, keys, stack}.run();
      }};
};

}  // namespace ddpxx
