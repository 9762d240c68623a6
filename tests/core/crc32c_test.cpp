#include <numeric>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <ddpxx/core/crc32c.hpp>

namespace ddpxx::crc32c_test {
namespace {

auto bytes_of(std::string_view text) { return std::as_bytes(std::span{text}); }

TEST(Crc32c, KnowsThePublishedValuesInWholeAndInPieces) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283U);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\0'))), 0x8A9136AAU);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\xff'))), 0x62A8AB43U);
  EXPECT_EQ(crc32c({}), 0U);
  std::string text(1000, '\0');
  std::iota(text.begin(), text.end(), '\1');
  for (const std::size_t cut : {0U, 1U, 7U, 8U, 500U, 999U})
    EXPECT_EQ(crc32c(bytes_of(text).subspan(cut), crc32c(bytes_of(text).first(cut))), crc32c(bytes_of(text)));
  EXPECT_EQ(~detail::crc32c_portable(~0U, bytes_of(text)), crc32c(bytes_of(text)));
}

}  // namespace
}  // namespace ddpxx::crc32c_test
