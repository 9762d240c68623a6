// tests/scoped_failpoint.hpp — a failpoint for a part of a test.
#pragma once

#include <cstdlib>
#include <string>

/// Sets DDPXX_FAILPOINT until the end of its scope.
class ScopedFailpoint {
 public:
  explicit ScopedFailpoint(const std::string& order) { ::setenv("DDPXX_FAILPOINT", order.c_str(), 1); }
  ScopedFailpoint(const ScopedFailpoint&) = delete;
  ScopedFailpoint& operator=(const ScopedFailpoint&) = delete;
  ~ScopedFailpoint() { ::unsetenv("DDPXX_FAILPOINT"); }
};
