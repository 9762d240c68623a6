// ddpxx/parallel/gradient_shards_inl.hpp — definitions of gradient_shards.hpp; ddpxx/core/inline.hpp says how they are
// compiled.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <c10/core/GradMode.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/buffer_pool.hpp>
#include <ddpxx/flat/number.hpp>
#include <ddpxx/parallel/copy_stream.hpp>
#include <ddpxx/parallel/gradient_shards.hpp>
#include <ddpxx/parallel/stepped_segments.hpp>

namespace ddpxx {

namespace detail {

inline bool same_types(const std::vector<at::Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor& tensor) { return tensor.scalar_type() == tensors.front().scalar_type(); });
}

/// Adds `gradient` times `scale`. For a sum in 16 bits LibTorch rounds the factor to 16 bits first on a CPU, and three
/// ranks would get gradients that are all too large by a part in 500.
inline void add_scaled(at::Tensor sum, const at::Tensor& gradient, double scale) {
  const auto type = sum.scalar_type();
  if (scale == 1.0 || !sum.is_cpu() || !at::isReducedFloatingType(type) || gradient.scalar_type() != type)
    sum.add_(gradient, scale);
  else
    sum.add_(at::mul(gradient.is_sparse() ? gradient.to_dense() : gradient, as_number(scale)));
}

}  // namespace detail

DDPXX_INLINE GradientShards::GradientShards(Arena& arena, const Group& shards, const Group* replicas, BufferPool& pool,
                                            std::optional<at::ScalarType> reduction, BufferSize size,
                                            SteppedSegments* stepped, CopyStream copies)
    : arena_{&arena},
      shards_{&shards},
      replicas_{replicas},
      pool_{&pool},
      stepped_{stepped},
      copies_{std::move(copies)},
      device_options_{arena.segments().front().values.options().dtype(arena.options().dtype())},
      type_{reduction.value_or(c10::typeMetaToScalarType(arena.options().dtype()))},
      scale_{1.0 / (shards.size() * (replicas != nullptr ? replicas->size() : 1))},
      written_(arena.segments().size(), false),
      was_stepped_(arena.segments().size(), false) {
  std::int64_t largest = 0;
  for (const auto& segment : arena.segments()) largest = std::max(largest, segment.size());
  for (const auto& segment : arena.segments())
    buffer_sizes_.push_back(size == BufferSize::common ? BufferPool::common_size(segment.size(), largest)
                                                       : segment.size());
}

DDPXX_INLINE at::Tensor GradientShards::take(std::size_t segment, BufferUse use) {
  const auto type = use == BufferUse::reduce ? type_ : c10::typeMetaToScalarType(device_options_.dtype());
  const auto& own = arena_->segments()[segment].gradient;
  const bool is_alone = shards_->size() == 1 && replicas_ == nullptr && stepped_ == nullptr;
  if (is_alone && own.defined() && !written_[segment] && use == BufferUse::reduce && own.scalar_type() == type &&
      own.device() == device_options_.device())
    return own;
  return pool_->tensor(buffer_sizes_[segment], device_options_.dtype(type))
      .narrow(0, 0, arena_->segments()[segment].size());
}

DDPXX_INLINE bool GradientShards::is_own(std::size_t segment, const at::Tensor& memory) const {
  const auto& own = arena_->segments()[segment].gradient;
  return own.defined() && memory.is_alias_of(own);
}

DDPXX_INLINE at::Tensor GradientShards::borrow(std::size_t segment, BufferUse use) {
  auto memory = take(segment, use);
  memory.zero_();
  return memory;
}

DDPXX_INLINE at::Tensor GradientShards::borrow_with(std::size_t segment, std::span<const at::Tensor> gradients,
                                                    BufferUse use) {
  const c10::NoGradGuard no_grad;
  const auto& borrowed = arena_->segments()[segment];
  // On a CPU, adding to zeros takes fewer instructions than copying and scaling.
  if (scale_ != 1.0 && device_options_.device().is_cpu()) {
    auto memory = borrow(segment, use);
    for (std::size_t i = 0; i < gradients.size(); ++i) add(memory, (*arena_)[borrowed.first + i], gradients[i]);
    return memory;
  }
  auto memory = take(segment, use);
  fill(memory, borrowed, gradients);
  return memory;
}

DDPXX_INLINE void GradientShards::give_back(std::size_t segment, const at::Tensor& memory) {
  if (!is_own(segment, memory)) pool_->take_back(memory);
}

DDPXX_INLINE void GradientShards::fill(const at::Tensor& memory, const Segment& segment,
                                       std::span<const at::Tensor> gradients) const {
  std::vector<at::Tensor> parts, sources;
  parts.reserve(gradients.size());
  sources.reserve(gradients.size());
  struct Gap {
    std::int64_t begin, end;
  };
  std::vector<Gap> gaps;
  std::int64_t end = segment.begin;
  const auto note_gap = [&](std::int64_t begin) {
    if (begin > end) gaps.push_back({end, begin});
  };
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const auto& entry = (*arena_)[segment.first + i];
    if (!gradients[i].defined()) continue;
    note_gap(entry.offset);
    parts.push_back(Arena::part(memory, entry, segment.begin));
    sources.push_back(gradients[i].is_sparse() ? gradients[i].to_dense() : gradients[i]);
    end = entry.offset + entry.numel;
  }
  note_gap(segment.begin + segment.size());
  // Zeros everywhere are one operation, where the gaps are small and many.
  if (gaps.size() > 1)
    memory.zero_();
  else
    for (const auto& gap : gaps) memory.narrow(0, gap.begin - segment.begin, gap.end - gap.begin).zero_();
  if (sources.empty()) return;
  const bool rounds_once = scale_ == 1.0 || sources.front().scalar_type() == memory.scalar_type();
  if (rounds_once && detail::same_types(sources)) {
    at::_foreach_copy_(parts, sources);
    if (scale_ != 1.0) memory.mul_(as_number(scale_));
    return;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) detail::add_scaled(parts[i].zero_(), sources[i], scale_);
}

