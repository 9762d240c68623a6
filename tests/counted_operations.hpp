// tests/counted_operations.hpp — the operations of LibTorch that a part of a test calls.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <ATen/record_function.h>

namespace ddpxx {

/// Counts the operations that this thread starts while the object lives, and those that they start. A thread has at
/// most one such object. `name`, as in "aten::mul_", counts only those of this name.
class CountedOperations {
 public:
  explicit CountedOperations(std::string name = {}) {
    counted() = {std::move(name), 0};
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback{[](const at::RecordFunction& called) -> std::unique_ptr<at::ObserverContext> {
          if (counted().name.empty() || counted().name == called.name()) ++counted().operations;
          return nullptr;
        }}.scopes({at::RecordScope::FUNCTION}));
  }
  CountedOperations(const CountedOperations&) = delete;
  CountedOperations& operator=(const CountedOperations&) = delete;
  ~CountedOperations() { at::removeCallback(handle_); }

  static std::int64_t count() { return counted().operations; }

 private:
  struct Counted {
    std::string name;
    std::int64_t operations = 0;
  };
  static Counted& counted() {
    static thread_local Counted all;
    return all;
  }

  at::CallbackHandle handle_ = 0;
};

}  // namespace ddpxx
