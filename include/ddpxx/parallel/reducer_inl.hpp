// ddpxx/parallel/reducer_inl.hpp — definitions of reducer.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/gradient_sum.hpp>
#include <ddpxx/flat/number.hpp>
#include <ddpxx/parallel/reducer.hpp>
#include <ddpxx/parallel/stepped_segments.hpp>

namespace ddpxx {

DDPXX_INLINE Reducer::Reducer(Arena& arena, const Group& group, const ReducerOptions& options)
    : arena_{&arena},
      group_{&group},
      options_{options},
      scale_{1.0 / group.size()},
      sum_{arena},
      scaled_(arena.size(), true),
      arrived_(arena.size(), false),
      idle_(arena.size(), false) {
  cut_buckets();
}

DDPXX_INLINE void Reducer::ready(std::size_t i) {
  mark(i);
  fed_ = true;
  open(i);
  sum_.take(i);
  note_scaled(i, scale_ == 1.0);
  launch_full_buckets();
}

DDPXX_INLINE void Reducer::ready(std::size_t i, const at::Tensor& gradient) {
  mark(i);
  fed_ = fed_ || gradient.defined();
  open(i);
  note_scaled(i, sum_.add(i, gradient, scale_));
  launch_full_buckets();
}

DDPXX_INLINE at::Tensor Reducer::place(std::size_t i) {
  // The memory of a stepped segment comes and goes.
  return options_.stepped == nullptr ? sum_.place(i) : at::Tensor{};
}

DDPXX_INLINE void Reducer::defer(std::size_t i, const at::Tensor& gradient) {
  check_used(i);
  fed_ = fed_ || gradient.defined();
  open(i);
  sum_.add(i, gradient);
}

DDPXX_INLINE void Reducer::finish() {
  std::vector<std::size_t> unused;
  for (std::size_t i = 0; i < arena_->size(); ++i) {
    if (arrived_[i] || idle_[i]) continue;
    if (sum_.written(i))
      ready(i);
    else
      unused.push_back(i);
  }
  // A step without any gradient (no data, or an exception) says nothing about which parameters are used.
  const bool first = options_.unused == UnusedParameters::learn && !learned_ && fed_;
  refused_ = !unused.empty() && !first && options_.unused != UnusedParameters::find;
  for (const std::size_t i : unused) ready(i, at::Tensor{});
  while (finished_ < pending_.size()) finish_oldest();
  if (first) learn(unused);
  reset();
  sum_.publish();
  if (options_.stepped != nullptr) sum_.hide();  // the gradients of stepped segments have no memory
  if (std::exchange(refused_, false)) throw unused_error(unused);
  started_ = false;
}

DDPXX_INLINE bool Reducer::abandon() {
  const bool started = std::exchange(started_, false);
  for (; finished_ < pending_.size(); ++finished_) pending_[finished_].wait();
  for (std::size_t k = 0; options_.stepped != nullptr && k < buckets_.size(); ++k) options_.stepped->drop(k);
  reset();
  sum_.drop();
  return started;
}

DDPXX_INLINE void Reducer::sit_out() {
  begin();
  for (std::size_t i = 0; i < arena_->size(); ++i)
    if (!idle_[i]) ready(i, at::Tensor{});
  finish();
}

DDPXX_INLINE std::vector<std::pair<std::size_t, std::size_t>> Reducer::buckets() const {
  std::vector<std::pair<std::size_t, std::size_t>> ranges;
  for (const auto& bucket : buckets_) ranges.emplace_back(bucket.first, bucket.last);
  return ranges;
}

DDPXX_INLINE std::int64_t Reducer::limit_of(std::size_t k) const {
  const auto& list = options_.bucket_bytes_list;
  if (!list.empty()) return list[std::min(k, list.size() - 1)];
  return k == 0 ? options_.first_bucket_bytes : options_.bucket_bytes;
}

DDPXX_INLINE void Reducer::cut_buckets() {
  for (std::size_t k = 0; k < std::max<std::size_t>(options_.bucket_bytes_list.size(), 2); ++k)
    if (limit_of(k) < 1) throw Error{Errc::config, "bucket sizes must be at least one byte"};
  bucket_of_.resize(arena_->size());
  const auto element = static_cast<std::int64_t>(arena_->options().dtype().itemsize());
  for (std::size_t first = 0; first < arena_->size();) {
    const auto limit = limit_of(buckets_.size());
    const auto begin = (*arena_)[first].offset;
    std::size_t last = first;
    std::int64_t end = begin;
    const auto fits = [&] {
      return options_.bucket_is_segment || options_.stepped != nullptr
                 ? (*arena_)[last].segment == (*arena_)[first].segment
                 : (end - begin) * element < limit;
    };
    while (last < arena_->size() && fits()) {
      bucket_of_[last] = buckets_.size();
      ++last;
      end = last < arena_->size() ? (*arena_)[last].offset : arena_->numel();
    }
    buckets_.push_back({first, last, last - first,
                        options_.stepped != nullptr ? options_.stepped->memory(buckets_.size())
                                                    : arena_->gradients().narrow(0, begin, end - begin)});
    first = last;
  }
}

DDPXX_INLINE void Reducer::reset() {
  pending_.clear();
  finished_ = 0;
  next_ = 0;
  fed_ = false;
  std::fill(scaled_.begin(), scaled_.end(), true);
  std::fill(arrived_.begin(), arrived_.end(), false);
  for (auto& bucket : buckets_) bucket.missing = bucket.last - bucket.first - bucket.idle.size();
}

DDPXX_INLINE void Reducer::learn(const std::vector<std::size_t>& unused) {
  learned_ = true;
  for (const auto i : unused) {
    idle_[i] = true;
    buckets_[bucket_of_[i]].idle.push_back(i);
  }
}

DDPXX_INLINE void Reducer::check_used(std::size_t i) const {
  if (idle_[i])
    throw Error{Errc::config, "a gradient came for " + (*arena_)[i].name +
                                  ", which the first step did not use: set static_graph=false, and "
                                  "find_unused_parameters=true if some steps leave it out"}
        .with("rank", group_->rank());
}

DDPXX_INLINE Error Reducer::unused_error(const std::vector<std::size_t>& unused) const {
  if (!learned_) return unused_parameters_error(*arena_, unused, group_->rank());
  return Error{Errc::config, "no gradient came for " + some_names(*arena_, unused) +
                                 ", used in the first step: set static_graph=false and find_unused_parameters=true"}
      .with("rank", group_->rank());
}

DDPXX_INLINE void Reducer::mark(std::size_t i) {
  check_used(i);
  if (arrived_.at(i))
    throw Error{Errc::config, "parameter \"" + (*arena_)[i].name +
                                  "\" got a gradient twice in one step: call backward() once for each micro-batch"};
  arrived_[i] = true;
  --buckets_[bucket_of_[i]].missing;
}

DDPXX_INLINE void Reducer::launch_full_buckets() {
  for (; next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_) {
    const auto& bucket = buckets_[next_];
    for (const auto i : bucket.idle) {
      open(i);
      sum_.add(i, at::Tensor{});
    }
    scale(bucket);
    pending_.push_back(options_.start ? options_.start(next_, bucket.memory)
                                      : start_all_reduce(bucket.memory, *group_));
    started_ = true;
    if (options_.stepped != nullptr && pending_.size() - finished_ > 1) finish_oldest();
  }
}

DDPXX_INLINE void Reducer::note_scaled(std::size_t i, bool is_scaled) {
  constexpr std::size_t kLarge = 64 << 10;  // bytes; a smaller gradient takes less time than a further operation
  at::Tensor gradient = (*arena_)[i].gradient;
  if (!is_scaled && gradient.nbytes() >= kLarge) {
    gradient.mul_(as_number(scale_));
    is_scaled = true;
  }
  scaled_[i] = is_scaled;
}

DDPXX_INLINE void Reducer::scale(const Bucket& bucket) {
  const auto offset_of = [&](std::size_t i) { return (*arena_)[i].offset - (*arena_)[bucket.first].offset; };
  for (std::size_t i = bucket.first; i < bucket.last; ++i) {
    if (scaled_[i]) continue;
    const auto first = i;
    for (; i < bucket.last && !scaled_[i]; ++i) scaled_[i] = true;
    const auto end = i < bucket.last ? offset_of(i) : bucket.memory.numel();
    bucket.memory.narrow(0, offset_of(first), end - offset_of(first)).mul_(as_number(scale_));
  }
}

DDPXX_INLINE void Reducer::open(std::size_t i) {
  if (options_.stepped != nullptr) options_.stepped->open(bucket_of_[i]);
}

DDPXX_INLINE void Reducer::finish_oldest() {
  const auto k = finished_++;
  pending_[k].wait();
  if (options_.finish) options_.finish(k, buckets_[k].memory);
  if (options_.stepped == nullptr) return;
  if (refused_)
    options_.stepped->drop(k);
  else
    options_.stepped->step(k);
}

}  // namespace ddpxx
