// ddpxx/parallel/hooks/quantize.hpp — sends gradients as one byte an element.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/ScalarType.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/parallel/comm_hook.hpp>

namespace ddpxx {

struct QuantizeConfig {
  std::int64_t channel = 0;

  static constexpr auto describe() {
    return fields(field<&QuantizeConfig::channel>(
        "Number of elements that share one scale; 0 means all of a bucket. Fewer elements lose less, and each scale "
        "adds 8 bytes to the message",
        at_least(0)));
  }
};

/// Each rank rounds its gradients to 256 steps between their smallest and their largest value, sends these bytes to all
/// ranks, and adds up the bytes of all ranks: the error of an average is at most half of the ranks' mean step. The
/// all-gather sends W bytes an element, so it is worth it for few ranks: at W = 8 an all-reduce of float32 sends as
/// much. A gradient that is not finite stays so.
/// Source  PyTorch's ddp_comm_hooks.quantization_hooks: one scale per tensor, here per bucket, or one per channel.
class Quantize {
 public:
  using Config = QuantizeConfig;

  Quantize(const Config& config, const Group&) : config_{config} {}

  void attach(const Arena&, std::span<const BucketRange> buckets) { gathered_.resize(buckets.size()); }

  Pending start(std::size_t bucket, const at::Tensor& memory, const Group& group) {
    if (memory.numel() == 0) return {};  // a bucket of parameters without elements
    const auto x = in_channels(memory);
    const auto [low, high] = at::aminmax(x, 1, /*keepdim=*/true);
    const auto bottom = low.clamp_max(0);
    const auto scale = ((high.clamp_min(0) - bottom) / kSteps).clamp_min(std::numeric_limits<float>::min());
    const auto zero = (-(bottom / scale).round()).clamp(0, kSteps);

    const Layout layout{x};
    const auto message = at::empty({layout.size()}, x.options().dtype(at::kByte));
    layout.facts(message).select(1, 0).copy_(scale.squeeze(1));
    layout.facts(message).select(1, 1).copy_(zero.squeeze(1));
    layout.values(message).copy_(((x / scale).round() + zero).clamp(0, kSteps));
    gathered_[bucket] = at::empty({group.size() * layout.size()}, message.options());
    return start_all_gather(gathered_[bucket], message, group);
  }

  void finish(std::size_t bucket, at::Tensor memory, const Group& group) {
    if (memory.numel() == 0) return;
    const auto gathered = std::exchange(gathered_[bucket], {}).view({group.size(), -1});
    auto sum = at::zeros_like(in_channels(memory), at::kFloat);
    const Layout layout{sum};
    for (int rank = 0; rank < group.size(); ++rank) {
      const auto message = gathered[rank];
      const auto scale = layout.facts(message).narrow(1, 0, 1), zero = layout.facts(message).narrow(1, 1, 1);
      sum.add_(scale * (layout.values(message).to(at::kFloat) - zero));
    }
    memory.copy_(sum.view(-1).narrow(0, 0, memory.numel()));
  }

 private:
  static constexpr double kSteps = 255.0;

  /// A message: scale and zero point of each channel as float32, then the values as bytes.
  class Layout {
   public:
    explicit Layout(const at::Tensor& channels) : rows_{channels.size(0)}, columns_{channels.size(1)} {}

    std::int64_t size() const { return (facts_bytes() + rows_ * columns_ + 7) / 8 * 8; }
    at::Tensor facts(const at::Tensor& message) const {
      return message.narrow(0, 0, facts_bytes()).view(at::kFloat).view({rows_, 2});
    }
    at::Tensor values(const at::Tensor& message) const {
      return message.narrow(0, facts_bytes(), rows_ * columns_).view({rows_, columns_});
    }

   private:
    std::int64_t facts_bytes() const { return rows_ * 2 * static_cast<std::int64_t>(sizeof(float)); }

    std::int64_t rows_;
    std::int64_t columns_;
  };

  at::Tensor in_channels(const at::Tensor& memory) const {
    // In float16 the smallest scale would be 0, and 0 divided by it NaN.
    const auto x = at::isReducedFloatingType(memory.scalar_type()) ? memory.to(at::kFloat) : memory;
    const auto width = config_.channel > 0 ? std::min(config_.channel, x.numel()) : x.numel();
    const auto gap = (width - x.numel() % width) % width;
    return (gap > 0 ? at::constant_pad_nd(x, {0, gap}) : x).view({-1, width});
  }

  Config config_;
  std::vector<at::Tensor> gathered_;  ///< For each bucket whose collective runs.
};

static_assert(CommHook<Quantize> && explain_hook<Quantize>());

}  // namespace ddpxx
