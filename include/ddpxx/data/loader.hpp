// ddpxx/data/loader.hpp — makes the batches of one pass over the data, ahead of their use.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <range/v3/range/access.hpp>
#include <range/v3/range/concepts.hpp>
#include <range/v3/range/traits.hpp>

#include <ddpxx/data/batch.hpp>
#include <ddpxx/data/batch_context.hpp>
#include <ddpxx/data/concept.hpp>
#include <ddpxx/data/worker_threads.hpp>

namespace ddpxx {

struct LoaderOptions {
  std::int64_t batch_size = 8;
  std::int64_t num_workers = 0;  ///< At most kMaxWorkers; 0 builds each batch inside of next().
  BatchContext context = {};     ///< Passed to datasets whose batches depend on it.

  static constexpr std::int64_t kMaxWorkers = 1024;
};

/// Checks the options.
///
/// Errors  `config` for a value outside its range.
void check_loader_options(const LoaderOptions& options);

namespace detail {

/// Takes indices from a range; owns the range if it was made from an rvalue, else refers to it.
template <class Indices>
class IndexSource {
 public:
  explicit IndexSource(Indices&& indices) : indices_{std::forward<Indices>(indices)} {}
  IndexSource(const IndexSource&) = delete;
  IndexSource& operator=(const IndexSource&) = delete;

  std::vector<std::int64_t> take(std::int64_t count) {
    std::vector<std::int64_t> taken;
    for (; std::ssize(taken) < count && next_ != end_; ++next_) taken.push_back(*next_);
    return taken;
  }

 private:
  Indices indices_;
  ranges::iterator_t<Indices> next_ = ranges::begin(indices_);
  ranges::sentinel_t<Indices> end_ = ranges::end(indices_);
};

/// Lets the workers run `make`, and returns what it will return.
template <class Batch>
std::future<Batch> started(WorkerThreads& workers, std::function<Batch()> make) {
  const auto task = std::make_shared<std::packaged_task<Batch()>>(std::move(make));
  auto result = task->get_future();
  workers.add([task] { (*task)(); });
  return result;
}

#ifdef DDPXX_CORE  // src/data.cpp compiles it for the usual type of batches
extern template std::future<Batch> started(WorkerThreads& workers, std::function<Batch()> make);
#endif

}  // namespace detail

/// Returns `dataset.batch(indices)`, or `dataset.batch(indices, context)` if the dataset has that, for `batch_size`
/// indices at a time, in their order; the last batch may be smaller. Each worker keeps up to two batches ready. A
/// sampler passed as an lvalue is read as batches are made: it must outlive the loader and stay in its epoch.
/// Errors  `config` for a batch size below 1, a number of workers outside [0, kMaxWorkers] or more than the system has
///         threads for. next() rethrows what the dataset throws for a batch; the batches after it can still be read.
template <MapDataset Dataset>
class Loader {
 public:
  using Batch = BatchOf<Dataset>;

  template <ranges::input_range Indices>
  Loader(std::shared_ptr<const Dataset> dataset, Indices&& indices, const LoaderOptions& options)
      : dataset_{std::move(dataset)},
        options_{(check_loader_options(options), options)},
        workers_{static_cast<std::size_t>(options.num_workers)} {
    auto source = std::make_shared<detail::IndexSource<Indices>>(std::forward<Indices>(indices));
    take_indices_ = [source](std::int64_t count) { return source->take(count); };
    fill();
  }

  /// The next batch; none when the indices are used up.
  std::optional<Batch> next() {
    if (workers_.size() == 0) {
      const auto indices = take_indices_(options_.batch_size);
      if (indices.empty()) return std::nullopt;
      return make_batch(*dataset_, indices, options_.context);
    }
    if (ahead_.empty()) return std::nullopt;
    auto batch = std::move(ahead_.front());
    ahead_.pop_front();
    fill();
    return batch.get();
  }

 private:
  void fill() {
    while (ahead_.size() < 2 * workers_.size()) {
      auto indices = take_indices_(options_.batch_size);
      if (indices.empty()) return;
      ahead_.push_back(detail::started<Batch>(
          workers_, [dataset = dataset_, indices = std::move(indices), context = options_.context] {
            return make_batch(*dataset, indices, context);
          }));
    }
  }

  std::shared_ptr<const Dataset> dataset_;
  LoaderOptions options_;
  std::function<std::vector<std::int64_t>(std::int64_t)> take_indices_;
  std::deque<std::future<Batch>> ahead_;  ///< In the order of delivery.
  WorkerThreads workers_;                 // last, so that jobs end before the members that they use are destroyed
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/data/loader_inl.hpp>
#endif
