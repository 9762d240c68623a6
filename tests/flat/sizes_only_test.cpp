// Without arithmetic, operations take the memory that they take with it.
#include <cstdint>
#include <fstream>
#include <optional>
#include <tuple>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/flat/live_bytes.hpp>
#include <ddpxx/flat/sizes_only.hpp>

namespace ddpxx::sizes_only_test {
namespace {

/// The bytes after each part of a forward and a backward pass of operations that models use.
std::vector<std::int64_t> bytes_of_pass(bool sizes_only, at::ScalarType type, double dropout) {
  std::vector<std::int64_t> found;
  LiveBytes live;
  std::optional<SizesOnly> no_arithmetic;
  if (sizes_only) no_arithmetic.emplace();
  constexpr std::int64_t kSamples = 2, kLength = 24, kHeads = 4, kWidth = 64, kVocabulary = 50;
  const auto parameter = [type](at::IntArrayRef sizes) { return at::randn(sizes, type).requires_grad_(); };
  const auto table = parameter({kVocabulary, kWidth}), weight = parameter({3 * kWidth, kWidth});
  const auto bias = parameter({3 * kWidth}), scale = parameter({kWidth}), shift = parameter({kWidth});
  const auto ids = at::arange(kSamples * kLength, at::kLong).view({kSamples, kLength}) % kVocabulary;
  const auto note = [&] { found.insert(found.end(), {live.current(), live.peak()}); };
  note();
  auto x = at::dropout(at::embedding(table, ids), dropout, /*train=*/true);
  x = at::layer_norm(x, {kWidth}, scale, shift);
  note();
  const auto parts = at::linear(x, weight, bias).view({kSamples, kLength, kHeads, 3 * kWidth / kHeads}).chunk(3, -1);
  const auto attended = at::scaled_dot_product_attention(parts[0].transpose(1, 2), parts[1].transpose(1, 2),
                                                         parts[2].transpose(1, 2), {}, dropout, /*is_causal=*/true);
  live.reset_peak();  // the kernel of attention has buffers of its own, which SizesOnly leaves out
  note();
  x = x + at::gelu(attended.transpose(1, 2).reshape({kSamples, kLength, kWidth}), "tanh");
  const auto logits = at::linear(x, table).to(at::kFloat).view({-1, kVocabulary});
  const auto loss = at::cross_entropy_loss(logits, ids.view(-1), {}, at::Reduction::Sum);
  note();
  loss.backward();
  note();
  std::vector<at::Tensor> gradients;
  for (const auto& each : {table, weight, bias, scale, shift}) gradients.push_back(each.grad());
  const auto norms = at::_foreach_norm(gradients);
  at::_foreach_mul_(gradients, 0.5);
  const auto sum = at::stack(norms).square_().sum();
  const auto mask = at::cat({x.flatten(), x.flatten()}) > 0;
  note();
  return found;
}

TEST(SizesOnly, OperationsTakeTheMemoryThatTheyTakeWithArithmetic) {
  for (const auto type : {at::kFloat, at::kDouble})
    for (const double dropout : {0.0, 0.5})
      EXPECT_EQ(bytes_of_pass(true, type, dropout), bytes_of_pass(false, type, dropout)) << type << " " << dropout;
}

TEST(SizesOnly, NothingIsComputedButWholeNumbers) {
  auto sum = at::zeros({3});
  auto count = at::zeros({3}, at::kLong);
  auto out = at::zeros({2, 4}), empty_out = at::empty({0});
  {
    const SizesOnly no_arithmetic;
    sum.add_(1);
    count.add_(2);
    const auto product = at::mm(at::ones({2, 3}), at::ones({3, 4}));
    EXPECT_EQ(product.sizes(), (at::IntArrayRef{2, 4}));
    at::mm_out(out, at::ones({2, 3}), at::ones({3, 4}));
    at::mm_out(empty_out, at::ones({2, 3}), at::ones({3, 4}));
    EXPECT_EQ(empty_out.sizes(), product.sizes());
    // Indices that would follow from values which are not there are valid ones.
    const auto largest = at::argmax(product, 1);
    EXPECT_EQ(largest.sizes(), (at::IntArrayRef{2}));
    EXPECT_EQ(largest.data_ptr<std::int64_t>()[1], 0);
    count.copy_(at::ones({3}) * 1e20);
    EXPECT_EQ(count.data_ptr<std::int64_t>()[2], 0);
    EXPECT_EQ(sum.view({1, 3}).data_ptr(), sum.data_ptr()) << "views must be views";
    sum.unsqueeze_(0);
    EXPECT_EQ(sum.dim(), 2);
  }
  EXPECT_EQ(sum.sum().item<float>(), 0);
  EXPECT_EQ(out.sum().item<float>(), 0);
  EXPECT_EQ(at::mm(at::ones({2, 3}), at::ones({3, 4})).sum().item<float>(), 24) << "later operations must compute";
}

TEST(SizesOnly, MemoryThatNobodyWritesToCostsNone) {
  if (std::ifstream{"/proc/sys/vm/overcommit_memory"}.get() == '2')
    GTEST_SKIP() << "the kernel reserves memory that nobody writes to here (vm.overcommit_memory=2)";
  const SizesOnly no_arithmetic;
  const auto large = at::ones({1 << 14, 1 << 14}).requires_grad_();  // 1 GiB
  const auto product = at::mm(large, large.t());                     // 1 GiB, and 9 TFLOP
  EXPECT_EQ(product.size(1), 1 << 14);
  product.sum().backward();
  EXPECT_EQ(large.grad().sizes(), large.sizes());
}

TEST(SizesOnly, AnOperationWhoseResultDependsOnValuesIsRefused) {
  const SizesOnly no_arithmetic;
  const auto values = at::ones({3});
  EXPECT_THROW(std::ignore = values.sum().item(), NeedsValues);
  EXPECT_THROW(std::ignore = at::nonzero(values > 0), NeedsValues);
  EXPECT_THROW(std::ignore = at::masked_select(values, values > 0), NeedsValues);
  EXPECT_THROW(std::ignore = at::equal(values, values), NeedsValues);
}

}  // namespace
}  // namespace ddpxx::sizes_only_test
