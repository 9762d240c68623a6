// ddpxx/precision/concept.hpp — the door of the precisions: in which number format a model computes.
#pragma once

#include <concepts>

namespace ddpxx {

template <class P>
concept BuiltFromConfig = requires { typename P::Config; } && std::constructible_from<P, const typename P::Config&>;
template <class P>
concept ScopesForward = requires(const P& precision) { precision.forward_scope(); };

template <class P>
concept PrecisionPolicy = BuiltFromConfig<P> && ScopesForward<P>;

template <class P>
consteval bool explain_precision() {
  static_assert(BuiltFromConfig<P>, "precision: add `struct Config` and a constructor from (const Config&)");
  static_assert(ScopesForward<P>, "precision: add `auto forward_scope() const`, what holds around a forward pass");
  return true;
}

}  // namespace ddpxx
