// ddpxx/comm/shared_collectives.hpp — collectives of the ranks of one host through memory that they share.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>

#include <ddpxx/comm/different_calls.hpp>
#include <ddpxx/comm/peer_processes.hpp>
#include <ddpxx/comm/rank_order_reduce.hpp>
#include <ddpxx/comm/reduce.hpp>
#include <ddpxx/comm/shared_rounds.hpp>

namespace ddpxx::detail {

/// Collectives that return when this rank's part is done. All ranks call the same ones in the same order, each from one
/// thread at a time. Reductions add in the order of the ranks, whatever the size, so that their bits are equal on all
/// ranks and in every run.
///
/// Each rank has two buffers in the shared memory, which the pieces of the collectives use in turn. A rank copies what
/// the others need into its own buffer, passes a round, and reads theirs. It writes to that buffer again two pieces
/// later: between them lies at least one round, which the others pass after they have read.
///
/// Errors  std::runtime_error if a rank has ended, has given up or is late; DifferentCalls if it calls another
///         collective.
class SharedCollectives {
 public:
  /// Size of a buffer. A piece of this size stays in a core's own cache; with smaller ones the ranks wait for each
  /// other more often. Of 128 KiB, 512 KiB, 1 MiB and 4 MiB this one took the least time for an all-reduce of 25 MiB.
  static constexpr std::ptrdiff_t kBufferBytes = 1 << 20;
  /// Up to this size each rank reduces all elements itself, which saves a round.
  static constexpr std::ptrdiff_t kMaxFlatBytes = 16 << 10;

  /// Size of the shared memory, which is all 0 at first.
  static std::size_t memory_bytes(int size) {
    return words_bytes(size) + static_cast<std::size_t>(2 * size) * kBufferStride;
  }

  /// Some bytes of the shared memory.
  struct Part {
    std::size_t begin = 0;
    std::size_t bytes = 0;
  };

  /// The part that rank `rank` reserves: its two buffers, and on rank 0 also the words of the rounds. Each byte of the
  /// memory is in the part of one rank.
  static Part part_of(int rank, int size) {
    const auto words = words_bytes(size), buffers = 2 * kBufferStride;
    if (rank == 0) return {0, words + buffers};
    return {words + static_cast<std::size_t>(rank) * buffers, buffers};
  }

  /// `memory` is aligned to a page and lives as long as this object; `names` are those of SharedRounds.
  SharedCollectives(std::byte* memory, int rank, int size, PeerProcesses processes = {}, std::vector<int> names = {})
      : buffers_{memory + words_bytes(size)},
        rounds_{memory, rank, size, std::move(processes), std::move(names)},
        sources_(static_cast<std::size_t>(size)) {}

  SharedRounds& rounds() noexcept { return rounds_; }

  void barrier() {
    begin({Operation::barrier});
    pass_first();
  }

  /// Reduces `count` elements at `data` in place.
  void all_reduce(std::byte* data, std::ptrdiff_t count, c10::ScalarType type, Reduce reduce) {
    const auto function = reduce_function({type, type});
    const auto width = static_cast<std::ptrdiff_t>(c10::elementSize(type));
    const Call call{Operation::all_reduce, static_cast<std::uint32_t>(type) * 8 + static_cast<std::uint32_t>(reduce),
                    static_cast<std::uint64_t>(count)};
    if (count * width <= kMaxFlatBytes) {
      begin(call);
      copy(buffer(rank()), data, count * width);
      pass_first();
      for (int other = 0; other < size(); ++other) source(other) = buffer(other);
      return function(reduce, sources_, data, count);
    }
    const auto most = kBufferBytes / width;
    for (std::ptrdiff_t done = 0; done < count; done += most) {
      begin(call);
      all_reduce_piece(data + done * width, std::min(most, count - done), width, function, reduce, done == 0);
    }
  }

