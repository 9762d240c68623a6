#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/flat/live_bytes.hpp>
#include <ddpxx/flat/sizes_only.hpp>
#include <ddpxx/layers/autocast_state.hpp>
#include <ddpxx/layers/layer.hpp>
#include <ddpxx/layers/recompute.hpp>
#include <ddpxx/nn/chunked_cross_entropy.hpp>
#include <ddpxx/nn/gpt.hpp>

namespace ddpxx::chunked_cross_entropy_test {
namespace {

constexpr std::int64_t kRows = 23, kWidth = 12, kVocabulary = 50;
constexpr std::int64_t kSomeChunks[] = {1, 7, kRows, kRows + 10};

/// The inputs of a head, of which a third of the targets do not count.
struct Head {
  at::Tensor hidden, weight, targets;

  explicit Head(at::ScalarType type = at::kFloat) {
    at::manual_seed(11);
    hidden = at::randn({kRows, kWidth}).to(type).requires_grad_();
    weight = at::randn({kVocabulary, kWidth}).to(type).requires_grad_();
    targets = at::arange(kRows, at::kLong) * 7 % kVocabulary;
    targets.masked_fill_(at::arange(kRows) % 3 == 1, -1);
  }
  at::Tensor plain_loss() const {
    return at::cross_entropy_loss(at::linear(hidden, weight).to(at::kFloat), targets, {}, at::Reduction::Sum,
                                  /*ignore_index=*/-1);
  }
  at::Tensor chunked_loss(std::int64_t rows) const { return chunked_cross_entropy(hidden, weight, targets, rows); }
};

double relative_error(const at::Tensor& got, const at::Tensor& expected) {
  const auto reference = expected.to(at::kDouble);
  return ((got.to(at::kDouble) - reference).norm() / reference.norm()).item<double>();
}

/// Expects the loss and the gradients of the plain loss, for an incoming gradient that no format of 16 bits holds.
void expect_plain_results(const Head& head, std::int64_t rows, double loss_error, double gradient_error) {
  SCOPED_TRACE("chunks of " + std::to_string(rows) + " rows");
  constexpr double kFactor = 1.0 / 3000;
  const std::vector<at::Tensor> inputs{head.hidden, head.weight};
  const auto plain = head.plain_loss(), chunked = head.chunked_loss(rows);
  EXPECT_EQ(chunked.dim(), 0);
  EXPECT_EQ(chunked.scalar_type(), at::kFloat);
  EXPECT_LE(relative_error(chunked, plain), loss_error);
  const auto expected = torch::autograd::grad({plain * kFactor}, inputs);
  const auto got = torch::autograd::grad({chunked * kFactor}, inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(got[i].scalar_type(), inputs[i].scalar_type());
    EXPECT_EQ(got[i].sizes(), inputs[i].sizes());
    EXPECT_LE(relative_error(got[i], expected[i]), gradient_error) << (i == 0 ? "hidden" : "weight");
  }
}

TEST(ChunkedCrossEntropy, HasThePlainLossAndGradientsForEachSizeOfChunks) {
  for (const auto rows : kSomeChunks) expect_plain_results(Head{}, rows, 1e-6, 1e-5);
}

TEST(ChunkedCrossEntropy, DiffersInSixteenBitsByTheirRoundingOnly) {
  for (const auto rows : kSomeChunks) {
    expect_plain_results(Head{at::kBFloat16}, rows, 1e-6, 0x1p-7);
    expect_plain_results(Head{at::kHalf}, rows, 1e-6, 0x1p-10);
  }
}

TEST(ChunkedCrossEntropy, ComputesInTheTypeOfAutocast) {
  const Head head, in_16_bits{at::kBFloat16};
  const AutocastScope autocast{{.device = at::kCPU, .enabled = true, .type = at::kBFloat16}};
  for (const auto rows : kSomeChunks) {
    expect_plain_results(head, rows, 1e-6, 0x1p-7);
    EXPECT_EQ(head.chunked_loss(rows).item<float>(), in_16_bits.chunked_loss(rows).item<float>());
  }
}

TEST(ChunkedCrossEntropy, SumsTheChunksOfTheWeightsGradientInFloat32) {
  at::manual_seed(12);
  const auto hidden = at::randn({2048, 4}).add_(1).to(at::kBFloat16);
  const auto weight = at::zeros({8, 4}, at::kBFloat16).requires_grad_();
  const auto targets = at::zeros({2048}, at::kLong);
  const auto gradient = torch::autograd::grad({chunked_cross_entropy(hidden, weight, targets, 1)}, {weight})[0];
  const auto exact =
      torch::autograd::grad({at::cross_entropy_loss(at::linear(hidden.to(at::kFloat), weight.to(at::kFloat)), targets,
                                                    {}, at::Reduction::Sum)},
                            {weight})[0];
  EXPECT_LE(relative_error(gradient, exact), 0x1p-8);
}

TEST(ChunkedCrossEntropy, StaysFiniteForLargeLogits) {
  Head head;
  {
    const c10::NoGradGuard no_grad;
    head.weight.mul_(1000);
  }
  expect_plain_results(head, 7, 1e-6, 1e-5);
}

TEST(ChunkedCrossEntropy, ComputesNoGradientOfAFrozenInput) {
  const Head both;
  const auto gradients = torch::autograd::grad({both.chunked_loss(7)}, {both.hidden, both.weight});
  for (const bool weight_is_frozen : {true, false}) {
    Head head;
    (weight_is_frozen ? head.weight : head.hidden).requires_grad_(false);
    head.chunked_loss(7).backward();
    EXPECT_EQ(head.weight.grad().defined(), !weight_is_frozen);
    EXPECT_EQ(head.hidden.grad().defined(), weight_is_frozen);
    EXPECT_TRUE(weight_is_frozen ? at::equal(head.hidden.grad(), gradients[0])
                                 : at::equal(head.weight.grad(), gradients[1]));
  }
}

TEST(ChunkedCrossEntropy, ComputesNoGradientWithoutGradMode) {
  const Head head;
  const auto expected = head.chunked_loss(7);
  const c10::NoGradGuard no_grad;
  LiveBytes live;
  const auto loss = head.chunked_loss(7);
  EXPECT_FALSE(loss.requires_grad());
  EXPECT_EQ(loss.item<float>(), expected.item<float>());
  EXPECT_LT(live.peak(), 7 * kVocabulary * 4 + kVocabulary * kWidth * 4) << "a gradient of the weight was made";
}

TEST(ChunkedCrossEntropy, OfTargetsThatDoNotCountIsZero) {
  const Head head;
  for (const auto rows : {std::int64_t{0}, kRows}) {
    const auto none = at::full({rows}, -1, at::kLong);
    const auto loss = chunked_cross_entropy(head.hidden.narrow(0, 0, rows), head.weight, none, 7);
    EXPECT_EQ(loss.item<float>(), 0);
    const auto gradients = torch::autograd::grad({loss}, {head.hidden, head.weight});
    for (const auto& gradient : gradients) EXPECT_EQ(gradient.abs().max().item<float>(), 0);
  }
}

TEST(ChunkedCrossEntropy, OfFloat64IsComputedInFloat64) {
  const Head head{at::kDouble};
  const std::vector<at::Tensor> inputs{head.hidden, head.weight};
  const auto plain = at::cross_entropy_loss(at::linear(head.hidden, head.weight), head.targets, {}, at::Reduction::Sum,
                                            /*ignore_index=*/-1);
  const auto expected = torch::autograd::grad({plain}, inputs);
  for (const auto rows : kSomeChunks) {
    const auto loss = head.chunked_loss(rows);
    EXPECT_EQ(loss.scalar_type(), at::kDouble);
    EXPECT_LE(relative_error(loss, plain), 1e-14);
    const auto got = torch::autograd::grad({loss}, inputs);
    for (std::size_t i = 0; i < inputs.size(); ++i) EXPECT_LE(relative_error(got[i], expected[i]), 1e-14);
  }
}

TEST(ChunkedCrossEntropy, LeavesOutRowsThatAreNotFinite) {
  const Head finite, head;
  {
    const c10::NoGradGuard no_grad;
    for (const std::int64_t row : {1, 4}) head.hidden[row].fill_(3e38);  // targets that do not count
    ASSERT_FALSE(at::mm(head.hidden, head.weight.t()).isfinite().all().item<bool>());
  }
  const auto expected = finite.plain_loss(), loss = head.chunked_loss(7);
  EXPECT_LE(relative_error(loss, expected), 1e-6);
  const auto expected_gradients = torch::autograd::grad({expected}, {finite.hidden, finite.weight});
  const auto gradients = torch::autograd::grad({loss}, {head.hidden, head.weight});
  for (std::size_t i = 0; i < gradients.size(); ++i)
    EXPECT_LE(relative_error(gradients[i], expected_gradients[i]), 1e-5) << (i == 0 ? "hidden" : "weight");
}

TEST(ChunkedCrossEntropy, AsksForNoValues) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    const Head head{type};
    const SizesOnly no_arithmetic;  // it refuses whatever would make the host wait for a GPU
    EXPECT_NO_THROW(head.chunked_loss(7).backward()) << type;
  }
}

