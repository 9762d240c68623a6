// ddpxx/flat/intercepted_operations.hpp — sees the operations of a thread below autograd, and decides what they do.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace ddpxx {

namespace detail {

/// Calls `visit` for each defined tensor in an argument or a result of an operation, also in lists.
void for_each_tensor(const c10::IValue& value, const auto& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector())
      if (tensor.defined()) visit(tensor);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) for_each_tensor(element, visit);
  }
}

}  // namespace detail

/// While the object lives, each operation that this thread calls is handed over in place of its kernel, when autograd
/// has recorded it: those of a backward pass too, which autograd calls in a thread of its own on a GPU. Operations
/// inside of kernels are not.
class InterceptedOperations {
 public:
  /// Takes the arguments from the stack and leaves the results there, as a kernel does: by itself, or by
  /// `op.redispatchBoxed(keys, &stack)`, which calls the kernel. Operations that are called meanwhile come here too.
  using Handle = std::function<void(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack)>;

  explicit InterceptedOperations(Handle handle)
      : handle_{std::move(handle)}, current_{kPlace, std::make_shared<Current>(this)} {
    // LibTorch has no kernels for this key, and leaves it to libraries that run models without data.
    static const auto registered = c10::Dispatcher::singleton().registerFallback(
        kKey, c10::KernelFunction::makeFromBoxedFunction<&InterceptedOperations::intercept>(), "ddpxx");
  }
  InterceptedOperations(const InterceptedOperations&) = delete;
  InterceptedOperations& operator=(const InterceptedOperations&) = delete;

  /// True if this thread's operations are handed over. Kernels that are called directly check this, because the handle
  /// sees only operations of the dispatcher.
  static bool active() noexcept { return current() != nullptr && !c10::impl::tls_is_dispatch_key_excluded(kKey); }

  /// A scope in which operations run as without the object.
  class Pause {
   public:
    Pause() = default;

   private:
    c10::impl::ExcludeDispatchKeyGuard guard_{kKey};
  };

 private:
  static constexpr auto kKey = c10::DispatchKey::Fake;
  static constexpr c10::DispatchKeySet kBelow{c10::DispatchKeySet::FULL_AFTER, kKey};

  /// LibTorch hands what lies in this place to the threads of autograd, as it does with the dispatch keys.
  static constexpr auto kPlace = c10::DebugInfoKind::PRODUCER_INFO;
  struct Current : c10::DebugInfoBase {
    explicit Current(InterceptedOperations* of) : object{of} {}
    InterceptedOperations* object;
  };

  static InterceptedOperations* current() noexcept {
    const auto* found = dynamic_cast<const Current*>(c10::ThreadLocalDebugInfo::get(kPlace));
    return found == nullptr ? nullptr : found->object;
  }
  static void intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    if (auto* object = current()) return object->handle_(op, keys & kBelow, *stack);
    op.redispatchBoxed(keys & kBelow, stack);  // a program may put information of its own into the place
  }

  Handle handle_;
  c10::DebugInfoGuard current_;
  c10::impl::IncludeDispatchKeyGuard guard_{kKey};
};

}  // namespace ddpxx
