// ddpxx/comm/shared_rounds.hpp — lets the ranks of one host wait for each other through memory that they share.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <sched.h>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/comm/futex.hpp>
#include <ddpxx/comm/peer_processes.hpp>
#include <ddpxx/core/failpoint.hpp>

namespace ddpxx::detail {

inline constexpr std::size_t kLineBytes = 128;  ///< Two cache lines: some cores fetch lines in pairs.

/// The words of the ranks' rounds in the shared memory, all 0 at first. They are read and written by std::atomic_ref.
struct RoundWords {
  struct alignas(kLineBytes) Rank {
    std::uint32_t round = 0;    ///< The last round in which the rank has arrived.
    std::uint32_t gave_up = 0;  ///< 1 if the rank will arrive in no further round.
    std::uint32_t core = 0;     ///< The core on which the rank ran when it last arrived.
  };
  alignas(kLineBytes) std::uint32_t arrivals = 0;  ///< Number of arrivals in all rounds.
  alignas(kLineBytes) std::uint32_t round = 0;     ///< The last round in which all ranks have arrived.
  std::uint32_t sleepers = 0;                      ///< Number of ranks that sleep on `round`.

  static std::size_t bytes(int size) { return sizeof(RoundWords) + static_cast<std::size_t>(size) * sizeof(Rank); }
};
static_assert(std::atomic_ref<std::uint32_t>::is_always_lock_free);

/// How long a rank waits for the others in the rounds of a collective.
struct RoundPatience {
  using Time = std::chrono::steady_clock::time_point;

  std::chrono::nanoseconds spin{};    ///< Time for which it looks again and again before it sleeps.
  std::chrono::milliseconds limit{};  ///< It gives up so long after SharedRounds::begin_limit().
  Time end = Time::max();             ///< The time at which it gives up in any case.
};

/// A barrier of ranks that share memory. In each round every rank arrives once; what a rank has written to the shared
/// memory before it arrived can be read by all ranks after the round. Numbers of rounds may wrap around.
///
/// A rank whose process ends, by whatever cause, stays away from the round, and the ranks that wait for it look every
/// `kSlice` whether a missing rank's process has ended. The order of the writes in `arrive()` makes a rank count as
/// missing until it has done all that the others need.
class SharedRounds {
 public:
  static constexpr std::chrono::milliseconds kSlice{20};

  /// `memory` has RoundWords::bytes(size) bytes and is aligned to `kLineBytes`. `names` are the numbers that errors
  /// give the ranks, whose group may be a part of the run; empty: their numbers in this group.
  SharedRounds(void* memory, int rank, int size, PeerProcesses processes = {}, std::vector<int> names = {})
      : words_{static_cast<RoundWords*>(memory)},
        ranks_{reinterpret_cast<RoundWords::Rank*>(static_cast<std::byte*>(memory) + sizeof(RoundWords))},
        processes_{std::move(processes)},
        round_{at(words_->round).load(std::memory_order_acquire)},
        rank_{rank},
        size_{size},
        names_{std::move(names)} {}

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  /// A rank as errors name it.
  std::string name_of(int rank) const {
    return "rank " + std::to_string(names_.empty() ? rank : names_[static_cast<std::size_t>(rank)]);
  }

  const RoundPatience& patience() const noexcept { return patience_; }
  void set_patience(const RoundPatience& patience) noexcept {
    patience_ = patience;
    begin_limit();
  }
  /// Gives the ranks the whole limit again for the rounds that follow. For use after something in which ranks did not
  /// wait for each other by rounds.
  void begin_limit() noexcept { deadline_ = std::min(patience_.end, Clock::now() + patience_.limit); }

  /// Ends one round: arrives and waits for the other ranks.
  /// Errors  std::runtime_error that names a rank which has ended, has given up or is late.
  void pass() {
    arrive();
    wait();
  }

  /// This rank will arrive in no further round; ranks that wait for it get an error at once. Any thread may call it. A
  /// thread of this rank that waits in a round gets an error as well.
  void give_up() noexcept {
    at(ranks_[rank_].gave_up).store(1, std::memory_order_release);
    futex_wake(words_->round);
  }

