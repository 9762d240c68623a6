// ddpxx/precision/concept.hpp — what a precision must provide: it chooses the number formats of a model.
#pragma once

#include <concepts>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/formats.hpp>

namespace ddpxx {

template <class P>
concept BuiltFromConfig = requires { typename P::Config; } && std::constructible_from<P, const typename P::Config&>;
template <class P>
concept ScopesForward = requires(const P& precision, at::DeviceType device) {
  requires !std::is_void_v<decltype(precision.forward_scope(device))>;
};
template <class P>
concept NamesFormats = requires(const P& precision) {
  { precision.formats() } -> std::convertible_to<NumberFormats>;
};
template <class P>
concept ChecksDevice = requires(at::Device device) { P::check(device); };

/// True if `P` needs a scaled loss, because small gradients would become 0 otherwise; false if `P` has no
/// `kScalesLoss`.
template <class P>
inline constexpr bool scales_loss = requires { requires P::kScalesLoss; };

template <class S>
concept ScalesLoss = requires(S scaler, const S& view, const at::Tensor& tensor, std::span<const Slice> slices) {
  { view.scale(tensor) } -> std::same_as<at::Tensor>;
  { view.unscale(slices) } -> std::same_as<at::Tensor>;
  scaler.update(tensor);
  { view.state() } -> std::same_as<std::vector<std::pair<std::string, at::Tensor>>>;
};
template <class P>
concept MakesScaler = !scales_loss<P> || requires(const P& precision, at::Device device) {
  { precision.make_scaler(device) } -> ScalesLoss;
};

/// Optional: `Batch cast_inputs(Batch batch) const`, for a precision whose model needs the batch in another type.
template <class P, class Batch>
concept CastsInputs = requires(const P& precision, Batch batch) {
  { precision.cast_inputs(std::move(batch)) } -> std::same_as<Batch>;
};

namespace detail {
template <class P>
struct ScalerOf {
  using type = std::monostate;
};
template <class P>
  requires scales_loss<P>
struct ScalerOf<P> {
  using type = decltype(std::declval<const P&>().make_scaler(at::Device{at::kCPU}));
};
}  // namespace detail

/// The type that scales the loss of `P`; std::monostate if `P` does not scale it.
template <class P>
using ScalerOf = typename detail::ScalerOf<P>::type;

template <class P>
concept PrecisionPolicy =
    BuiltFromConfig<P> && ScopesForward<P> && NamesFormats<P> && ChecksDevice<P> && MakesScaler<P>;

template <class P>
consteval bool explain_precision() {
  static_assert(BuiltFromConfig<P>, "precision: add `struct Config` and a constructor from (const Config&)");
  static_assert(ScopesForward<P>,
                "precision: add `auto forward_scope(at::DeviceType) const`, a scope object for a forward pass");
  static_assert(NamesFormats<P>,
                "precision: add `NumberFormats formats() const`, the types of parameters and of gradient sums");
  static_assert(ChecksDevice<P>,
                "precision: add `static void check(at::Device)`, which throws Errc::config for a device that does "
                "not support the precision");
  static_assert(MakesScaler<P>,
                "precision: a precision with kScalesLoss adds `auto make_scaler(at::Device) const`; its result has "
                "scale(), unscale(), update() and state()");
  return true;
}

}  // namespace ddpxx
