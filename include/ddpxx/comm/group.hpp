// ddpxx/comm/group.hpp — this process's membership of a set of ranks.
#pragma once

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <ddpxx/comm/pipe_signal_scope.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// A set of ranks that communicate; a value that can be moved, not copied.
/// A default-constructed group is a world of one: legal everywhere, it communicates nothing.
///
/// `leave()` is the orderly end, `abandon()` that of a rank which has failed. The destructor does not wait for peers. A
/// group over Gloo that has not left is abandoned by its destructor. Over another backend it gives up what is
/// unfinished and keeps the backend's memory; the peers notice when the process ends.
class Group {
 public:
  Group() = default;
  /// Connects some ranks of a group as a group of their own, through a store that they share.
  using ConnectPart = std::function<Group(c10::intrusive_ptr<c10d::Store>, int rank, int size)>;

  /// Takes over a connected backend, and the store that must outlive its start.
  explicit Group(c10::intrusive_ptr<c10d::Backend> backend, c10::intrusive_ptr<c10d::Store> store = {},
                 at::Device device = at::kCPU, ConnectPart connect_part = {})
      : backend_{std::move(backend)},
        store_{std::move(store)},
        device_{device},
        connect_part_{std::move(connect_part)} {}
  Group(Group&&) noexcept = default;
  Group& operator=(Group&&) = delete;
  ~Group() {
    if (runs_over_gloo()) abandon();
    backend_.release();  // the destructor of an unknown backend may wait for peers
    store_.release();
  }

  int rank() const { return backend_ ? backend_->getRank() : 0; }
  int size() const { return backend_ ? backend_->getSize() : 1; }
  /// Where tensors must lie to travel through this group.
  at::Device device() const noexcept { return device_; }

  /// Ends the membership once every rank has called leave(); the group is then a world of one. Parts that have not left
  /// yet end with it, the last made first, even where the program still holds them: nothing can be sent through them
  /// any more. Without a `limit` the ranks wait for each other as long as for a collective. Where a rank is gone or
  /// does not come in time, this rank abandons the group, and with it the collectives that are still under way, and
  /// throws.
  /// Ranks   Collective, and nothing is under way in the parts.
  /// Errors  `peer` if a rank is gone, or did not come within `limit`. The group is then a world of one as well.
  void leave(std::optional<std::chrono::milliseconds> limit = {}) {
    if (!backend_) return;
    try {
      backend_->barrier()->wait(limit ? std::max(*limit, std::chrono::milliseconds{1}) : kNoTimeout);
      shut_down(*parts_);
      backend_->shutdown();
    } catch (const std::exception& e) {
      Error error{Errc::peer, limit ? "leaving the group: a rank is gone, or did not come within " +
                                          std::to_string(limit->count()) + " ms"
                                    : "leaving the group: a rank is gone"};
      error.with("rank", rank()).with("cause", first_line(e));
      abandon();
      throw error;
    }
    reset();
  }

  /// Ends the membership of a rank that has failed but whose process lives on: closes the connections of this group and
  /// of its parts. A peer that waits for this rank, or will, gets an error `peer` at once instead of after its
  /// time-out; when it abandons its group in turn, those learn of it that wait for that peer. The group is then a world
  /// of one.
  /// Ranks   Local: needs no answer from the others.
  void abandon() noexcept {
    if (!backend_) return;
    const bool over_gloo = runs_over_gloo();
    disconnect(*parts_);
    disconnect(*backend_);
    // Without its connections Gloo's queued work fails at once, which its destructor waits for. Other backends may
    // wait.
    if (!over_gloo) backend_.release();
    reset();
  }

  /// The `size` ranks that come with the same `color` as a group of their own, where this one is number `rank`.
  /// Ranks   Collective: all ranks make their parts in the same order, whatever their colors and sizes.
  /// Errors  `config` when the group was made without a `ConnectPart` or without a store.
  Group part(int color, int rank, int size) {
    const auto name = "part" + std::to_string(parts_made_++) + "/" + std::to_string(color);
    if (size == 1) return Group{{}, {}, device_};
    if (!connect_part_ || !store_)
      throw Error{Errc::config,
                  "a part of the ranks is asked for (HSDP needs two), but this group does not know how to connect one: "
                  "give Group's constructor a store and, as its fourth argument, a function (store, rank, size) that "
                  "returns the Group of a part; comm/gloo.hpp has an example"};
    auto part = connect_part_(c10::make_intrusive<c10d::PrefixStore>(name, store_), rank, size);
    parts_->push_back({c10::weak_intrusive_ptr<c10d::Backend>{part.backend_}, part.parts_});
    return part;
  }

  /// The backend itself, for collectives; null in a world of one.
  c10d::Backend* backend() const noexcept { return backend_.get(); }

 private:
  /// What somebody else holds, and its own parts. The backend of a part that has left is gone.
  struct Part {
    c10::weak_intrusive_ptr<c10d::Backend> backend;
    std::shared_ptr<std::vector<Part>> parts;
  };
  static void shut_down(std::vector<Part>& parts) {
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      shut_down(*part->parts);
      if (const auto backend = part->backend.lock()) backend->shutdown();
    }
    parts.clear();
  }

  /// Makes this a world of one.
  void reset() noexcept {
    std::exchange(backend_, {});
    std::exchange(connect_part_, {});  // it holds the store as well, and with it the port
    std::exchange(store_, {});
  }

  bool runs_over_gloo() const { return backend_ && backend_->getBackendName() == "gloo"; }
  static void disconnect(std::vector<Part>& parts) noexcept {
    for (const auto& part : parts) {
      disconnect(*part.parts);
      if (const auto backend = part.backend.lock()) disconnect(*backend);
    }
    parts.clear();
  }
  /// Gloo has no call that closes its connections, but closes all of them when a message does not come in time: this
  /// waits a millisecond for one that no rank sends. Where the connection to a peer is closed already, nothing is
  /// waited for and the others stay open, so each peer is tried.
  static void disconnect(c10d::Backend& backend) noexcept {
    constexpr int kUnusedTag = std::numeric_limits<int>::max();
    const PipeSignalScope broken_pipes_are_errors;
    const int size = backend.getSize();
    for (int next = 1; next < size; ++next) {
      try {
        if (backend.getBackendName() != "gloo") return backend.abort();
        std::vector<at::Tensor> message{at::empty({1}, at::kByte)};
        backend.recv(message, (backend.getRank() + next) % size, kUnusedTag)->wait(std::chrono::milliseconds{1});
      } catch (const std::exception&) {  // the message did not come
      }
    }
  }

  c10::intrusive_ptr<c10d::Backend> backend_;
  c10::intrusive_ptr<c10d::Store> store_;
  at::Device device_ = at::kCPU;
  ConnectPart connect_part_;
  int parts_made_ = 0;
  std::shared_ptr<std::vector<Part>> parts_ = std::make_shared<std::vector<Part>>();
};

}  // namespace ddpxx
