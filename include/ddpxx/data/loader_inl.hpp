// ddpxx/data/loader_inl.hpp — the function of loader.hpp that is not a template.
#pragma once

#include <string>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/data/loader.hpp>

namespace ddpxx {

DDPXX_INLINE void check_loader_options(const LoaderOptions& options) {
  if (options.batch_size < 1)
    throw Error{Errc::config, "loader: batch_size " + std::to_string(options.batch_size) + " is below 1"};
  if (options.num_workers < 0)
    throw Error{Errc::config, "loader: num_workers " + std::to_string(options.num_workers) + " is negative"};
  if (options.num_workers > LoaderOptions::kMaxWorkers)
    throw Error{Errc::config, "loader: num_workers " + std::to_string(options.num_workers) + " is above " +
                                  std::to_string(LoaderOptions::kMaxWorkers) +
                                  "; more threads than this machine's processors seldom help"};
}

}  // namespace ddpxx
