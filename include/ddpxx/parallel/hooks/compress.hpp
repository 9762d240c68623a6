// ddpxx/parallel/hooks/compress.hpp — sends gradients in a 16-bit type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/parallel/comm_hook.hpp>
#include <ddpxx/parallel/hooks/all_reduce.hpp>

namespace ddpxx {

/// Rounds the gradients to `kType`, lets `Hook` average them in that type, and converts the result back. Each addition
/// over the ranks rounds to `kType` as well.
/// PyTorch's hooks round first and then divide by W; here the gradient is divided in its own type, so that it is
/// rounded once and does not overflow before the division. On two ranks both give equal bits, except for numbers whose
/// half is subnormal in `kType`: below 1.2e-4 for float16.
/// Source  PyTorch's ddp_comm_hooks.default_hooks: fp16_compress_hook, bf16_compress_wrapper.
template <at::ScalarType kType, class Hook = AllReduce>
class Compress {
  static_assert(!ScalesGradients<Hook> && !FinishesHookStep<Hook>,
                "Compress: this hook leaves gradients on their rank, there is nothing to compress");

 public:
  using Config = typename Hook::Config;

  Compress(const Config& config, Group& group) : hook_{config, group} {}

  void attach(const Arena& arena, std::span<const BucketRange> buckets) {
    if constexpr (KnowsBuckets<Hook>) hook_.attach(arena, buckets);
    compressed_.resize(buckets.size());
  }
  Pending start(std::size_t bucket, const at::Tensor& memory, const Group& group) {
    compressed_[bucket] = memory.to(kType);
    return hook_.start(bucket, compressed_[bucket], group);
  }
  void finish(std::size_t bucket, at::Tensor memory, const Group& group) {
    const auto compressed = std::exchange(compressed_[bucket], {});
    if constexpr (FinishesBuckets<Hook>) hook_.finish(bucket, compressed, group);
    memory.copy_(compressed);
  }

  void abandon()
    requires AbandonsHookStep<Hook>
  {
    hook_.abandon();
  }

  void resume_at(std::int64_t step)
    requires CountsSteps<Hook>
  {
    hook_.resume_at(step);
  }

  Hook& hook() noexcept { return hook_; }

 private:
  Hook hook_;
  std::vector<at::Tensor> compressed_;  ///< For each bucket whose collective runs.
};

using FP16Compress = Compress<at::kHalf>;
using BF16Compress = Compress<at::kBFloat16>;

static_assert(CommHook<FP16Compress> && explain_hook<FP16Compress>());

}  // namespace ddpxx
