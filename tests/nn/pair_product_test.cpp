// Products of bfloat16 in pairs, of each size that takes another way through the blocks of rows and columns.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#if defined(__x86_64__)

#include <ddpxx/nn/cpu/pair_product.hpp>
#include <ddpxx/nn/cpu/products.hpp>

namespace ddpxx {
namespace pair_product_test {
namespace {

/// Skips the tests on processors whose products of bfloat16 LibTorch computes.
class PairProduct : public testing::Test {
 protected:
  void SetUp() override {
    if (!detail::multiplies_pairs()) GTEST_SKIP() << "this processor has no AVX512_BF16, or is one of Intel";
    at::manual_seed(8);
  }

  static at::Tensor bfloats(at::IntArrayRef sizes) { return at::randn(sizes).to(at::kBFloat16); }
  static at::Tensor exact(const at::Tensor& a, const at::Tensor& b) {
    return at::mm(a.to(at::kDouble), b.to(at::kDouble));
  }
  /// Compares with the product in double precision: a sum of floats, or one that is rounded to bfloat16.
  static void compare(const at::Tensor& found, const at::Tensor& expected) {
    const bool is_rounded = found.scalar_type() == at::kBFloat16;
    EXPECT_TRUE(at::allclose(found.to(at::kDouble), expected, is_rounded ? 1.0 / 256 : 1e-5, 1e-3))
        << found.sizes() << ' ' << found.scalar_type() << ": " << (found.to(at::kDouble) - expected).abs().max();
  }
};

TEST_F(PairProduct, IsTheProductOfTransposedAndOfPlainWeights) {
  for (const std::int64_t rows : {1, 3, 4, 7, 8, 13, 100})
    for (const std::int64_t depth : {16, 48, 144})
      for (const std::int64_t width : {16, 32, 48, 64, 80, 96, 208}) {
        const auto x = bfloats({rows, depth});
        const auto w = at::randn({width, depth});
        compare(detail::times_transposed(x, w), exact(x, w.to(at::kBFloat16).t()));
        compare(detail::times(x, w.t().contiguous()), exact(x, w.to(at::kBFloat16).t()));
      }
}

TEST_F(PairProduct, IsTheProductOfGradientsAndInputsInFloats) {
  for (const std::int64_t rows : {1, 2, 7, 100, 2'051, 4'100})
    for (const std::int64_t out : {16, 48, 112})
      for (const std::int64_t in : {16, 64, 144}) {
        const auto d = bfloats({rows, out}), x = bfloats({rows, in});
        const auto place = at::full({out, in}, 7.0F);
        const auto found = detail::transposed_times(d, x, place);
        EXPECT_TRUE(found.is_same(place));
        compare(found, exact(d.t(), x));
        compare(detail::transposed_times(d, x, {}), exact(d.t(), x));
      }
}

TEST_F(PairProduct, TakesPartsOfALargeWeight) {
  const auto x = bfloats({9, 1'600}), w = at::randn({208, 1'600});
  ASSERT_LT(detail::kPanelPairs / 800, 208) << "the weight is one part";
  compare(detail::times_transposed(x, w), exact(x, w.to(at::kBFloat16).t()));
}

TEST_F(PairProduct, HasEqualBitsInSeveralThreads) {
  const auto x = bfloats({203, 96}), d = bfloats({203, 160});
  const auto w = at::randn({160, 96});
  const auto in_threads = [&](int threads) {
    const auto before = at::get_num_threads();
    at::set_num_threads(threads);
    auto results = std::vector{detail::times_transposed(x, w), detail::times(d, w), detail::transposed_times(d, x, {})};
    at::set_num_threads(before);
    return results;
  };
  const auto one = in_threads(1), three = in_threads(3);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], three[i])) << i;
}

TEST_F(PairProduct, KeepsNaNAndInfinity) {
  constexpr auto kInfinity = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();
  auto w = at::ones({16, 16});
  w[3][5] = kNaN;
  w[4][6] = kInfinity;
  const auto y = detail::times_transposed(at::ones({2, 16}, at::kBFloat16), w).to(at::kFloat);
  EXPECT_TRUE(at::isnan(y.select(1, 3)).all().item<bool>());
  EXPECT_TRUE(at::isposinf(y.select(1, 4)).all().item<bool>());
  EXPECT_EQ(at::isfinite(y).sum().item<std::int64_t>(), 2 * 14);
}

}  // namespace
}  // namespace pair_product_test
}  // namespace ddpxx

#endif
