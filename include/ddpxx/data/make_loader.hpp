// ddpxx/data/make_loader.hpp — how a program hands a trainer a loader of its own.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include <ddpxx/data/concept.hpp>
#include <ddpxx/data/distributed_sampler.hpp>
#include <ddpxx/data/loader.hpp>

namespace ddpxx {

/// Returns the next batch of a pass over the data; none at its end.
template <class Dataset>
using NextBatch = std::function<std::optional<BatchOf<Dataset>>()>;

/// Makes the loader of one pass over the data, which begins where `sampler` stands and takes its samples in their
/// order: each batch has `options.batch_size` of them, and the last one what is left. `sampler` outlives the loader.
template <class Dataset>
using MakeLoader = std::function<NextBatch<Dataset>(const std::shared_ptr<const Dataset>& dataset,
                                                    DistributedSampler& sampler, const LoaderOptions& options)>;

/// The loader that a trainer uses without another one: `Loader`.
template <MapDataset Dataset>
NextBatch<Dataset> make_loader(const std::shared_ptr<const Dataset>& dataset, DistributedSampler& sampler,
                               const LoaderOptions& options) {
  auto loader = std::make_shared<Loader<Dataset>>(dataset, sampler, options);
  return [loader] { return loader->next(); };
}

}  // namespace ddpxx
