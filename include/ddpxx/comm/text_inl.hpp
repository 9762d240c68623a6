// ddpxx/comm/text_inl.hpp — the definitions of text.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx {

DDPXX_INLINE std::vector<std::string> all_gather_text(const std::string& text, const Group& group) {
  if (group.size() == 1) return {text};
  const auto ranks = group.size();
  const auto bytes_on = at::TensorOptions{}.dtype(at::kByte);
  auto length = at::full({1}, static_cast<std::int64_t>(text.size()), at::TensorOptions{}.dtype(at::kLong));
  auto lengths = at::zeros({ranks}, length.options().device(group.device()));
  all_gather(lengths, length.to(group.device()), group);
  lengths = lengths.to(at::kCPU);
  const auto* sizes = lengths.const_data_ptr<std::int64_t>();
  const std::int64_t longest = *std::max_element(sizes, sizes + ranks);
  if (longest == 0) return std::vector<std::string>(static_cast<std::size_t>(ranks));

  auto mine = at::zeros({longest}, bytes_on);
  std::memcpy(mine.mutable_data_ptr(), text.data(), text.size());
  auto all = at::empty({ranks * longest}, bytes_on.device(group.device()));
  all_gather(all, mine.to(group.device()), group);
  all = all.to(at::kCPU);
  std::vector<std::string> texts;
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    texts.emplace_back(static_cast<const char*>(all.const_data_ptr()) + rank * longest,
                       static_cast<std::size_t>(sizes[rank]));
  return texts;
}

DDPXX_INLINE std::string broadcast_text(const std::string& text, const Group& group, int root) {
  if (group.size() == 1) return text;
  auto length = at::full({1}, static_cast<std::int64_t>(text.size()), at::TensorOptions{}.dtype(at::kLong));
  length = length.to(group.device());
  broadcast(length, group, root);
  auto bytes = at::zeros({length.item<std::int64_t>()}, at::TensorOptions{}.dtype(at::kByte));
  if (group.rank() == root) std::ranges::copy(text, static_cast<char*>(bytes.mutable_data_ptr()));
  bytes = bytes.to(group.device());
  if (bytes.numel() > 0) broadcast(bytes, group, root);
  bytes = bytes.to(at::kCPU);
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::size_t>(bytes.numel())};
}

}  // namespace ddpxx
