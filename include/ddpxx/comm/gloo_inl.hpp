// ddpxx/comm/gloo_inl.hpp — the definitions of gloo.hpp.
// LibTorch's wheel ships no gloo headers; `gloo_declarations/` then stands in for the few names that this needs.
#pragma once

#include <cstdint>
#include <exception>
#include <sched.h>
#include <string>
#include <utility>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <ddpxx/comm/gloo.hpp>
#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/meeting.hpp>
#include <ddpxx/comm/own_addresses.hpp>
#include <ddpxx/comm/pipe_signal_scope.hpp>
#include <ddpxx/comm/resolve.hpp>
#include <ddpxx/comm/socket_address.hpp>
#include <ddpxx/comm/thread_limit.hpp>
#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/log.hpp>

namespace ddpxx {

namespace detail {

/// While the object lives, threads that this thread starts do not preempt a running thread when they wake up
/// (SCHED_BATCH). Gloo's own thread polls the lock of a connection. On a rank with one core, a thread that has
/// preempted the holder of that lock would spin until its time slice of three milliseconds is over.
class StartsPatientThreads {
 public:
  StartsPatientThreads() : changed_{::sched_getscheduler(0) == SCHED_OTHER && set(SCHED_BATCH)} {}
  StartsPatientThreads(const StartsPatientThreads&) = delete;
  StartsPatientThreads& operator=(const StartsPatientThreads&) = delete;
  ~StartsPatientThreads() {
    if (changed_) set(SCHED_OTHER);
  }

 private:
  static bool set(int policy) {
    const ::sched_param normal{};
    return ::sched_setscheduler(0, policy, &normal) == 0;  // sets the policy of this thread
  }

  bool changed_;
};

/// This host's address on the route to `host`, for ranks that have not exchanged their addresses. If that is a loopback
/// address although the ranks are on several hosts (Debian's "127.0.1.1 name"), an address that other hosts can reach.
/// Empty if there is none.
inline std::string address_towards(const std::string& host, bool one_host) {
  for (const auto& address : look_up(host, 9).addresses)
    if (auto local = local_address_towards(address); !local.empty() && (one_host || !is_loopback(local))) return local;
  const auto outward = outward_addresses();
  return one_host || outward.empty() ? std::string{} : outward.front().text();
}

/// Rank 0 of ranks on several hosts logs how it is reached; the other ranks have chosen an address of the same family.
inline void log_interface(const Meeting& meeting, const std::string& address) {
  if (meeting.rank != 0 || meeting.one_host || meeting.number) return;
  Log{0}.info("the ranks connect by " + std::string{address.find(':') != std::string::npos ? "IPv6" : "IPv4"} +
              ": rank 0 at " + address + " (" + interface_of(address) +
              "); GLOO_SOCKET_IFNAME names another interface");
}

/// The options by which Gloo connects the ranks of `meeting`; making them starts Gloo's thread.
inline c10::intrusive_ptr<c10d::ProcessGroupGloo::Options> gloo_options(const Meeting& meeting) {
  const StartsPatientThreads patient;
  const bool chosen = environment("GLOO_SOCKET_IFNAME").has_value();
  if (!chosen && meeting.address && meeting.address->empty())
    throw Error{Errc::peer,
                "the ranks have no family of addresses in common: some have an IPv4 address alone and some "
                "an IPv6 one, beside those of loopback"};
  const auto address = meeting.address ? *meeting.address : address_towards(meeting.host, meeting.one_host);
  const auto time = meeting.time_to_connect();
  if (address.empty() || chosen) return c10d::ProcessGroupGloo::Options::create_default(time);
  log_interface(meeting, address);
  auto options = c10d::ProcessGroupGloo::Options::create(time);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
  return options;
}

/// The Gloo backend of the ranks of `meeting`.
/// Errors  as connect_gloo().
inline c10::intrusive_ptr<c10d::Backend> gloo_backend(const Meeting& meeting) {
  const PipeSignalScope broken_pipes_are_errors;  // also for the backend's threads, which start here
  check_threads(3, "a group over Gloo");          // the thread of its device and two workers
  try {
    auto backend = c10::make_intrusive<c10d::ProcessGroupGloo>(meeting.store, meeting.rank, meeting.world_size,
                                                               gloo_options(meeting));
    backend->setTimeout(meeting.collective_timeout);
    return backend;
  } catch (Error& error) {
    throw error.with("rank", meeting.rank_in_run());
  } catch (const std::exception& cause) {
    throw Error{Errc::peer, (meeting.checked ? "the ranks met at " + meeting.host + " but"
                                             : "a rank never came to " + meeting.host + ", or the ranks") +
                                " cannot reach each other over Gloo: a rank died meanwhile, a firewall is between "
                                "them, or GLOO_SOCKET_IFNAME must name the interface to use"}
        .with("rank", meeting.rank_in_run())
        .with("cause", harmless(first_line(cause)));
  }
}

}  // namespace detail

DDPXX_INLINE Group connect_gloo(const Meeting& meeting, at::Device device) {
  return Group{detail::gloo_backend(meeting), meeting.store, device,
               [meeting, device](c10::intrusive_ptr<c10d::Store> store, int rank, int size) {
                 return connect_gloo(meeting.part(std::move(store), rank, size), device);
               }};
}

}  // namespace ddpxx
