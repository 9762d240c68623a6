// ddpxx/nn/chunked_cross_entropy_inl.hpp — the definitions of chunked_cross_entropy.hpp.
// Shape suffixes: N rows, C width, V vocabulary, K rows of a chunk.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/layers/autocast_state.hpp>
#include <ddpxx/nn/chunked_cross_entropy.hpp>
#include <ddpxx/nn/first_derivative.hpp>
#include <ddpxx/nn/kernels/cross_entropy_kernel.hpp>
#include <ddpxx/nn/kernels/driver.hpp>

namespace ddpxx {

namespace detail {

/// The loss of a head, and the gradients of its inputs for an incoming gradient of 1; undefined where not wanted.
struct HeadLoss {
  at::Tensor sum;              ///< In float32, for float64 in float64; 0-dim.
  at::Tensor hidden_gradient;  ///< [N, C]
  at::Tensor weight_gradient;  ///< [V, C], of the type of `sum`: a sum over the chunks would lose too much in 16 bits.
};

/// What head_loss() needs to compute the losses of a chunk with the operations of ATen.
struct ScoreMemory {
  explicit ScoreMemory(const at::Tensor& logits_KV)
      : scores{at::isReducedFloatingType(logits_KV.scalar_type())
                   ? at::empty_like(logits_KV, logits_KV.options().dtype(at::kFloat))
                   : logits_KV} {}
  at::Tensor scores;  ///< The logits themselves, unless they have 16 bits: then float32.
};

/// Writes the loss of each row to `losses_K`, and with `gradients` the gradient of the logits, softmax minus one-hot
/// target, in their place. The logits of rows that do not count must be finite.
inline void cross_entropy_by_operations(const at::Tensor& logits_KV, const at::Tensor& targets_K,
                                        const at::Tensor& losses_K, bool gradients, const ScoreMemory& memory) {
  const auto counts_K1 = targets_K.ne(-1).to(memory.scores.scalar_type()).unsqueeze(1);
  const auto classes_K1 = targets_K.masked_fill(targets_K.eq(-1), 0).unsqueeze(1);
  const auto scores_KV = memory.scores.narrow(0, 0, logits_KV.size(0));
  const bool has_copy = scores_KV.scalar_type() != logits_KV.scalar_type();
  if (has_copy) scores_KV.copy_(logits_KV);
  scores_KV.sub_(scores_KV.amax(1, /*keepdim=*/true));
  const auto score_of_target_K1 = scores_KV.gather(1, classes_K1);
  scores_KV.exp_();
  const auto sum_K1 = scores_KV.sum(1, /*keepdim=*/true);
  losses_K.unsqueeze(1).copy_((sum_K1.log() - score_of_target_K1).mul_(counts_K1));
  if (!gradients) return;
  scores_KV.mul_(counts_K1 / sum_K1).scatter_add_(1, classes_K1, -counts_K1);
  if (has_copy) logits_KV.copy_(scores_KV);
}

/// True where the kernel computes the losses of logits of this type.
inline bool has_cross_entropy_kernel(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return tensor.is_cuda() && (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf);
}

/// Computes a head's loss in chunks. It is not an operation of autograd: the caller has turned gradients off.
inline HeadLoss head_loss(const at::Tensor& hidden_NC, const at::Tensor& weight_VC, const at::Tensor& targets_N,
                          std::int64_t chunk_rows, bool hidden_trains, bool weight_trains) {
  // Cast as autocast would cast for a linear layer; the softmax below must not be cast.
  const auto type = AutocastState::of(hidden_NC.device().type()).type_for(hidden_NC.scalar_type());
  const auto no_autocast = AutocastScope::off(hidden_NC.device().type());
  const auto x_NC = hidden_NC.to(type), w_VC = weight_VC.to(type), all_targets_N = targets_N.to(at::kLong).contiguous();

  const auto N = x_NC.size(0), C = x_NC.size(1), V = w_VC.size(0), K = std::min(chunk_rows, N);
  const auto of_sums = x_NC.options().dtype(at::toOpMathType(type));
  const auto losses_N = at::empty({N}, of_sums);
  HeadLoss loss;
  if (hidden_trains) loss.hidden_gradient = at::empty({N, C}, x_NC.options());

  const auto logits = at::empty({K, V}, x_NC.options());
  std::optional<ScoreMemory> memory;
  if (!has_cross_entropy_kernel(logits)) memory.emplace(logits);
  for (std::int64_t first = 0; first < N; first += K) {
    const auto rows = std::min(K, N - first);
    const auto of_chunk = [&](const at::Tensor& all) { return all.narrow(0, first, rows); };
    // The logits of a row that does not count may be infinite, which times 0 is NaN. The kernel does not read them.
    const auto x_KC =
        memory ? of_chunk(x_NC).masked_fill(of_chunk(all_targets_N).eq(-1).unsqueeze(1), 0) : of_chunk(x_NC);
    auto logits_KV = logits.narrow(0, 0, rows);
    at::mm_out(logits_KV, x_KC, w_VC.t());
    const bool gradients = hidden_trains || weight_trains;
    if (memory)
      cross_entropy_by_operations(logits_KV, of_chunk(all_targets_N), of_chunk(losses_N), gradients, *memory);
    else
      cross_entropy_by_kernel(logits_KV, of_chunk(all_targets_N), of_chunk(losses_N), gradients, launch_on_gpu);
    if (hidden_trains) {
      auto gradient_KC = of_chunk(loss.hidden_gradient);
      at::mm_out(gradient_KC, logits_KV, w_VC);
    }
    if (!weight_trains) continue;
    if (first == 0)
      loss.weight_gradient = at::mm(logits_KV.t(), x_KC).to(of_sums);
    else if (!at::isReducedFloatingType(type))
      loss.weight_gradient.addmm_(logits_KV.t(), x_KC);
    else
      loss.weight_gradient.add_(at::mm(logits_KV.t(), x_KC));
  }
  if (weight_trains && N == 0) loss.weight_gradient = at::zeros({V, C}, of_sums);
  loss.sum = losses_N.sum();
  return loss;
}

/// Gives autograd the gradients that the forward pass has computed.
class HeadLossFunction : public torch::autograd::Function<HeadLossFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& /*hidden_NC*/,
                            const at::Tensor& /*weight_VC*/, const HeadLoss& loss) {
    context->save_for_backward({loss.hidden_gradient, loss.weight_gradient});
    return loss.sum;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    check_first_derivative("chunked_cross_entropy", "use at::cross_entropy_loss");
    const bool saved_is_needed_again = torch::autograd::get_current_graph_task_keep_graph();
    // The product is not in 16 bits, which would round the factor and so change all elements alike. Autograd casts it
    // to the type of its input.
    const auto scaled = [&](const at::Tensor& saved) -> at::Tensor {
      if (!saved.defined()) return {};
      const auto factors = saved.to(at::toOpMathType(saved.scalar_type()));
      if (factors.is_same(saved) && saved_is_needed_again) return factors * gradients[0];
      return factors.mul_(gradients[0]);
    };
    const auto saved = context->get_saved_variables();
    return {scaled(saved[0]), scaled(saved[1]), {}};
  }
};

}  // namespace detail

