// ddpxx/parallel/sync_batch_norm_inl.hpp — definitions of sync_batch_norm.hpp; ddpxx/core/inline.hpp says how they are
// compiled.
#pragma once

#include <cstdint>
#include <sstream>
#include <tuple>
#include <vector>

#include <ATen/Context.h>
#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/parallel/sync_batch_norm.hpp>

namespace ddpxx {

namespace detail {

/// Mean and variance (without Bessel's correction) of each channel, over all ranks.
struct BatchStatistics {
  at::Tensor mean, variance;
  at::Tensor count;  ///< Number of values of a channel, 0-dim, on the device of the others.
};

/// Shapes  `x` [N, C, ...]; mean and variance [C], in float32 for 16-bit inputs. N may be 0.
/// Ranks   Collective: one all-gather of 2 C + 1 numbers. All ranks get results with equal bits.
inline BatchStatistics batch_statistics(const at::Tensor& x, const Group& group) {
  const auto channels = x.size(1);
  const auto options = x.options().dtype(at::toOpMathType(x.scalar_type()));
  auto own = at::zeros({2 * channels + 1}, options);
  if (x.numel() > 0) {
    const auto [mean, variance] = at::batch_norm_update_stats(x.to(options.dtype()), {}, {}, /*momentum=*/0);
    own = at::cat({mean, variance, at::full({1}, x.numel() / channels, options)});
  }
  const auto gathered = at::empty({group.size() * own.numel()}, options);
  all_gather(gathered, own, group);
  const auto all = gathered.view({group.size(), own.numel()});
  // Means and variances are combined, and not sums of squares, whose difference would lose digits.
  const auto means = all.narrow(1, 0, channels), variances = all.narrow(1, channels, channels);
  const auto counts = all.narrow(1, 2 * channels, 1);
  const auto total = counts.sum();
  const auto shares = counts / total.clamp_min(1);
  const auto joined = (means * shares).sum(0);
  return {joined, ((variances + (means - joined).square()) * shares).sum(0), total};
}

/// What backward needs beside the saved tensors.
struct NormCall : torch::CustomClassHolder {
  NormCall(const Group& ranks, double epsilon) : group{&ranks}, eps{epsilon} {}
  const Group* group;
  double eps;
};

/// Normalises by statistics over all ranks, through which gradients flow to the inputs of all ranks.
class SyncBatchNormFunction : public torch::autograd::Function<SyncBatchNormFunction> {
  using Context = torch::autograd::AutogradContext;
  using Tensors = torch::autograd::variable_list;

 public:
  static at::Tensor forward(Context* context, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                            const BatchStatistics& all, const c10::intrusive_ptr<NormCall>& call) {
    context->save_for_backward({x, weight, all.mean, all.variance, all.count});
    context->saved_data["call"] = at::IValue::make_capsule(call);
    if (x.numel() == 0) return at::empty_like(x);
    const auto type = all.mean.scalar_type();
    return std::get<0>(at::native_batch_norm(x, weight.to(type), bias.to(type), all.mean, all.variance,
                                             /*training=*/false, /*momentum=*/0, call->eps));
  }

