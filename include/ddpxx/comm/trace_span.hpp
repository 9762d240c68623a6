// ddpxx/comm/trace_span.hpp — a named part of a step in the traces of LibTorch's profiler.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/record_function.h>

namespace ddpxx {

/// Marks the time from its construction to its destruction. Without a profiler it costs some nanoseconds.
class TraceSpan {
 public:
  /// The span is called `kind`, or `kind` and `name` with a space between.
  explicit TraceSpan(std::string_view kind, std::string_view name = {}) {
    auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
    if (!callbacks) return;
    name_ = kind;
    if (!name.empty()) name_.append(" ").append(name);
    span_.emplace(std::move(*callbacks));
    span_->before(std::string_view{name_});
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  std::string name_;  // outlives the span, which refers to it
  std::optional<at::RecordFunction> span_;
};

}  // namespace ddpxx
