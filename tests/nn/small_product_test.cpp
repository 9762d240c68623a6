// Products of small matrices, of each size that takes another way through the blocks of rows and columns.
#include <cstdint>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/core/vector_instructions.hpp>

#if defined(__x86_64__)

#include <ddpxx/nn/cpu/products.hpp>
#include <ddpxx/nn/cpu/small_product.hpp>

namespace ddpxx {
namespace small_product_test {
namespace {

/// A product computed in doubles, and the same product by small_product(), as tensors of the same size.
struct Product {
  at::Tensor expected, found;
};

/// Floats behind each row of a result, which must stay as they are.
constexpr std::int64_t kGap = 8;

/// out + A B, or A B, where `is_transposed` says that A lies in memory as its transpose.
template <detail::Result kResult, int kLanes>
Product product(std::int64_t rows, std::int64_t depth, std::int64_t width, bool is_transposed) {
  const auto a = is_transposed ? at::randn({depth, rows}).t() : at::randn({rows, depth});
  const auto b = at::randn({depth, width}), out = at::randn({rows, width + kGap});
  auto expected = out.to(at::kDouble);
  const auto product = at::mm(a.to(at::kDouble), b.to(at::kDouble));
  if (kResult == detail::Result::added)
    expected.narrow(1, 0, width) += product;
  else
    expected.narrow(1, 0, width).copy_(product);
  detail::small_product<kResult>(detail::Lanes<kLanes>{}, {a.const_data_ptr<float>(), a.stride(0), a.stride(1)},
                                 {b.const_data_ptr<float>(), width}, rows, depth, width, out.mutable_data_ptr<float>(),
                                 width + kGap);
  return {expected, out};
}

template <int kLanes>
void compare_all_sizes() {
  at::manual_seed(5);
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 25})
    for (const std::int64_t depth : {1, 2, 33})
      for (const std::int64_t vectors : {1, 2, 3, 4, 5, 6, 7, 8, 10})
        for (const bool is_transposed : {false, true})
          for (const auto& [expected, found] :
               {product<detail::Result::written, kLanes>(rows, depth, vectors * kLanes, is_transposed),
                product<detail::Result::added, kLanes>(rows, depth, vectors * kLanes, is_transposed)})
            EXPECT_TRUE(at::allclose(found.to(at::kDouble), expected, 1e-5, 1e-4))
                << rows << " x " << depth << " times " << depth << " x " << vectors * kLanes << " in " << kLanes
                << " lanes" << (is_transposed ? ", A transposed" : "");
}

TEST(OwnProduct, IsTheProductInPartsOfALargeMatrix) {
  if (!detail::cpu_has_avx2()) GTEST_SKIP() << "this processor has no AVX2";
  at::manual_seed(6);
  for (const std::int64_t depth : {1, 700, 1024, 2100})
    for (const std::int64_t width : {8, 112, 1000})
      for (const bool is_transposed : {false, true}) {
        const auto a = is_transposed ? at::randn({depth, 5}).t() : at::randn({5, depth});
        const auto b = at::randn({depth, width}), out = at::full({5, width}, 7.0F);
        detail::own_product({a.const_data_ptr<float>(), a.stride(0), a.stride(1)}, b.const_data_ptr<float>(), 5, depth,
                            width, out.mutable_data_ptr<float>());
        EXPECT_TRUE(at::allclose(out.to(at::kDouble), at::mm(a.to(at::kDouble), b.to(at::kDouble)), 1e-5, 1e-3))
            << depth << " x " << width << (is_transposed ? ", A transposed" : "");
      }
}

TEST(OwnProduct, HasEqualBitsInSeveralThreads) {
  if (!detail::cpu_has_avx2()) GTEST_SKIP() << "this processor has no AVX2";
  at::manual_seed(7);
  const auto a = at::randn({101, 1500}), b = at::randn({1500, 112});
  const auto in_threads = [&](int threads) {
    const auto before = at::get_num_threads();
    at::set_num_threads(threads);
    const auto out = at::full({101, 112}, 7.0F);
    detail::own_product({a.const_data_ptr<float>(), a.stride(0), a.stride(1)}, b.const_data_ptr<float>(), 101, 1500,
                        112, out.mutable_data_ptr<float>());
    at::set_num_threads(before);
    return out;
  };
  EXPECT_TRUE(at::equal(in_threads(1), in_threads(3)));
}

TEST(OwnProduct, IsNotAskedForProductsOfNoRows) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const auto none_N16 = at::empty({0, 16}, type), none_N32 = at::empty({0, 32}, type), w_32x16 = at::ones({32, 16});
    EXPECT_FALSE(detail::is_own(none_N16, 0, 16, 32));
    EXPECT_FALSE(detail::is_of_pairs(none_N16, 16, 32));
    EXPECT_EQ(detail::times_transposed(none_N16, w_32x16).sizes(), (at::IntArrayRef{0, 32}));
    EXPECT_EQ(detail::times(none_N32, w_32x16).sizes(), (at::IntArrayRef{0, 16}));
    EXPECT_TRUE(at::equal(detail::transposed_times(none_N32, none_N16, {}), at::zeros({32, 16})));
  }
}

TEST(SmallProduct, IsTheProductInEightLanes) {
  if (!detail::cpu_has_avx2()) GTEST_SKIP() << "this processor has no AVX2";
  compare_all_sizes<8>();
}

TEST(SmallProduct, IsTheProductInSixteenLanes) {
  if (!detail::cpu_has_avx512()) GTEST_SKIP() << "this processor has no AVX-512";
  compare_all_sizes<16>();
}

}  // namespace
}  // namespace small_product_test
}  // namespace ddpxx

#endif