DDPXX_INLINE void GradientShards::add(const at::Tensor& memory, const ArenaEntry& entry,
                                      const at::Tensor& gradient) const {
  if (!gradient.defined()) return;
  const c10::NoGradGuard no_grad;
  detail::add_scaled(Arena::part(memory, entry, arena_->segments()[entry.segment].begin), gradient, scale_);
}

DDPXX_INLINE void GradientShards::wait_for_free_slot() {
  const c10::NoGradGuard no_grad;
  end_scatter();
}

DDPXX_INLINE void GradientShards::reduce(std::size_t i, at::Tensor memory, AfterReduce after) {
  const c10::NoGradGuard no_grad;
  if (was_stepped_[i])
    throw Error{Errc::config, "parameter \"" + (*arena_)[arena_->segments()[i].first].name +
                                  "\" got gradients after it was stepped in backward: run one backward pass a step, "
                                  "or take the strategy without StepInBackward"};
  if (is_own(i, memory)) {
    written_[i] = true;
    return;
  }
  wait_for_free_slot();
  if (memory.scalar_type() != type_) {
    const auto sum = std::exchange(memory, pool_->tensor(memory.numel(), memory.options().dtype(type_)));
    memory.copy_(sum);
    pool_->take_back(sum);
  }
  auto& segment = arena_->segments()[i];
  if (stepped_ != nullptr) stepped_->open(i);
  const bool direct =
      !written_[i] && segment.gradient.scalar_type() == type_ && segment.gradient.device() == device_options_.device();
  auto piece = direct ? segment.gradient : pool_->tensor(segment.gradient.numel(), memory.options());
  auto pending = start_reduce_scatter(piece, memory, *shards_);
  scattering_ = UnderWay{i, std::move(memory), std::move(piece), direct, after, std::move(pending)};
  written_[i] = written_[i] || direct;
}

DDPXX_INLINE void GradientShards::finish() {
  const c10::NoGradGuard no_grad;
  end_scatter();
  end_sum();
  free_copied();
  copies_.wait();
}

DDPXX_INLINE void GradientShards::abandon() {
  free_copied();
  copies_.wait();
  for (auto* each : {&summing_, &scattering_}) {
    if (!*each) continue;
    auto dropped = std::move(**each);
    each->reset();
    dropped.pending.wait();
    if (dropped.memory.defined()) pool_->take_back(dropped.memory);
    if (!dropped.direct) pool_->take_back(dropped.piece);
  }
  drop();
}

DDPXX_INLINE void GradientShards::end_step() {
  for (std::size_t i = 0; i < written_.size(); ++i) {
    if (stepped_ == nullptr) {
      if (!written_[i]) arena_->segments()[i].gradient.zero_();
    } else if (!was_stepped_[i]) {
      stepped_->open(i);
      stepped_->step(i);
    }
    written_[i] = was_stepped_[i] = false;
  }
}

DDPXX_INLINE void GradientShards::drop() {
  written_.assign(written_.size(), false);
  was_stepped_.assign(written_.size(), false);
  for (std::size_t i = 0; stepped_ != nullptr && i < written_.size(); ++i) stepped_->drop(i);
}

DDPXX_INLINE void GradientShards::end_scatter() {
  if (!scattering_) return;
  auto done = std::move(*scattering_);
  scattering_.reset();
  done.pending.wait();
  pool_->take_back(std::exchange(done.memory, {}));
  if (replicas_ == nullptr) return complete(done);
  end_sum();
  done.pending = start_all_reduce(done.piece, *replicas_);
  summing_ = std::move(done);
}

DDPXX_INLINE void GradientShards::end_sum() {
  if (!summing_) return;
  auto done = std::move(*summing_);
  summing_.reset();
  done.pending.wait();
  complete(done);
}

DDPXX_INLINE void GradientShards::complete(const UnderWay& done) {
  if (!done.direct) collect(done);
  if (done.after == AfterReduce::keep) return;
  copies_.wait();  // a step of pieces in pinned memory is the host's work
  was_stepped_[done.segment] = true;
  stepped_->step(done.segment);
}

DDPXX_INLINE void GradientShards::collect(const UnderWay& done) {
  auto& gradient = arena_->segments()[done.segment].gradient;
  if (gradient.device() != done.piece.device()) return copy_out(gradient, done);
  if (written_[done.segment])
    gradient.add_(done.piece);
  else
    gradient.copy_(done.piece);
  written_[done.segment] = true;
  pool_->take_back(done.piece);
}

DDPXX_INLINE void GradientShards::copy_out(at::Tensor& gradient, const UnderWay& done) {
  free_copied();
  const bool adds = written_[done.segment];
  const auto target = adds ? at::empty(gradient.sizes(), gradient.options().pinned_memory(true)) : gradient;
  const auto copied = copies_.run([&] {
    // Cast on the GPU, because only a copy of equal types is asynchronous.
    at::Tensor{target}.copy_(done.piece.to(target.scalar_type()), /*non_blocking=*/true);
  });
  copying_ = Copying{done.piece, copied};
  written_[done.segment] = true;
  if (!adds) return;
  copies_.wait();
  gradient.add_(target);
}

DDPXX_INLINE void GradientShards::free_copied() {
  if (!copying_) return;
  copies_.order_after(copying_->end);
  pool_->take_back(copying_->piece);
  copying_.reset();
}

}  // namespace ddpxx
