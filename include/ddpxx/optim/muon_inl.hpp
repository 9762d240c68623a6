// ddpxx/optim/muon_inl.hpp — definitions of muon.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <ddpxx/core/inline.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/number.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/optim/concept.hpp>
#include <ddpxx/optim/group_table.hpp>
#include <ddpxx/optim/muon.hpp>
#include <ddpxx/optim/muon_config.hpp>
#include <ddpxx/optim/parameter_group.hpp>

namespace ddpxx {

DDPXX_INLINE at::Tensor orthogonalized(const at::Tensor& matrix, std::int64_t iterations, double epsilon) {
  constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
  const bool is_tall = matrix.size(0) > matrix.size(1);
  auto x = matrix.to(at::kBFloat16);
  if (is_tall) x = x.t();
  x = x / x.norm().clamp_min(epsilon);
  for (std::int64_t i = 0; i < iterations; ++i) {
    const auto gram = at::mm(x, x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, kB, kC), x, kA);
  }
  return is_tall ? x.t() : x;
}

DDPXX_INLINE Muon::Muon(const Config& config, const Arena& arena, const MakeMatrixTransform& make_transform,
                        std::span<const ParameterGroup> groups)
    : config_{config}, table_{groups, config.learning_rate, config.weight_decay}, momentum_{"momentum_buffer", {}, {}} {
  const bool has_layers = std::ranges::any_of(arena.entries(), [](const auto& entry) { return entry.unit != 0; });
  std::vector<std::size_t> indices;
  for (const auto& entry : arena.entries())
    if (entry.shape.size() == 2 && entry.numel > 0 && (entry.unit != 0 || !has_layers)) {
      indices.push_back(entry.index);
      matrices_.push_back({.shape = entry.shape, .group = table_.index_of(entry.group), .part = arena.empty_slice()});
    }
  std::vector<Slice> others;
  for (const auto& slice : arena.slices())
    for (const auto& entry : slice.entries()) {
      Slice part{.values = slice.values.narrow(0, entry.begin, entry.size),
                 .gradients = slice.gradients.narrow(0, entry.begin, entry.size),
                 .begin = slice.begin + entry.begin,
                 .end = slice.begin + entry.begin + entry.size,
                 .group = slice.group};
      const auto found = std::ranges::find(indices, entry.parameter->index);
      if (found == indices.end()) {
        others.push_back(std::move(part));
        continue;
      }
      momentum_.slices.push_back(at::zeros_like(part.values));
      auto& matrix = matrices_[static_cast<std::size_t>(found - indices.begin())];
      matrix.momentum = momentum_.slices.back();
      matrix.part = std::move(part);
    }
  std::vector<std::size_t> rest;
  for (const auto& entry : arena.entries())
    if (!std::ranges::binary_search(indices, entry.index)) rest.push_back(entry.index);
  steps_ = at::zeros({}, arena.options().dtype(at::kFloat));
  transform_ = make_transform(arena, indices);
  adamw_.emplace(config.adamw, others, groups);
  momentum_.parameters = std::move(indices);
  moments_.push_back(momentum_);
  for (auto moment : adamw_->moments()) {
    moment.parameters = rest;
    moments_.push_back(std::move(moment));
  }
}

DDPXX_INLINE void Muon::step(double learning_rate) {
  const c10::NoGradGuard no_grad;
  steps_.add_(1);
  std::vector<at::Tensor> updates;
  for (auto& matrix : matrices_) {
    if (!matrix.momentum.defined()) {  // this rank holds no element of it
      updates.push_back(matrix.part.values);
      continue;
    }
    const auto& gradient = matrix.part.gradients;
    matrix.momentum.lerp_(gradient, 1 - config_.momentum);
    updates.push_back(config_.nesterov ? at::lerp(gradient, matrix.momentum, config_.momentum)
                                       : matrix.momentum.clone());
  }
  transform_(updates,
             [this](const at::Tensor& matrix) { return orthogonalized(matrix, config_.iterations, config_.epsilon); });
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    auto& values = matrices_[i].part.values;
    if (values.numel() == 0) continue;
    const double rate = table_.learning_rate(matrices_[i].group, learning_rate);
    if (const double decay = table_.weight_decay(matrices_[i].group); decay != 0.0)
      values.mul_(as_number(1 - rate * decay));
    values.add_(updates[i], -rate * scale(matrices_[i].shape));
  }
  // With a peak of 0 every rate of the schedule is 0, and so is AdamW's.
  const double share = config_.learning_rate == 0.0 ? 0.0 : learning_rate / config_.learning_rate;
  adamw_->step(share * config_.adamw.learning_rate);
}

DDPXX_INLINE void Muon::resume_at(std::int64_t) {
  const c10::NoGradGuard no_grad;
  if (adamw_->step_count().defined()) at::Tensor{adamw_->step_count()}.copy_(steps_);
}

DDPXX_INLINE double Muon::scale(const std::vector<std::int64_t>& shape) const {
  const auto rows = static_cast<double>(shape[0]), columns = static_cast<double>(shape[1]);
  return config_.scale == MuonScale::original ? std::sqrt(std::max(1.0, rows / columns))
                                              : 0.2 * std::sqrt(std::max(rows, columns));
}

}  // namespace ddpxx
