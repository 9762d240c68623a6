// ddpxx/comm/group.hpp — this process's membership of a set of ranks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// A set of ranks that communicate; a value that can be moved, not copied.
/// A default-constructed group is a world of one: legal everywhere, it communicates nothing.
///
/// The destructor neither communicates nor waits: a rank that unwinds must not hang on its peers, and Gloo's own
/// destructor would wait for queued work. What is unfinished is let go; the end of the process closes the sockets,
/// which is how the peers learn of it. `leave()` is the orderly end.
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
    backend_.release();
    store_.release();
  }

  int rank() const { return backend_ ? backend_->getRank() : 0; }
  int size() const { return backend_ ? backend_->getSize() : 1; }
  /// Where tensors must lie to travel through this group.
  at::Device device() const noexcept { return device_; }

  /// Ends the membership once every rank has come here; the group is then a world of one. Its parts that have not left
  /// by themselves end with it, the last made first, whether or not somebody holds them still: nothing can be sent
  /// through them any more.
  /// Ranks   Collective, and nothing is under way in the parts.
  /// Errors  `peer` if a rank is gone.
  void leave() {
    if (!backend_) return;
    try {
      backend_->barrier()->wait();
      shut_down(*parts_);
    } catch (const std::exception& e) {
      throw Error{Errc::peer, "leaving the group: a rank is gone"}.with("rank", rank()).with("cause", first_line(e));
    }
    std::exchange(backend_, {})->shutdown();
    std::exchange(store_, {});
  }

  /// The `size` ranks that come with the same `color` as a group of their own, where this one is number `rank`.
  /// Ranks   Collective: all ranks make their parts in the same order, whatever their colors and sizes.
  Group part(int color, int rank, int size) {
    const auto name = "part" + std::to_string(parts_made_++) + "/" + std::to_string(color);
    if (size == 1) return Group{{}, {}, device_};
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

  c10::intrusive_ptr<c10d::Backend> backend_;
  c10::intrusive_ptr<c10d::Store> store_;
  at::Device device_ = at::kCPU;
  ConnectPart connect_part_;
  int parts_made_ = 0;
  std::shared_ptr<std::vector<Part>> parts_ = std::make_shared<std::vector<Part>>();
};

}  // namespace ddpxx