TEST(ChunkedCrossEntropy, MayGoBackTwiceThroughOneGraph) {
  const Head head;
  const auto loss = head.chunked_loss(7);
  const auto first = torch::autograd::grad({loss * 3}, {head.hidden, head.weight}, {}, /*retain_graph=*/true);
  const auto second = torch::autograd::grad({loss * 3}, {head.hidden, head.weight});
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], second[i]));
}

TEST(ChunkedCrossEntropy, RefusesASecondDerivative) {
  const Head head;
  try {
    torch::autograd::grad({head.chunked_loss(7)}, {head.hidden}, {}, /*retain_graph=*/true, /*create_graph=*/true);
    FAIL() << "a graph of the gradient was made";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_NE(std::string{error.what()}.find("has no second derivative: call backward without create_graph"),
              std::string::npos)
        << error.what();
  }
}

TEST(ChunkedCrossEntropy, RefusesShapesThatDoNotFit) {
  const Head head;
  const auto text_of = [](const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                          std::int64_t rows) -> std::string {
    try {
      chunked_cross_entropy(hidden, weight, targets, rows);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::config);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(text_of(head.hidden, head.weight, head.targets, 0),
            "chunked_cross_entropy: chunk_rows is 0, and a chunk has at least one row");
  EXPECT_EQ(text_of(head.hidden, head.weight, head.targets.narrow(0, 1, 22), 7),
            "chunked_cross_entropy: hidden [23, 12], weight [50, 12] and targets [22] do not fit: pass [N, C], [V, C] "
            "and [N]");
  EXPECT_NE(text_of(head.hidden, head.weight.narrow(1, 0, 11), head.targets, 7), "accepted");
  EXPECT_NE(text_of(head.hidden.unsqueeze(0), head.weight, head.targets, 7), "accepted");
}

TEST(ChunkedCrossEntropy, InALayerThatIsRecomputedHasTheSameGradients) {
  struct LossLayer : torch::nn::Module, Layer {
    explicit LossLayer(const Head& head)
        : weight{register_parameter("weight", head.weight.detach().clone())}, targets{head.targets} {}
    at::Tensor forward(const at::Tensor& x) { return chunked_cross_entropy(x.tanh(), weight, targets, 7); }
    at::Tensor weight, targets;
  };
  const auto gradients_by = [](auto wrap) {
    const Head head;
    LossLayer layer{head};
    LayerRunner run{wrap};
    run(layer, head.hidden).backward();
    return std::vector{head.hidden.grad(), layer.weight.grad()};
  };
  const auto expected = gradients_by(PlainCall{}), got = gradients_by(RecomputeCall{});
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(got[i], expected[i]));
}

