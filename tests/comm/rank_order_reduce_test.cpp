// The bits of a sum are equal whichever vector instructions a processor has.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/comm/rank_order_reduce.hpp>
#include <ddpxx/core/vector_instructions.hpp>

namespace ddpxx::rank_order_reduce_test {
namespace {

constexpr std::ptrdiff_t kCount = 3 * detail::kBlock + 41;

/// Elements of any bits: numbers of all sizes, zeros of both signs, denormal numbers, infinities and NaNs.
template <class T>
std::vector<T> any_bits(std::mt19937& random) {
  std::vector<T> values(kCount);
  auto* const bytes = reinterpret_cast<std::uint8_t*>(values.data());
  for (std::size_t i = 0; i < values.size() * sizeof(T); ++i) bytes[i] = static_cast<std::uint8_t>(random());
  for (std::size_t i = 0; i < values.size(); i += 16) std::memset(bytes + i * sizeof(T), 0, sizeof(T));
  return values;
}

template <class T>
bool is_nan(T value) {
  if constexpr (std::is_integral_v<T>)
    return false;
  else
    return std::isnan(static_cast<double>(value));
}

/// Counts the elements whose bits differ, unless both are NaN.
template <class T>
int differences(const std::vector<T>& left, const std::vector<T>& right) {
  int count = 0;
  for (std::size_t i = 0; i < left.size(); ++i)
    if (std::memcmp(&left[i], &right[i], sizeof(T)) != 0 && !(is_nan(left[i]) && is_nan(right[i]))) ++count;
  return count;
}

template <Reduce kReduce, class In, class Out>
void expect_equal_bits() {
#if defined(__x86_64__)
  std::mt19937 random{7};
  for (const auto number : {1U, 2U, 5U}) {
    std::vector<std::vector<In>> sources;
    std::vector<const void*> addresses;
    for (unsigned i = 0; i < number; ++i) addresses.push_back(sources.emplace_back(any_bits<In>(random)).data());
    std::vector<Out> plain(kCount), vectors(kCount);
    const auto reduce_into = [&](std::vector<Out> & result) __attribute__((always_inline)) {
      detail::reduce_blocks<kReduce, In>(addresses, result.data(), kCount);
    };
    reduce_into(plain);
    const auto in_lanes = [&](auto) __attribute__((always_inline)) { reduce_into(vectors); };
    if (detail::cpu_has_avx2()) {
      detail::with_avx2(in_lanes);
      EXPECT_EQ(differences(plain, vectors), 0);
    }
    if (detail::cpu_has_avx512()) {
      detail::with_avx512(in_lanes);
      EXPECT_EQ(differences(plain, vectors), 0);
    }
  }
#endif
}

template <class In, class Out>
void expect_equal_bits_of_all() {
  expect_equal_bits<Reduce::sum, In, Out>();
  expect_equal_bits<Reduce::min, In, Out>();
  expect_equal_bits<Reduce::max, In, Out>();
}

TEST(RankOrderReduce, HasTheSameBitsWithAllVectorInstructions) {
#if defined(__x86_64__)
  if (!detail::cpu_has_avx2()) GTEST_SKIP() << "this processor has no AVX2";
#else
  GTEST_SKIP() << "vector instructions are used on x86-64 only";
#endif
  expect_equal_bits_of_all<float, float>();
  expect_equal_bits_of_all<double, double>();
  expect_equal_bits_of_all<c10::BFloat16, c10::BFloat16>();
  expect_equal_bits_of_all<c10::Half, c10::Half>();
  expect_equal_bits_of_all<c10::BFloat16, float>();
  expect_equal_bits_of_all<float, c10::Half>();
  expect_equal_bits<Reduce::min, std::int64_t, std::int64_t>();  // a sum could overflow
  expect_equal_bits_of_all<std::int8_t, std::int8_t>();
}

}  // namespace
}  // namespace ddpxx::rank_order_reduce_test