  /// Sums the elements of all ranks' `input` and writes the sums of piece number rank(), `count` elements, to `output`,
  /// which may be that piece of `input`.
  void reduce_scatter(std::byte* output, const std::byte* input, std::ptrdiff_t count, const ReduceTypes& types) {
    const auto function = reduce_function(types);
    const auto width = static_cast<std::ptrdiff_t>(c10::elementSize(types.input));
    const auto output_width = static_cast<std::ptrdiff_t>(c10::elementSize(types.output));
    const Call call{Operation::reduce_scatter, static_cast<std::uint32_t>(types.input),
                    static_cast<std::uint64_t>(count)};
    const auto slot = slot_bytes();
    const auto most = slot / width;
    std::ptrdiff_t done = 0;
    do {
      const auto now = std::min(most, count - done);
      begin(call);
      for_each_other(
          [&](int other) { copy(buffer(rank()) + other * slot, input + (other * count + done) * width, now * width); });
      pass(done == 0);
      for (int other = 0; other < size(); ++other) source(other) = buffer(other) + rank() * slot;
      source(rank()) = input + (rank() * count + done) * width;
      function(Reduce::sum, sources_, output + done * output_width, now);
      done += now;
    } while (done < count);
  }

  /// Writes the `bytes` bytes of all ranks' `input` to `output`, in the order of the ranks. `input` may be this rank's
  /// piece of `output`.
  void all_gather(std::byte* output, const std::byte* input, std::ptrdiff_t bytes) {
    const Call call{Operation::all_gather, 0, static_cast<std::uint64_t>(bytes)};
    std::ptrdiff_t done = 0;
    do {
      const auto now = std::min(kBufferBytes, bytes - done);
      begin(call);
      copy(buffer(rank()), input + done, now);
      pass(done == 0);
      for_each_other([&](int other) { copy(output + other * bytes + done, buffer(other), now); });
      if (auto* own = output + rank() * bytes; own != input) copy(own + done, input + done, now);
      done += now;
    } while (done < bytes);
  }

  /// Sends `input_bytes[r]` bytes of `input` to each rank r, and receives `output_bytes[r]` from it, in the order of
  /// the ranks.
  void all_to_all(std::byte* output, const std::byte* input, std::span<const std::int64_t> output_bytes,
                  std::span<const std::int64_t> input_bytes) {
    const auto most = share_sizes(output_bytes, input_bytes);
    const auto slot = slot_bytes();
    for (std::ptrdiff_t done = 0; done < most; done += slot) {
      const auto piece = [&](std::int64_t bytes) { return std::clamp<std::ptrdiff_t>(bytes - done, 0, slot); };
      begin({Operation::all_to_all});
      const auto* from = input + done;
      for (int other = 0; other < size(); ++other) {
        const auto bytes = input_bytes[static_cast<std::size_t>(other)];
        copy(buffer(rank()) + other * slot, from, piece(bytes));
        from += bytes;
      }
      pass(false);
      auto* to = output + done;
      for (int other = 0; other < size(); ++other) {
        const auto bytes = output_bytes[static_cast<std::size_t>(other)];
        copy(to, buffer(other) + rank() * slot, piece(bytes));
        to += bytes;
      }
    }
  }

  /// Sends the `bytes` bytes at `data` on rank `root` to all ranks.
  void broadcast(std::byte* data, std::ptrdiff_t bytes, int root) {
    const Call call{Operation::broadcast, static_cast<std::uint32_t>(root), static_cast<std::uint64_t>(bytes)};
    std::ptrdiff_t done = 0;
    do {
      const auto now = std::min(kBufferBytes, bytes - done);
      begin(call);
      if (rank() == root) copy(buffer(rank()), data + done, now);
      pass(done == 0);
      if (rank() != root) copy(data + done, buffer(root), now);
      done += now;
    } while (done < bytes);
  }

 private:
  enum class Operation : std::uint32_t { none, barrier, all_reduce, reduce_scatter, all_gather, all_to_all, broadcast };

  /// What a rank calls, for the others to compare with their own call.
  struct Call {
    Operation operation = Operation::none;
    std::uint32_t variant = 0;
    std::uint64_t count = 0;
    friend bool operator==(const Call&, const Call&) = default;
  };

  static constexpr std::size_t kPage = 4096;
  static constexpr std::size_t kBufferStride = kBufferBytes + kPage;

  static std::size_t words_bytes(int size) { return (RoundWords::bytes(size) + kPage - 1) / kPage * kPage; }

  int rank() const noexcept { return rounds_.rank(); }
  int size() const noexcept { return rounds_.size(); }

  template <class Body>
  void for_each_other(Body&& body) {
    for (int other = 0; other < size(); ++other)
      if (other != rank()) body(other);
  }

