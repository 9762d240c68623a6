// ddpxx/launch/agent/descriptor_limit.hpp — the number of descriptors that the agent may have open.
#pragma once

#include <optional>
#include <sys/resource.h>

namespace ddpxx::detail {

/// Raises this process's soft limit of open descriptors to the hard one while the object lives. The agent needs some
/// for each of its ranks, and one for each client of its store.
class DescriptorLimit {
 public:
  DescriptorLimit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
    const rlimit raised{.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) before_ = limit;
  }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;
  ~DescriptorLimit() {
    if (before_) ::setrlimit(RLIMIT_NOFILE, &*before_);
  }

  /// The limit before it was raised; none if it is unchanged.
  const std::optional<rlimit>& before() const noexcept { return before_; }

 private:
  std::optional<rlimit> before_;
};

}  // namespace ddpxx::detail