 private:
  using Clock = std::chrono::steady_clock;

  static std::atomic_ref<std::uint32_t> at(std::uint32_t& word) noexcept { return std::atomic_ref{word}; }

  void arrive() {
    failpoint("shared_rounds.before_arrival");
    ++round_;
    core_ = static_cast<std::uint32_t>(::sched_getcpu());
    at(ranks_[rank_].core).store(core_, std::memory_order_relaxed);
    const auto arrivals = at(words_->arrivals).fetch_add(1, std::memory_order_acq_rel) + 1;
    failpoint("shared_rounds.in_arrival");
    if (arrivals == round_ * static_cast<std::uint32_t>(size_)) {
      // Either this rank sees a sleeper, or the sleeper sees the new round: both orders are sequentially consistent.
      at(words_->round).store(round_, std::memory_order_seq_cst);
      if (at(words_->sleepers).load(std::memory_order_seq_cst) != 0) futex_wake(words_->round);
    }
    at(ranks_[rank_].round).store(round_, std::memory_order_release);
    failpoint("shared_rounds.after_arrival");
  }

  bool has_ended() const noexcept { return at(words_->round).load(std::memory_order_acquire) == round_; }

  void wait() {
    if (has_ended() || (!shares_its_core() && ends_while_spinning())) return;
    for (auto look = Clock::now() + kSlice; !has_ended();) {
      throw_if_abandoned();
      const auto now = Clock::now();
      if (now >= look) {
        throw_if_a_process_has_ended();
        look = now + kSlice;
      }
      if (now >= deadline_) throw_if_late();
      // The round cannot pass beyond this one without this rank, so the word has the number before until it ends.
      at(words_->sleepers).fetch_add(1, std::memory_order_seq_cst);
      futex_wait(words_->round, round_ - 1, std::min<std::chrono::nanoseconds>(look - now, deadline_ - now));
      at(words_->sleepers).fetch_sub(1, std::memory_order_relaxed);
    }
  }

  bool ends_while_spinning() const noexcept {
    for (const auto until = Clock::now() + patience_.spin; Clock::now() < until;)
      for (int i = 0; i < 32; ++i) {
        if (has_ended()) return true;
        spin_pause();
      }
    return false;
  }

  /// Whether a rank that is awaited runs on the core of this one, as far as known. It could not arrive while this rank
  /// spins. The system likes to place two processes there that wake each other.
  bool shares_its_core() const noexcept {
    for (int other = 0; other < size_; ++other)
      if (other != rank_ && at(ranks_[other].core).load(std::memory_order_relaxed) == core_ && is_missing(other))
        return true;
    return false;
  }

  /// A rank that has left the round already may have arrived in the next one.
  bool is_missing(int other) const noexcept {
    return static_cast<std::int32_t>(at(ranks_[other].round).load(std::memory_order_acquire) - round_) < 0;
  }

  void throw_if_abandoned() const {
    for (int other = 0; other < size_; ++other) {
      if (at(ranks_[other].gave_up).load(std::memory_order_acquire) == 0) continue;
      if (other == rank_) throw std::runtime_error{"this rank has abandoned the group"};
      if (is_missing(other)) throw std::runtime_error{name_of(other) + " has abandoned the group"};
    }
  }
  void throw_if_a_process_has_ended() const {
    for (int other = 0; other < size_; ++other)
      if (is_missing(other) && processes_.has_ended(other) && is_missing(other))
        throw std::runtime_error{"the process of " + name_of(other) + " has ended"};
  }
  void throw_if_late() const {
    std::string late;
    for (int other = 0; other < size_; ++other)
      if (is_missing(other)) late += (late.empty() ? "" : ", ") + name_of(other);
    if (!late.empty()) throw std::runtime_error{late + " did not come in time"};
  }

  RoundWords* words_;
  RoundWords::Rank* ranks_;
  PeerProcesses processes_;
  RoundPatience patience_;
  Clock::time_point deadline_{};
  std::uint32_t core_ = 0;
  std::uint32_t round_;  ///< The last round in which this rank has arrived.
  int rank_;
  int size_;
  std::vector<int> names_;
};

}  // namespace ddpxx::detail
