#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/observe/memory.hpp>

namespace ddpxx::memory_test {
namespace {

TEST(PeakResidentBytes, RisesWithWhatWasTouchedAndStays) {
  constexpr std::size_t kBytes = 64 << 20;
  const auto before = peak_resident_bytes();
  EXPECT_GT(before, 1 << 20);
  { const std::vector<char> touched(kBytes + static_cast<std::size_t>(before), 'x'); }
  EXPECT_GE(peak_resident_bytes(), before + static_cast<std::int64_t>(kBytes) / 2);
}

}  // namespace
}  // namespace ddpxx::memory_test