  static void copy(std::byte* to, const std::byte* from, std::ptrdiff_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  /// A rank's buffer has its call in front of the data.
  std::byte* call_of(int rank) const noexcept {
    return buffers_ + static_cast<std::size_t>(2 * rank + turn_) * kBufferStride;
  }
  std::byte* buffer(int rank) const noexcept { return call_of(rank) + kLineBytes; }
  const void*& source(int rank) { return sources_[static_cast<std::size_t>(rank)]; }

  /// The part of a buffer that is for one of the ranks.
  std::ptrdiff_t slot_bytes() const { return kBufferBytes / size() / kAlignment * kAlignment; }
  static constexpr std::ptrdiff_t kAlignment = 64;

  /// Starts the next piece of a collective, in the other buffer.
  void begin(const Call& call) {
    turn_ = 1 - turn_;
    call_ = call;
    std::memcpy(call_of(rank()), &call, sizeof call);
  }
  void pass(bool is_first) {
    if (is_first) return pass_first();
    rounds_.pass();
  }
  /// Passes the first round of a collective, after which all ranks know what the others call.
  void pass_first() {
    rounds_.pass();
    for_each_other([&](int other) {
      Call theirs;
      std::memcpy(&theirs, call_of(other), sizeof theirs);
      if (theirs != call_)
        throw DifferentCalls{rounds_.name_of(other) + " calls " + text_of(theirs) + ", and " + rounds_.name_of(rank()) +
                             " calls " + text_of(call_)};
    });
  }
  static std::string text_of(const Call& call) {
    constexpr std::array kNames{"nothing",    "barrier",    "all_reduce", "reduce_scatter",
                                "all_gather", "all_to_all", "broadcast"};
    return std::string{kNames.at(static_cast<std::size_t>(call.operation))} + " (" + std::to_string(call.count) +
           (call.operation == Operation::all_reduce || call.operation == Operation::reduce_scatter ? " elements"
                                                                                                   : " bytes") +
           ", variant " + std::to_string(call.variant) + ')';
  }

  /// Each rank reduces one part of the piece, in its own buffer, and then reads the other parts from the others'
  /// buffers.
  void all_reduce_piece(std::byte* data, std::ptrdiff_t count, std::ptrdiff_t width, ReduceFunction function,
                        Reduce reduce, bool is_first) {
    const auto bytes = count * width;
    const auto part = ((bytes + size() - 1) / size() + kAlignment - 1) / kAlignment * kAlignment;
    const auto begin_of = [&](int rank) { return std::min(rank * part, bytes); };
    const auto bytes_of = [&](int rank) { return begin_of(rank + 1) - begin_of(rank); };
    const auto own = begin_of(rank());
    for_each_other([&](int other) { copy(buffer(rank()) + begin_of(other), data + begin_of(other), bytes_of(other)); });
    pass(is_first);
    for (int other = 0; other < size(); ++other) source(other) = buffer(other) + own;
    source(rank()) = data + own;
    function(reduce, sources_, buffer(rank()) + own, bytes_of(rank()) / width);
    rounds_.pass();
    for (int other = 0; other < size(); ++other)
      copy(data + begin_of(other), buffer(other) + begin_of(other), bytes_of(other));
  }

  /// Tells the ranks how much each sends to each; returns the largest of these sizes.
  std::ptrdiff_t share_sizes(std::span<const std::int64_t> output_bytes, std::span<const std::int64_t> input_bytes) {
    begin({Operation::all_to_all, 1});
    copy(buffer(rank()), reinterpret_cast<const std::byte*>(input_bytes.data()),
         static_cast<std::ptrdiff_t>(input_bytes.size_bytes()));
    pass_first();
    std::int64_t most = 0;
    std::vector<std::int64_t> sizes(input_bytes.size());
    for (int other = 0; other < size(); ++other) {
      std::memcpy(sizes.data(), buffer(other), input_bytes.size_bytes());
      most = std::max(most, *std::max_element(sizes.begin(), sizes.end()));
      const auto sent = sizes[static_cast<std::size_t>(rank())];
      const auto expected = output_bytes[static_cast<std::size_t>(other)];
      if (sent != expected)
        throw DifferentCalls{rounds_.name_of(other) + " sends " + std::to_string(sent) + " bytes to " +
                             rounds_.name_of(rank()) + ", which expects " + std::to_string(expected)};
    }
    return most;
  }

  std::byte* buffers_;
  SharedRounds rounds_;
  std::vector<const void*> sources_;
  Call call_;
  int turn_ = 0;
};

}  // namespace ddpxx::detail