  /// The gradients of weight and bias cover this rank's samples only: the strategy averages them over the ranks later,
  /// like those of all parameters.
  static Tensors backward(Context* context, const Tensors& gradients) {
    if (c10::GradMode::is_enabled())  // a second derivative would need a collective of its own
      throw Error{Errc::config, "SyncBatchNorm has no second derivative: call backward without create_graph"};
    const auto capsule = context->saved_data["call"].toCapsule();
    const auto& call = static_cast<const NormCall&>(*capsule);
    const auto saved = context->get_saved_variables();
    const auto &mean = saved[2], &variance = saved[3], &count = saved[4];
    // 16-bit values are differentiated in float32: the terms below may cancel each other.
    const auto type = mean.scalar_type();
    const auto x = saved[0].to(type), weight = saved[1].to(type);
    // First the gradients with mean and variance held constant. The terms that flow through mean and variance are added
    // below, from sums over all ranks.
    std::tuple all{at::zeros_like(x), at::zeros_like(mean), at::zeros_like(mean)};
    if (x.numel() > 0)
      all = at::native_batch_norm_backward(gradients[0].to(type), x, weight, mean, variance, {}, {}, /*train=*/false,
                                           call.eps, {true, true, true});
    const auto& [of_x, of_weight, of_bias] = all;
    if (!context->needs_input_grad(0)) return {{}, of_weight, of_bias, {}, {}};
    const auto sums = at::cat({of_weight, of_bias});
    all_reduce(sums, *call.group);
    sums.div_(count.clamp_min(1));
    const auto channels = mean.numel();
    const auto inverse = (variance + call.eps).rsqrt();
    const auto scale = inverse * weight;
    std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
    shape[1] = channels;
    const auto slope = (scale * inverse * sums.narrow(0, 0, channels)).view(shape);
    const auto offset = (scale * sums.narrow(0, channels, channels)).view(shape);
    of_x.sub_(at::addcmul(offset, x - mean.view(shape), slope));
    return {of_x.to(saved[0].scalar_type()), of_weight, of_bias, {}, {}};
  }
};

}  // namespace detail

DDPXX_INLINE SyncBatchNorm::SyncBatchNorm(std::int64_t channels, const Group& group,
                                          const SyncBatchNormOptions& options)
    : options_{options}, group_{&group} {
  if (options.affine) {
    weight_ = register_parameter("weight", at::ones({channels}));
    bias_ = register_parameter("bias", at::zeros({channels}));
  }
  running_mean_ = register_buffer("running_mean", at::zeros({channels}));
  running_var_ = register_buffer("running_var", at::ones({channels}));
  num_batches_tracked_ = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
}

DDPXX_INLINE at::Tensor SyncBatchNorm::forward(const at::Tensor& x) {
  check(x);
  if (is_training()) num_batches_tracked_.add_(1);
  if (is_training() && group_->size() > 1) {
    const auto weight = options_.affine ? weight_ : at::ones_like(running_mean_);
    const auto bias = options_.affine ? bias_ : at::zeros_like(running_mean_);
    return detail::SyncBatchNormFunction::apply(x, weight, bias, track(x),
                                                c10::make_intrusive<detail::NormCall>(*group_, options_.eps));
  }
  const auto type = running_mean_.scalar_type();  // parameters in 16 bits may have statistics in float32
  const auto converted = [&](const at::Tensor& parameter) { return options_.affine ? parameter.to(type) : parameter; };
  return at::batch_norm(x, converted(weight_), converted(bias_), running_mean_, running_var_, is_training(),
                        is_training() ? momentum() : 0.0, options_.eps, at::globalContext().userEnabledCuDNN());
}

DDPXX_INLINE double SyncBatchNorm::momentum() const {
  if (options_.momentum) return *options_.momentum;
  if (num_batches_tracked_.scalar_type() != at::kLong)  // numbers of 16 bits would stop to count
    throw Error{Errc::config,
                "SyncBatchNorm without momentum counts the batches in num_batches_tracked, which Module::to() has "
                "converted: convert the parameters alone, as the precisions do, or set momentum"};
  return 1.0 / num_batches_tracked_.item<double>();
}

DDPXX_INLINE void SyncBatchNorm::check(const at::Tensor& x) const {
  const auto channels = running_mean_.numel();
  if (x.dim() < 2 || x.size(1) != channels)
    throw Error{Errc::config, (std::ostringstream{} << "SyncBatchNorm of " << channels << " channels: input "
                                                    << x.sizes() << " is not [N, " << channels << ", ...]")
                                  .str()};
  if (is_training() && group_->size() == 1 && x.numel() == channels)
    throw Error{Errc::config, (std::ostringstream{} << "SyncBatchNorm: input " << x.sizes()
                                                    << " has one value per channel, whose variance is not known: "
                                                       "train with two samples or more in a batch")
                                  .str()};
}

DDPXX_INLINE detail::BatchStatistics SyncBatchNorm::track(const at::Tensor& x) {
  const c10::NoGradGuard no_grad;
  auto all = detail::batch_statistics(x, *group_);
  const auto added = momentum(), kept = 1 - added;
  running_mean_.mul_(kept).add_(all.mean, added);
  running_var_.mul_(kept).add_(all.variance * (all.count / (all.count - 1).clamp_min(1)), added);
  return all;
}

}  // namespace ddpxx
