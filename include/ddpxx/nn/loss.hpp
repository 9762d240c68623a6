// ddpxx/nn/loss.hpp — what a model's forward returns: the loss of a batch, and metrics of its own.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace ddpxx {

/// A metric of a model's own as a sum over the targets of a batch. It is reported as sum / count over all ranks and
/// micro-batches, as the loss is.
///
///     {"accuracy", logits.argmax(-1).eq(targets).sum()}
struct NamedSum {
  std::string name;       ///< Without , " \ and control characters; does not begin with = + - or @.
  at::Tensor sum;         ///< 0-dim.
  at::Tensor count = {};  ///< How much the sum counts, 0-dim; undefined: the targets of the batch.
};

/// The loss of a batch as a sum over its targets. The trainer divides it by the number of targets of the whole step,
/// over all ranks and micro-steps, so that no mean of means can arise.
struct Loss {
  at::Tensor sum;  ///< 0-dim.
  /// Reported beside the loss; no gradient follows from them. Names and their order are equal in each call.
  std::vector<NamedSum> metrics = {};
};

}  // namespace ddpxx
