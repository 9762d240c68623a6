// ddpxx/parallel/comm_hook.hpp — what a communication hook must be able to do: average the gradients of a bucket.
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

/// A communication hook is a policy of DDP, built from its own config and the group.
///
/// `start(bucket, memory, group)` is called in backward, for buckets 0, 1, ... of a step in order, on every rank.
/// `memory` is 1-D and holds this rank's gradients, multiplied by 1/W, with gaps of zeros between parameters. After
/// wait() of the returned Pending, and after `finish` if the hook has it, `memory` holds the average.
///
/// What else a hook may have:
/// `finish(bucket, memory, group)` is the work of this rank after the collective of a bucket. It is called in bucket
/// order on every rank, so it may communicate. DDP calls it after backward; under StepInBackward it is called for a
/// bucket as soon as the next one has been started, and for the last bucket after backward.
/// `attach(arena, buckets)` is called once, before the first step, with the parameters of each bucket.
/// `scale()` returns what gradients are multiplied by instead of 1/W; it is called before each backward pass.
/// `finish_step(arena, group)` is called after the optimizer's step, and when a snapshot has been loaded.
/// `resume_at(step)` is called when a snapshot of step `step` has been loaded, for a hook that counts steps; the hook
/// then drops what it keeps from one step to the next.
/// `abandon()` is called when an exception has ended a step after its first bucket was started, once the collectives
/// under way have ended: `finish` may not have been called for all buckets, and the step does not count.
/// `static constexpr bool kRanksDrift = true` says that the parameters of the ranks may differ after a step: snapshots
/// then hold those of rank 0.
///
/// Only DDP takes a hook, as a template argument. Snapshots do not hold the state of a hook: after a resume it starts
/// anew, with the number of steps that resume_at() gives it.
template <class H>
concept CommHook = BuiltFromHookConfig<H> && StartsBuckets<H>;

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
concept AbandonsHookStep = requires(H hook) { hook.abandon(); };

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
  static_assert(
      AbandonsHookStep<H> || !requires { &H::abandon; }, "hook: abandon is `void abandon()`");
  return true;
}

}  // namespace ddpxx