/// Peak bytes of forward and backward beyond the inputs.
std::int64_t peak_bytes(std::int64_t rows, std::int64_t chunk, at::ScalarType type) {
  constexpr std::int64_t kWide = 1000, kNarrow = 8;
  const auto hidden = at::randn({rows, kNarrow}).to(type).requires_grad_();
  const auto weight = at::randn({kWide, kNarrow}).to(type).requires_grad_();
  const auto targets = at::zeros({rows}, at::kLong);
  LiveBytes live;
  if (chunk > 0)
    chunked_cross_entropy(hidden, weight, targets, chunk).backward();
  else
    at::cross_entropy_loss(at::linear(hidden, weight).to(at::kFloat), targets, {}, at::Reduction::Sum).backward();
  return live.peak();
}

TEST(ChunkedCrossEntropy, HoldsTheLogitsOfOneChunkOnly) {
  constexpr std::int64_t kMany = 512, kChunk = 16, kLogitsOfARow = 1000;
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    SCOPED_TRACE(toString(type));
    const auto width = static_cast<std::int64_t>(c10::elementSize(type));
    // The peak of a single chunk is measured, because a processor with matrix units (AMX) also keeps reordered copies.
    const auto of_a_chunk = peak_bytes(kChunk, kChunk, type);
    const auto gradient_of_hidden = kMany * 8 * 4;
    const auto peak = peak_bytes(kMany, kChunk, type), plain = peak_bytes(kMany, 0, type);
    EXPECT_LT(peak, of_a_chunk + 2 * gradient_of_hidden + kMany * 64) << "more than a chunk and a few numbers a row";
    EXPECT_LT(peak, plain / 8) << "a small part of what the plain loss holds";
    EXPECT_GT(plain, 2 * kMany * kLogitsOfARow * width) << "the plain loss holds all logits";
  }
}

