// ddpxx/comm/group.hpp — this process's membership of a set of ranks.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace ddpxx {

/// A set of ranks that communicate; a value that can be moved, not copied.
/// A default-constructed group is a world of one: legal everywhere, it communicates nothing.
///
/// `leave()` is the orderly end, `abandon()` that of a rank which has failed. The destructor does not wait for peers. A
/// group over Gloo that has not left is abandoned by its destructor. Over another backend it gives up what is
/// unfinished and keeps the backend's memory; the peers notice when the process ends.
class Group {
 public:
  Group();
  /// Connects some ranks of a group as a group of their own, through a store that they share.
  using ConnectPart = std::function<Group(c10::intrusive_ptr<c10d::Store>, int rank, int size)>;

  /// Takes over a connected backend, and the store that must outlive its start.
  explicit Group(c10::intrusive_ptr<c10d::Backend> backend, c10::intrusive_ptr<c10d::Store> store = {},
                 at::Device device = at::kCPU, ConnectPart connect_part = {});
  Group(Group&&) noexcept;
  Group& operator=(Group&&) = delete;
  ~Group();

  int rank() const;
  int size() const;
  /// Where tensors must lie to travel through this group.
  at::Device device() const noexcept { return device_; }

  /// Ends the membership once every rank has called leave(); the group is then a world of one. Parts that have not left
  /// yet end with it, the last made first, even where the program still holds them: nothing can be sent through them
  /// any more. Without a `limit` the ranks wait for each other as long as for a collective. Where a rank is gone or
  /// does not come in time, this rank abandons the group, and with it the collectives that are still under way, and
  /// throws.
  /// Ranks   Collective, and nothing is under way in the parts.
  /// Errors  `peer` if a rank is gone, or did not come within `limit`. The group is then a world of one as well.
  void leave(std::optional<std::chrono::milliseconds> limit = {});

  /// Ends the membership of a rank that has failed but whose process lives on: closes the connections of this group and
  /// of its parts. A peer that waits for this rank, or will, gets an error `peer` at once instead of after its
  /// time-out; when it abandons its group in turn, those learn of it that wait for that peer. The group is then a world
  /// of one.
  /// Ranks   Local: needs no answer from the others.
  void abandon() noexcept;

  /// The `size` ranks that come with the same `color` as a group of their own, where this one is number `rank`.
  /// Ranks   Collective: all ranks make their parts in the same order, whatever their colors and sizes.
  /// Errors  `config` when the group was made without a `ConnectPart` or without a store.
  Group part(int color, int rank, int size);

  /// The backend itself, for collectives; null in a world of one. A program that calls it includes c10d's Backend.hpp.
  c10d::Backend* backend() const noexcept { return backend_.get(); }

 private:
  struct Parts;

  /// Makes this a world of one.
  void reset() noexcept;
  bool runs_over_gloo() const;

  c10::intrusive_ptr<c10d::Backend> backend_;
  c10::intrusive_ptr<c10d::Store> store_;
  at::Device device_ = at::kCPU;
  ConnectPart connect_part_;
  int parts_made_ = 0;
  std::shared_ptr<Parts> parts_;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/group_inl.hpp>
#endif
