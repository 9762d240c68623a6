#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include <ddpxx/core/units.hpp>

namespace ddpxx::units_test {
namespace {

using Fit = WholeNumber::Fit;

WholeNumber whole(const std::string& text, std::uint64_t factor = 1) {
  return to_whole(parse_decimal(text).value(), factor);
}

TEST(Decimal, ReadsSignsFractionsExponentsUnderscoresAndSuffixes) {
  const auto number = parse_decimal("-1_000.250e+2 MiB").value();
  EXPECT_TRUE(number.negative);
  EXPECT_EQ(number.digits, "100025");
  EXPECT_EQ(number.exponent, 0);
  EXPECT_EQ(number.suffix, "MiB");
}

TEST(Decimal, OfZeroHasNoDigits) {
  for (const char* zero : {"0", "0.0", "-0", "0e9", ".0", "0."}) {
    const auto number = parse_decimal(zero);
    ASSERT_TRUE(number.has_value()) << zero;
    EXPECT_EQ(number->digits, "") << zero;
    EXPECT_EQ(number->exponent, 0) << zero;
  }
}

TEST(WholeNumber, TimesAFactorOfZeroIsZero) {
  for (const char* number : {"5", "0", "-3", "18446744073709551615", "99999999999999999999"}) {
    EXPECT_EQ(whole(number, 0).fit, Fit::exact) << number;
    EXPECT_EQ(whole(number, 0).magnitude, 0U) << number;
  }
}

TEST(Decimal, TakesAnEThatStartsNoExponentForASuffix) {
  EXPECT_EQ(parse_decimal("1e").value().suffix, "e");
  EXPECT_EQ(parse_decimal("1e+").value().suffix, "e+");
  EXPECT_EQ(parse_decimal("2eggs").value().suffix, "eggs");
}

TEST(Decimal, RefusesOtherTexts) {
  for (const char* text : {"", "-", "+", ".", "x", "_1", "e5", "--1", "010", "00", "-01", "007.5", " 1"})
    EXPECT_FALSE(parse_decimal(text).has_value()) << text;
}

TEST(WholeNumbers, AreExactOrRefused) {
  EXPECT_EQ(whole("1e3").magnitude, 1000U);
  EXPECT_EQ(whole("1.5e6").magnitude, 1'500'000U);
  EXPECT_EQ(whole("18446744073709551615").magnitude, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(whole("18446744073709551616").fit, Fit::too_large);
  EXPECT_EQ(whole("1e20").fit, Fit::too_large);
  EXPECT_EQ(whole("1e1000000000000").fit, Fit::too_large);
  EXPECT_EQ(whole("3.9").fit, Fit::fraction);
  EXPECT_EQ(whole("1e-1").fit, Fit::fraction);
  EXPECT_EQ(whole("0e1000000000000").magnitude, 0U);
  EXPECT_TRUE(whole("-5").negative);
}

TEST(WholeNumbers, OfAFactorAreExactToo) {
  EXPECT_EQ(whole("1.5", 1024).magnitude, 1536U);
  EXPECT_EQ(whole("0.1", 1024).fit, Fit::fraction);
  EXPECT_EQ(whole("1.23456789", 1'000'000'000'000).magnitude, 1'234'567'890'000U);
  EXPECT_EQ(whole("0.123046875", std::uint64_t{1} << 40).magnitude, std::uint64_t{126} << 30);
  EXPECT_EQ(whole("16777216", std::uint64_t{1} << 40).fit, Fit::too_large);
}

TEST(RealNumbers, AreTheNearest) {
  EXPECT_EQ(to_real<double>(parse_decimal("0.1").value()), 0.1);
  EXPECT_EQ(to_real<double>(parse_decimal("-3e-4").value()), -3e-4);
  EXPECT_EQ(to_real<float>(parse_decimal("0.1").value()), 0.1F);
  EXPECT_EQ(to_real<double>(parse_decimal("5e-324").value()), 5e-324);
  EXPECT_FALSE(to_real<double>(parse_decimal("1e400").value()).has_value());
  EXPECT_FALSE(to_real<double>(parse_decimal("1e-400").value()).has_value());
  EXPECT_TRUE(std::signbit(to_real<double>(parse_decimal("-0").value()).value()));
}

TEST(CountSuffixes, ArePowersOfTen) {
  EXPECT_EQ(count_exponent(""), 0);
  EXPECT_EQ(count_exponent("k"), 3);
  EXPECT_EQ(count_exponent("K"), 3);
  EXPECT_EQ(count_exponent("M"), 6);
  EXPECT_EQ(count_exponent("G"), 9);
  EXPECT_EQ(count_exponent("T"), 12);
  for (const char* suffix : {"m", "x", "kk", "B", "%"}) EXPECT_FALSE(count_exponent(suffix).has_value()) << suffix;
}

TEST(ByteSuffixes, TellDecimalFromBinary) {
  EXPECT_EQ(byte_factor(""), 1U);
  EXPECT_EQ(byte_factor("B"), 1U);
  EXPECT_EQ(byte_factor("kB"), 1000U);
  EXPECT_EQ(byte_factor("KiB"), 1024U);
  EXPECT_EQ(byte_factor("MB"), 1'000'000U);
  EXPECT_EQ(byte_factor("mib"), std::uint64_t{1} << 20);
  EXPECT_EQ(byte_factor("GiB"), std::uint64_t{1} << 30);
  EXPECT_EQ(byte_factor("TB"), 1'000'000'000'000U);
  EXPECT_EQ(byte_factor("TiB"), std::uint64_t{1} << 40);
  for (const char* suffix : {"k", "M", "Mi", "MiBs", "PB", "ib", "bytes"})
    EXPECT_FALSE(byte_factor(suffix).has_value()) << suffix;
}

TEST(Seconds, AddUpTheirParts) {
  EXPECT_EQ(parse_seconds("90"), 90.0);
  EXPECT_EQ(parse_seconds("0.25"), 0.25);
  EXPECT_EQ(parse_seconds("-1"), -1.0);
  EXPECT_EQ(parse_seconds("500ms"), 0.5);
  EXPECT_EQ(parse_seconds("10us"), 1e-5);
  EXPECT_EQ(parse_seconds("1ms250us40ns"), 1.25004e-3);
  EXPECT_EQ(parse_seconds("1h+30m"), 5400.0);
  EXPECT_EQ(parse_seconds("30s"), 30.0);
  EXPECT_EQ(parse_seconds("10m"), 600.0);
  EXPECT_EQ(parse_seconds("1h30m"), 5400.0);
  EXPECT_EQ(parse_seconds("5min"), 300.0);
  EXPECT_EQ(parse_seconds("1h30min"), 5400.0);
  EXPECT_EQ(parse_seconds("1:30:00"), 5400.0);
  EXPECT_EQ(parse_seconds("00:00:05"), 5.0);
  EXPECT_EQ(parse_seconds("1:02:03:04"), 93784.0);
  EXPECT_EQ(parse_seconds("0:00:01.05"), 1.05) << "a zero behind the point is no leading one";
  EXPECT_EQ(parse_seconds("1_000:00:00"), 3.6e6);
  EXPECT_EQ(parse_seconds("000:000:0007"), 7.0);
  EXPECT_FALSE(parse_seconds("1:30").has_value()) << "ambiguous: hours and minutes, or minutes and seconds";
  EXPECT_FALSE(parse_seconds("1:x:00").has_value());
  EXPECT_EQ(parse_seconds("2d"), 172800.0);
  EXPECT_EQ(parse_seconds("1h20m40s"), 4840.0);
  EXPECT_EQ(parse_seconds("1.5h"), 5400.0);
  EXPECT_EQ(parse_seconds("4.1m"), 246.0);
  EXPECT_EQ(parse_seconds("-1.1h1.1m"), -4026.0);
  EXPECT_EQ(parse_seconds("1e-12s"), 1e-12) << "less than a nanosecond";
  EXPECT_EQ(parse_seconds("1000000d"), 8.64e10) << "more nanoseconds than 64 bits hold";
  EXPECT_EQ(parse_seconds("-1h30m"), -5400.0);
  EXPECT_EQ(parse_seconds("-1m2m"), -180.0);
}

TEST(Seconds, RefuseOtherTexts) {
  for (const char* text :
       {"", "s", "5 minuets", "1h30", "10x", "1h-5m", "h1", "010s", "1h30m ", "ms", "5u", "5usec", "5n"})
    EXPECT_FALSE(parse_seconds(text).has_value()) << text;
  for (const char* text : {"5mins", "5 mins", "1h30mins", "5minin", "1:30:5m", "1:30:"})
    EXPECT_FALSE(parse_seconds(text).has_value()) << text << " must not become milliseconds";
}

TEST(ByteText, IsShortAndBinary) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1 KiB");
  EXPECT_EQ(bytes_text(26214400), "25 MiB");
  EXPECT_EQ(bytes_text(1'610'612'736), "1.5 GiB");
  EXPECT_EQ(bytes_text(1'048'575), "1 MiB");
  EXPECT_EQ(bytes_text(std::numeric_limits<std::uint64_t>::max()), "16777216 TiB");
}

}  // namespace
}  // namespace ddpxx::units_test
