// ddpxx/comm/group.hpp — the membership of this process in a set of ranks.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <sys/types.h>

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace ddpxx {

class WaitClock;

/// A part of a group, for `Group::split`.
struct GroupPart {
  int color = 0;  ///< Ranks with an equal color are in one part.
  int rank = 0;   ///< This rank's number in the part.
  int size = 1;   ///< The number of ranks in the part.
};

/// A set of ranks that communicate; it can be moved, but not copied. A default-constructed group is a world of one: it
/// can be used everywhere and sends nothing.
///
/// `leave()` ends the membership in order, `abandon()` ends that of a rank which has failed. The destructor never waits
/// for peers. If leave() was not called, it calls abandon() over Gloo and shared memory; with another backend it gives
/// up unfinished collectives and does not free the backend's memory, and the peers notice when the process ends.
///
/// A child process that is forked later has a copy of the group, whose connections, memory and store are those of its
/// parent. In the child, leave(), abandon() and the destructor end the copy only and do not change the parent's group.
class Group {
 public:
  Group();
  /// Connects some ranks of a group to a group of their own, through a store that they share.
  using ConnectPart = std::function<Group(c10::intrusive_ptr<c10d::Store>, int rank, int size)>;

  /// Takes over a connected backend, and the store that must live until the backend has started.
  explicit Group(c10::intrusive_ptr<c10d::Backend> backend, c10::intrusive_ptr<c10d::Store> store = {},
                 at::Device device = at::kCPU, ConnectPart connect_part = {});
  Group(Group&&) noexcept;
  Group& operator=(Group&&) = delete;
  ~Group();

  int rank() const;
  int size() const;
  /// This process's rank in the group of which this one is a part, or a part of a part; otherwise rank(). Errors name
  /// it, because a user knows the ranks of the run.
  int number() const { return number_.value_or(rank()); }
  /// Whether split() has made this group.
  bool is_part() const noexcept { return number_.has_value(); }
  /// The device on which tensors must be to be sent through this group.
  at::Device device() const noexcept { return device_; }

  /// Ends the membership once every rank has called leave(); the group is then a world of one. Parts that have not left
  /// yet end too, the newest first, even if the program still holds them: nothing can be sent through them afterwards.
  /// Without a `limit` the ranks wait for each other as long as for a collective. If a rank is gone or does not call
  /// leave() in time, this rank abandons the group and its pending collectives, and throws.
  /// Ranks   Collective. The parts must have no pending collectives.
  /// Errors  `peer` if a rank is gone, or did not call it within `limit`. The group is then a world of one, too.
  void leave(std::optional<std::chrono::milliseconds> limit = {});

  /// Ends the membership of a rank that has failed but whose process continues: closes the connections of this group
  /// and of its parts. A peer that waits for this rank, now or later, gets an error `peer` at once instead of after its
  /// timeout; when that peer abandons its group too, the ranks that wait for it get the error. The group is then a
  /// world of one. With a backend whose `abort()` does nothing, the peers notice when the process ends.
  /// Ranks   Local: other ranks need not call it.
  void abandon() noexcept;

  /// Makes a group of the ranks that pass an equal `color`.
  /// Ranks   Collective: all ranks make their parts in the same order, whatever their colors and sizes.
  /// Errors  `config` if the group was made without a `ConnectPart` or without a store.
  Group split(const GroupPart& part);

  /// Measures how long this rank waits for collectives of this group and of its parts. A part has its group's clock.
  const std::shared_ptr<WaitClock>& wait_clock() const noexcept { return wait_clock_; }

  /// The backend itself, for collectives; null in a world of one. A program that calls it includes c10d's Backend.hpp.
  /// Calls that this library does not make, such as send and recv, need comm.backend=gloo or nccl.
  c10d::Backend* backend() const noexcept { return backend_.get(); }

 private:
  struct Parts;

  /// Makes this a world of one.
  void reset() noexcept;
  /// If a parent of this process has made the group, makes this a world of one without freeing what belongs to the
  /// parent, and returns true.
  bool forget_if_forked() noexcept;
  /// Whether the backend can be destroyed without waiting for peers.
  bool ends_without_peers() const;

  c10::intrusive_ptr<c10d::Backend> backend_;
  c10::intrusive_ptr<c10d::Store> store_;
  at::Device device_ = at::kCPU;
  ConnectPart connect_part_;
  std::optional<int> number_;  ///< None in a group that is not a part.
  int parts_made_ = 0;
  std::shared_ptr<Parts> parts_;
  std::shared_ptr<WaitClock> wait_clock_;
  pid_t process_;  ///< The process that has made the group.
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/group_inl.hpp>
#endif