DDPXX_INLINE at::Tensor chunked_cross_entropy(const at::Tensor& hidden_NC, const at::Tensor& weight_VC,
                                              const at::Tensor& targets_N, std::int64_t chunk_rows) {
  if (chunk_rows < 1)
    throw Error{Errc::config, "chunked_cross_entropy: chunk_rows is " + std::to_string(chunk_rows) +
                                  ", and a chunk has at least one row"};
  if (hidden_NC.dim() != 2 || weight_VC.dim() != 2 || targets_N.dim() != 1 || hidden_NC.size(1) != weight_VC.size(1) ||
      hidden_NC.size(0) != targets_N.size(0))
    throw Error{Errc::config, (std::ostringstream{} << "chunked_cross_entropy: hidden " << hidden_NC.sizes()
                                                    << ", weight " << weight_VC.sizes() << " and targets "
                                                    << targets_N.sizes() << " do not fit: pass [N, C], [V, C] and [N]")
                                  .str()};
  if (!at::isIntegralType(targets_N.scalar_type(), /*includeBool=*/false))
    throw Error{Errc::config, std::string{"chunked_cross_entropy: targets are "} +
                                  c10::toString(targets_N.scalar_type()) + ", and int64 numbers are needed"};
  if (weight_VC.device() != hidden_NC.device() || targets_N.device() != hidden_NC.device())
    throw Error{Errc::config, "chunked_cross_entropy: hidden is on " + hidden_NC.device().str() + ", weight on " +
                                  weight_VC.device().str() + " and targets on " + targets_N.device().str() +
                                  ": pass tensors of one device"};
  const bool with_gradients = c10::GradMode::is_enabled();
  const bool hidden_trains = with_gradients && hidden_NC.requires_grad();
  const bool weight_trains = with_gradients && weight_VC.requires_grad();
  const auto loss = [&] {
    const c10::NoGradGuard no_grad;
    const c10::OptionalDeviceGuard device{hidden_NC.device()};
    return detail::head_loss(hidden_NC, weight_VC, targets_N, chunk_rows, hidden_trains, weight_trains);
  }();
  if (!hidden_trains && !weight_trains) return loss.sum;
  return detail::HeadLossFunction::apply(hidden_NC, weight_VC, loss);
}

}  // namespace ddpxx
