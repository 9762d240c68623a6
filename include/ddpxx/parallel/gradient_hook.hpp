// ddpxx/parallel/gradient_hook.hpp — the door of the gradient hooks: how DDP brings a bucket's gradients together.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <ATen/core/Tensor.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/pending.hpp>
#include <ddpxx/flat/arena.hpp>

namespace ddpxx {

/// The parameters of a gradient bucket: [first, last) of an arena.
using BucketRange = std::pair<std::size_t, std::size_t>;

template <class H>
concept BuiltFromHookConfig =
    requires { typename H::Config; } && std::constructible_from<H, const typename H::Config&, Group&>;
template <class H>
concept StartsBuckets = requires(H hook, std::size_t bucket, at::Tensor memory, const Group& group) {
  { hook.start(bucket, memory, group) } -> std::same_as<Pending>;
};

/// A gradient hook is a policy of DDP, built from its own config and the group.
///
/// `start(bucket, memory, group)` is called in backward, for buckets 0, 1, ... of a step in order, on every rank.
/// `memory` is 1-D and holds this rank's gradients, scaled by 1/W already, with gaps of zeros between parameters. Once
/// the Pending has been waited for, and `finish` been called if there is one, it holds the average.
///
/// What else a hook may have: `finish`, the part that this rank does itself once a bucket has come. It is called in
/// bucket order on every rank, so it may communicate again: when backward is over, but under StepInBackward while it
/// runs, for a bucket as soon as the next one has been started, and only for the last when backward is over. `attach`,
/// to learn what lies in the buckets. `scale`, what gradients are multiplied by instead of 1/W. `finish_step`, after
/// the optimizer's step. `resume_at(step)`, where it counts steps. `static constexpr bool kRanksDrift = true`, where
/// the ranks' parameters differ after some steps: snapshots then hold those of rank 0.
///
/// Only DDP takes a hook, as a template argument: the other strategies reduce-scatter, or send nothing.
/// What a hook remembers is in no snapshot: after a resume it begins anew, but for the count of steps that it is told.
template <class H>
concept GradientHook = BuiltFromHookConfig<H> && StartsBuckets<H>;

template <class H>
concept FinishesBuckets =
    requires(H hook, std::size_t bucket, at::Tensor memory, const Group& group) { hook.finish(bucket, memory, group); };
template <class H>
concept KnowsBuckets =
    requires(H hook, const Arena& arena, std::span<const BucketRange> buckets) { hook.attach(arena, buckets); };
template <class H>
concept ScalesGradients = requires(const H& hook) {
  { hook.scale() } -> std::same_as<double>;
};
template <class H>
concept FinishesHookStep = requires(H hook, const Arena& arena, const Group& group) { hook.finish_step(arena, group); };

template <class H>
concept HookLetsRanksDrift = requires { requires H::kRanksDrift; };
template <class H>
concept CountsSteps = requires(H hook, std::int64_t step) { hook.resume_at(step); };

template <class H>
consteval bool explain_hook() {
  static_assert(BuiltFromHookConfig<H>, "hook: add `struct Config` and a constructor from (const Config&, Group&)");
  static_assert(
      StartsBuckets<H>,
      "hook: add `Pending start(std::size_t bucket, at::Tensor memory, const Group&)`, which starts to average "
      "the bucket's gradients in place");
  static_assert(
      FinishesBuckets<H> || !requires { &H::finish; },
      "hook: finish is `void finish(std::size_t bucket, at::Tensor memory, const Group&)`");
  static_assert(
      KnowsBuckets<H> || !requires { &H::attach; },
      "hook: attach is `void attach(const Arena&, std::span<const BucketRange>)`");
  static_assert(
      ScalesGradients<H> || !requires { &H::scale; }, "hook: scale is `double scale() const`");
  static_assert(
      FinishesHookStep<H> || !requires { &H::finish_step; },
      "hook: finish_step is `void finish_step(const Arena&, const Group&)`");
  return true;
}

}  // namespace ddpxx
