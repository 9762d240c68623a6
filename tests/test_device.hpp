// The device on which the ranks of a test compute.
#pragma once

#include <cstdlib>
#include <string>

namespace ddpxx {

/// cpu, or what DDPXX_TEST_DEVICE says: gpu_test runs the tests of strategies with DDPXX_TEST_DEVICE=cuda.
inline std::string test_device() {
  const char* device = std::getenv("DDPXX_TEST_DEVICE");
  return device == nullptr ? "cpu" : device;
}

}  // namespace ddpxx
