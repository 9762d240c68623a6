// ddpxx/train/matrix_owners_inl.hpp — definitions of matrix_owners.hpp; ddpxx/core/inline.hpp says how they are
// compiled.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/group.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/train/matrix_owners.hpp>

namespace ddpxx {

/// One all-to-all: tensors for each rank, in the order in which they are sent and taken.
class MatrixOwners::Exchange {
 public:
  Exchange(const Group& group, const at::TensorOptions& options)
      : group_{&group}, options_{options}, outgoing_(ranks()), sizes_(ranks()), taken_(ranks()) {}

  void send(int rank, const at::Tensor& tensor) {
    outgoing_[static_cast<std::size_t>(rank)].push_back(tensor.to(options_.device()));
  }
  void expect(int rank, std::int64_t size) { sizes_[static_cast<std::size_t>(rank)] += size; }
  void run() {
    std::vector<std::int64_t> sent(ranks());
    std::vector<at::Tensor> all;
    for (std::size_t rank = 0; rank < ranks(); ++rank)
      for (const auto& tensor : outgoing_[rank]) {
        sent[rank] += tensor.numel();
        all.push_back(tensor);
      }
    const auto input = all.empty() ? at::empty({0}, options_) : at::cat(all);
    received_ = at::empty({std::accumulate(sizes_.begin(), sizes_.end(), std::int64_t{0})}, options_);
    all_to_all(received_, input, sizes_, sent, *group_);
    std::exclusive_scan(sizes_.begin(), sizes_.end(), taken_.begin(), std::int64_t{0});
  }
  at::Tensor next(int rank, std::int64_t size) {
    auto& begin = taken_[static_cast<std::size_t>(rank)];
    return received_.narrow(0, std::exchange(begin, begin + size), size);
  }

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(group_->size()); }

  const Group* group_;
  at::TensorOptions options_;
  std::vector<std::vector<at::Tensor>> outgoing_;
  std::vector<std::int64_t> sizes_, taken_;
  at::Tensor received_;
};

template <class Body>
void MatrixOwners::for_own(Body&& body) const {
  for (std::size_t i = 0; i < matrices_.size(); ++i)
    if (owners_[i] == group_->rank()) body(i);
}

DDPXX_INLINE MatrixOwners::MatrixOwners(const Arena& arena, std::vector<std::size_t> matrices, const Group& group)
    : arena_{&arena}, matrices_{std::move(matrices)}, group_{&group}, owners_(matrices_.size()) {
  std::vector<std::size_t> order(matrices_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return cost(a) > cost(b); });
  std::vector<double> load(static_cast<std::size_t>(group.size()));
  for (const auto i : order) {
    const auto least = std::ranges::min_element(load);
    *least += cost(i);
    owners_[i] = static_cast<int>(least - load.begin());
  }
}

DDPXX_INLINE std::pair<std::int64_t, std::int64_t> MatrixOwners::range(std::size_t i, int rank) const {
  const auto& entry = (*arena_)[matrices_[i]];
  const auto& segment = arena_->segments()[entry.segment];
  const auto size = segment.size() / arena_->pieces();
  const auto begin = segment.begin + size * (rank % arena_->pieces()) - entry.offset;
  return {std::clamp<std::int64_t>(begin, 0, entry.numel), std::clamp<std::int64_t>(begin + size, 0, entry.numel)};
}

DDPXX_INLINE double MatrixOwners::cost(std::size_t i) const {
  const auto& shape = (*arena_)[matrices_[i]].shape;
  return static_cast<double>(shape[0]) * static_cast<double>(shape[1]) *
         static_cast<double>(std::min(shape[0], shape[1]));
}

DDPXX_INLINE std::int64_t MatrixOwners::size(std::size_t i, int rank) const {
  const auto [begin, end] = range(i, rank);
  return end - begin;
}

DDPXX_INLINE void MatrixOwners::transform(std::span<const at::Tensor> parts,
                                          const std::function<at::Tensor(const at::Tensor&)>& change) const {
  if (matrices_.empty()) return;
  const c10::NoGradGuard no_grad;
  // Offloaded parts lie in the CPU's memory; the ranks exchange and change them on their devices.
  const auto options = parts.front().options().device(group_->device());
  // To the owners: from those ranks that hold one copy of the model together with the owner.
  const auto joins = [&](int rank, int owner) { return rank / arena_->pieces() == owner / arena_->pieces(); };
  Exchange to_owners{*group_, options};
  for (int owner = 0; owner < group_->size(); ++owner)
    for (std::size_t i = 0; i < matrices_.size(); ++i)
      if (owners_[i] == owner && joins(group_->rank(), owner)) to_owners.send(owner, parts[i]);
  for_own([&](std::size_t i) {
    for (int rank = 0; rank < group_->size(); ++rank)
      if (joins(rank, group_->rank())) to_owners.expect(rank, size(i, rank));
  });
  to_owners.run();

  std::vector<at::Tensor> results(matrices_.size());
  for_own([&](std::size_t i) {
    const auto& entry = (*arena_)[matrices_[i]];
    auto whole = at::empty({entry.numel}, options);
    for (int rank = 0; rank < group_->size(); ++rank) {
      if (!joins(rank, group_->rank())) continue;
      const auto [begin, end] = range(i, rank);
      whole.narrow(0, begin, end - begin).copy_(to_owners.next(rank, end - begin));
    }
    results[i] = change(whole.view(entry.shape)).to(options.dtype()).reshape(-1);
  });

  Exchange from_owners{*group_, options};
  for (int rank = 0; rank < group_->size(); ++rank)
    for_own([&](std::size_t i) {
      const auto [begin, end] = range(i, rank);
      from_owners.send(rank, results[i].narrow(0, begin, end - begin));
    });
  for (std::size_t i = 0; i < matrices_.size(); ++i) from_owners.expect(owners_[i], size(i, group_->rank()));
  from_owners.run();
  for (std::size_t i = 0; i < matrices_.size(); ++i)
    at::Tensor{parts[i]}.copy_(from_owners.next(owners_[i], size(i, group_->rank())));
}

}  // namespace ddpxx
