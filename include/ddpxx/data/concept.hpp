// ddpxx/data/concept.hpp — what a dataset must provide for a sampler, a loader and a trainer.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include <ATen/core/Tensor.h>

#include <ddpxx/core/setting.hpp>
#include <ddpxx/data/batch_context.hpp>

namespace ddpxx {

/// What `dataset.batch(indices)` returns.
template <class D>
using BatchOf = decltype(std::declval<const D&>().batch(std::span<const std::int64_t>{}));

template <class D>
concept HasSize = requires(const D& dataset) {
  { dataset.size() } -> std::same_as<std::int64_t>;
};
/// `batch(indices)` is const, and worker threads call it concurrently.
template <class D>
concept MakesBatches = requires { typename BatchOf<D>; };
template <class D>
concept ChangesInBatch =
    !MakesBatches<D> && requires(D& dataset, std::span<const std::int64_t> indices) { dataset.batch(indices); };
template <class B>
concept CountsTokens = requires(const B& batch) {
  requires std::integral<std::remove_cvref_t<decltype(batch.num_tokens)>>;
  requires !std::same_as<std::remove_cvref_t<decltype(batch.num_tokens)>, bool>;
};
template <class B>
concept MovesToDevice = requires(const B& batch, at::Device device) {
  { batch.to(device) } -> std::same_as<B>;
};

/// A dataset whose samples are numbered from 0 and can be read in any order.
template <class D>
concept MapDataset = HasSize<D> && MakesBatches<D> && CountsTokens<BatchOf<D>> && MovesToDevice<BatchOf<D>>;

/// Optional: training batches that depend on the seed and the epoch, such as augmented ones:
/// `Batch batch(std::span<const std::int64_t> indices, const BatchContext& context) const`. Evaluations still call
/// `batch(indices)`, without augmentation.
template <class D>
concept UsesBatchContext =
    requires(const D& dataset, std::span<const std::int64_t> indices, const BatchContext& context) {
      { dataset.batch(indices, context) } -> std::same_as<BatchOf<D>>;
    };

/// A `batch(indices, context)` that make_batch would not call.
template <class D>
concept OddlyUsesBatchContext =
    !UsesBatchContext<D> && requires(D& dataset, std::span<const std::int64_t> indices, BatchContext& context) {
      dataset.batch(indices, context);
    };

/// A training batch: with the context if the dataset uses it.
template <MapDataset D>
BatchOf<D> make_batch(const D& dataset, std::span<const std::int64_t> indices, const BatchContext& context) {
  if constexpr (UsesBatchContext<D>)
    return dataset.batch(indices, context);
  else
    return dataset.batch(indices);
}

/// Optional: facts about the data that snapshots keep and a resumed run compares, such as a checksum.
template <class D>
concept RecordsFacts = requires(const D& dataset) {
  { dataset.recorded() } -> std::convertible_to<Settings>;
};

/// A `recorded()` that recorded_facts would not call.
template <class D>
concept OddlyRecordsFacts = !RecordsFacts<D> && requires(D& dataset) { dataset.recorded(); };

/// The facts that the dataset wants to be recorded; empty if it has no `recorded()`.
template <MapDataset D>
Settings recorded_facts(const D& dataset) {
  if constexpr (RecordsFacts<D>)
    return dataset.recorded();
  else
    return {};
}

template <class B>
consteval bool explain_batch() {
  static_assert(CountsTokens<B>,
                "batch: declare `std::int64_t num_tokens`, the number of targets that count in the loss");
  static_assert(MovesToDevice<B>, "batch: add `Batch to(at::Device) const`, the same batch on that device");
  return true;
}

template <class D>
consteval bool explain_dataset() {
  static_assert(HasSize<D>, "dataset: declare `std::int64_t size() const`, the number of samples");
  static_assert(!ChangesInBatch<D>, "dataset: make batch(indices) const: worker threads call it at the same time");
  static_assert(MakesBatches<D> || ChangesInBatch<D>,
                "dataset: add `Batch batch(std::span<const std::int64_t> indices) const`");
  if constexpr (MakesBatches<D>) {
    static_assert(explain_batch<BatchOf<D>>());
    static_assert(!OddlyUsesBatchContext<D>,
                  "dataset: the training batches are `Batch batch(std::span<const std::int64_t> indices, const "
                  "BatchContext& context) const`, with the type that batch(indices) returns");
  }
  static_assert(!OddlyRecordsFacts<D>, "dataset: recorded is `Settings recorded() const`");
  return true;
}

}  // namespace ddpxx
