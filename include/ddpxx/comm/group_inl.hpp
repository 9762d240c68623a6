// ddpxx/comm/group_inl.hpp — the definitions of group.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <ddpxx/comm/gloo_disconnect.hpp>
#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/time_limit.hpp>
#include <ddpxx/comm/wait_clock.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx {

namespace detail {

/// Ends a backend whose rank has failed, so that its peers notice it.
inline void disconnect(c10d::Backend& backend) noexcept {
  if (backend.getBackendName() == "gloo") return disconnect_gloo(backend);
  try {
    backend.abort();
  } catch (const std::exception&) {  // it has ended already
  }
}

}  // namespace detail

/// The parts of a group in the order in which they were made. The program owns them; the backend of a part that has
/// left is gone.
struct Group::Parts {
  struct Part {
    c10::weak_intrusive_ptr<c10d::Backend> backend;
    std::shared_ptr<Parts> parts;
  };
  std::vector<Part> all;

  void shut_down() {
    for (auto part = all.rbegin(); part != all.rend(); ++part) {
      part->parts->shut_down();
      if (const auto backend = part->backend.lock()) backend->shutdown();
    }
    all.clear();
  }
  void disconnect() noexcept {
    for (const auto& part : all) {
      part.parts->disconnect();
      if (const auto backend = part.backend.lock()) detail::disconnect(*backend);
    }
    all.clear();
  }
};

DDPXX_INLINE Group::Group()
    : parts_{std::make_shared<Parts>()}, wait_clock_{std::make_shared<WaitClock>(device_)}, process_{::getpid()} {}
DDPXX_INLINE Group::Group(c10::intrusive_ptr<c10d::Backend> backend, c10::intrusive_ptr<c10d::Store> store,
                          at::Device device, ConnectPart connect_part)
    : backend_{std::move(backend)},
      store_{std::move(store)},
      device_{device},
      connect_part_{std::move(connect_part)},
      parts_{std::make_shared<Parts>()},
      wait_clock_{std::make_shared<WaitClock>(device)},
      process_{::getpid()} {}
DDPXX_INLINE Group::Group(Group&&) noexcept = default;
DDPXX_INLINE Group::~Group() {
  if (!forget_if_forked() && ends_without_peers()) abandon();
  backend_.release();  // the destructor of an unknown backend may wait for peers
  store_.release();
}

DDPXX_INLINE int Group::rank() const { return backend_ ? backend_->getRank() : 0; }
DDPXX_INLINE int Group::size() const { return backend_ ? backend_->getSize() : 1; }

DDPXX_INLINE void Group::leave(std::optional<std::chrono::milliseconds> limit) {
  if (!backend_ || forget_if_forked()) return;
  try {
    backend_->barrier()->wait(limit ? std::clamp(*limit, std::chrono::milliseconds{1}, detail::kMaxTimeLimit)
                                    : kNoTimeout);
    parts_->shut_down();
    backend_->shutdown();
  } catch (const std::exception& e) {
    Error error{Errc::peer, limit ? "leaving the group: a rank is gone, or did not come within " +
                                        std::to_string(limit->count()) + " ms"
                                  : "leaving the group: a rank is gone"};
    error.with("rank", number()).with("cause", first_line(e));
    abandon();
    throw error;
  }
  reset();
}

DDPXX_INLINE void Group::abandon() noexcept {
  if (!backend_ || forget_if_forked()) return;
  const bool may_destroy = ends_without_peers();
  parts_->disconnect();
  detail::disconnect(*backend_);
  // Gloo's destructor waits for its queued work, which fails at once without connections. Other backends may wait for
  // peers.
  if (!may_destroy) backend_.release();
  reset();
}

DDPXX_INLINE Group Group::split(const GroupPart& part) {
  const auto name = "part" + std::to_string(parts_made_++) + "/" + std::to_string(part.color);
  if (part.size == 1) {
    Group alone{{}, {}, device_};
    alone.number_ = number();
    alone.wait_clock_ = wait_clock_;
    return alone;
  }
  if (!connect_part_ || !store_)
    throw Error{Errc::config,
                "a part of the ranks is asked for (HSDP needs two), but this group does not know how to connect one: "
                "give Group's constructor a store and, as its fourth argument, a function (store, rank, size) that "
                "returns the Group of a part; comm/gloo.hpp has an example"};
  auto group = connect_part_(c10::make_intrusive<c10d::PrefixStore>(name, store_), part.rank, part.size);
  group.number_ = number();
  group.wait_clock_ = wait_clock_;
  parts_->all.push_back({c10::weak_intrusive_ptr<c10d::Backend>{group.backend_}, group.parts_});
  return group;
}

DDPXX_INLINE void Group::reset() noexcept {
  std::exchange(backend_, {});
  std::exchange(connect_part_, {});  // it also holds the store, and so the port
  std::exchange(store_, {});
}

DDPXX_INLINE bool Group::forget_if_forked() noexcept {
  if (process_ == ::getpid()) return false;
  // The threads of the backend and of the store are not in this process, and what they use is shared with the parent:
  // their destructors would close the parent's connections and end the server of its store.
  backend_.release();
  store_.release();
  reset();
  return true;
}

DDPXX_INLINE bool Group::ends_without_peers() const {
  if (!backend_) return false;
  const auto name = backend_->getBackendName();
  return name == "gloo" || name == "shm" || name == "shm+gloo";
}

}  // namespace ddpxx
