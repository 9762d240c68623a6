// ddpxx/parallel/replicas_inl.hpp — the definitions of replicas.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/core/crc32c.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/parallel/replicas.hpp>

namespace ddpxx {

namespace detail {

inline std::uint32_t crc32c_of(const at::Tensor& tensor) {
  const auto values = tensor.detach().cpu().contiguous();
  return crc32c({static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()});
}

/// Says in how many lines the texts of two ranks differ, and names the parameter of the first one.
inline std::string differing_parameters(const std::string& a, const std::string& b) {
  std::istringstream lines_of_a{a}, lines_of_b{b};
  std::int64_t count = 0;
  std::string first;
  for (std::string in_a, in_b; std::getline(lines_of_a, in_a) && std::getline(lines_of_b, in_b);)
    if (in_a != in_b && count++ == 0) first = in_a.substr(in_a.find(' ') + 1);
  return count == 1 ? "parameter \"" + first + "\"" : std::to_string(count) + " parameters, first in \"" + first + "\"";
}

/// Compares the texts of ranks whose first lines are equal. Returns a sentence about the first difference; empty where
/// there is none.
inline std::string difference_of_texts(const std::vector<std::string>& all) {
  std::map<std::string, std::vector<std::size_t>> ranks_by_first_line;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    ranks_by_first_line[all[rank].substr(0, all[rank].find('\n'))].push_back(rank);
  for (const auto& [first_line, ranks] : ranks_by_first_line) {
    const auto equal_to = [&](std::size_t rank) {
      return std::ranges::count_if(ranks, [&](std::size_t other) { return all[other] == all[rank]; });
    };
    if (equal_to(ranks[0]) == std::ssize(ranks)) continue;
    const auto most = *std::ranges::max_element(ranks, {}, equal_to);
    const auto other = *std::ranges::find_if(ranks, [&](std::size_t rank) { return all[rank] != all[most]; });
    return "rank " + std::to_string(other) + " holds other values than rank " + std::to_string(most) + " in " +
           differing_parameters(all[most], all[other]) + "; " + std::to_string(equal_to(most)) + " of the " +
           std::to_string(ranks.size()) + " ranks that should hold equal values hold those of rank " +
           std::to_string(most) +
           ". The memory or the processor of a machine may be faulty, the machines may have different processors or "
           "numbers of threads, or the program changes parameters on some ranks only";
  }
  return {};
}

}  // namespace detail

DDPXX_INLINE void add_slices(Replicas& replicas, const Arena& arena) {
  for (const auto& slice : arena.slices())
    for (const auto& entry : slice.entries())
      replicas.values.emplace_back(entry.parameter->name, slice.values.narrow(0, entry.begin, entry.size));
}

DDPXX_INLINE void add_parameters(Replicas& replicas, const Arena& arena) {
  for (const auto& entry : arena.entries()) replicas.values.emplace_back(entry.name, entry.parameter);
}

DDPXX_INLINE std::string difference_of_replicas(const Replicas& mine, const Group& group) {
  std::ostringstream lines;
  for (const auto& [name, values] : mine.values) lines << crc32c_text(detail::crc32c_of(values)) << ' ' << name << '\n';
  const auto head = "piece " + std::to_string(mine.piece) + '\n', text = lines.str();
  const auto sum = crc32c_text(crc32c(std::as_bytes(std::span{text})));
  if (detail::difference_of_texts(all_gather_text(head + sum, group)).empty()) return {};
  return detail::difference_of_texts(all_gather_text(head + text, group));
}

}  // namespace ddpxx