TEST(GPT, WithALossInChunksHasThePlainLossAndGradients) {
  for (const auto layout : {GPTLayout::gpt2, GPTLayout::mingpt_ddp}) {
    const auto train = [&](std::int64_t loss_chunk) {
      at::manual_seed(13);
      GPT gpt{{.n_layer = 1, .n_head = 2, .n_embd = 16, .dropout = 0.0, .layout = layout, .loss_chunk = loss_chunk},
              kVocabulary,
              /*block_size=*/9};
      const auto ids = at::arange(30, at::kLong).view({3, 10}) * 7 % kVocabulary;
      PlainCall plain;
      LayerRunner run{plain};
      std::vector<at::Tensor> results{gpt.forward(run, Batch{ids.narrow(1, 0, 9), ids.narrow(1, 1, 9), 27}).sum};
      results[0].backward();
      for (const auto& parameter : gpt.parameters()) results.push_back(parameter.grad());
      return results;
    };
    const auto expected = train(0), got = train(5);
    EXPECT_LE(relative_error(got[0], expected[0]), 1e-6);
    for (std::size_t i = 1; i < expected.size(); ++i)
      EXPECT_TRUE(at::allclose(got[i], expected[i], 1e-5, 1e-5)) << "parameter " << i;
  }
}

TEST(GPT, KeepsTheChunksOfItsLossInAClone) {
  constexpr std::int64_t kWords = 2000;
  GPT gpt{{.n_layer = 1, .n_head = 1, .n_embd = 4, .loss_chunk = 2}, kWords, /*block_size=*/32};
  const auto copy = std::dynamic_pointer_cast<GPT>(gpt.clone());
  const auto ids = at::arange(33, at::kLong).unsqueeze(0);
  const Batch batch{ids.narrow(1, 0, 32), ids.narrow(1, 1, 32), 32};
  PlainCall plain;
  LayerRunner run{plain};
  const c10::NoGradGuard no_grad;
  for (auto* model : {&gpt, copy.get()}) {
    LiveBytes live;
    model->forward(run, batch);
    EXPECT_LT(live.peak(), 32 * kWords * 4 / 2);
  }
}

}  // namespace
}  // namespace ddpxx::chunked_cross_entropy_test
