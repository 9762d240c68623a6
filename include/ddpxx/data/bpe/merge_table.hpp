// ddpxx/data/bpe/merge_table.hpp — which pairs of tokens are merged, and in which order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>

namespace ddpxx::detail {

/// A pair of tokens, and the token that replaces it.
struct Merge {
  std::int32_t left = 0;
  std::int32_t right = 0;
  std::int32_t merged = 0;
};

class MergeTable {
 public:
  /// The merges in the order in which they were learnt. Where a pair comes twice, its last merge counts.
  explicit MergeTable(std::span<const Merge> merges) {
    ranked_.reserve(merges.size());
    std::int32_t rank = 0;
    for (const auto& merge : merges)
      ranked_.insert_or_assign(key(merge.left, merge.right), Ranked{rank++, merge.merged});
  }

  /// Merges neighbours in `word`, the earliest learnt pair first and of equal pairs the leftmost, until there is no
  /// pair left. Takes n log n steps for n tokens.
  /// Errors  `data` for a word of 2^31 tokens or more.
  void apply(std::vector<std::int32_t>& word) const {
    if (word.size() < 2) return;
    if (word.size() > std::size_t{std::numeric_limits<std::int32_t>::max()})
      throw Error{Errc::data, "the text has " + std::to_string(word.size()) +
                                  " bytes in a row that the tokenizer cannot divide into words: put line ends or "
                                  "blanks into it"};
    constexpr std::int32_t kNone = -1;
    struct Part {
      std::int32_t token, before, behind;  // `before` and `behind` are indices; a part that was merged has no token
    };
    std::vector<Part> parts(word.size());
    const auto size = static_cast<std::int32_t>(word.size());
    for (std::int32_t i = 0; i < size; ++i) parts[at(i)] = {word[at(i)], i - 1, i + 1 < size ? i + 1 : kNone};

    using Candidate = std::tuple<std::int32_t, std::int32_t, std::int32_t>;  // rank, index of the left part, merged
    std::vector<Candidate> heap;
    heap.reserve(word.size());
    for (std::int32_t i = 0; i + 1 < size; ++i)
      if (const auto* merge = find(word[at(i)], word[at(i + 1)])) heap.emplace_back(merge->rank, i, merge->merged);
    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates{{}, std::move(heap)};
    const auto consider = [&](std::int32_t left, std::int32_t right) {
      if (left == kNone || right == kNone) return;
      if (const auto* merge = find(parts[at(left)].token, parts[at(right)].token))
        candidates.emplace(merge->rank, left, merge->merged);
    };
    while (!candidates.empty()) {
      const auto [rank, index, merged] = candidates.top();
      candidates.pop();
      auto& left = parts[at(index)];
      if (left.token == kNone || left.behind == kNone) continue;
      auto& right = parts[at(left.behind)];
      const auto* merge = find(left.token, right.token);
      if (merge == nullptr || merge->rank != rank) continue;  // one of the two parts was merged with another one
      left.token = merged;
      left.behind = right.behind;
      right.token = kNone;
      if (left.behind != kNone) parts[at(left.behind)].before = index;
      consider(left.before, index);
      consider(index, left.behind);
    }
    word.clear();
    for (std::int32_t i = 0; i != kNone; i = parts[at(i)].behind) word.push_back(parts[at(i)].token);
  }

 private:
  struct Ranked {
    std::int32_t rank;
    std::int32_t merged;
  };

  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }
  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(left) << 32U | static_cast<std::uint32_t>(right);
  }
  const Ranked* find(std::int32_t left, std::int32_t right) const {
    const auto found = ranked_.find(key(left, right));
    return found == ranked_.end() ? nullptr : &found->second;
  }

  std::unordered_map<std::uint64_t, Ranked> ranked_;
};

}  // namespace ddpxx::detail
