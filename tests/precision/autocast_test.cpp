// Autocast: which operations are cast, and that a scope restores the state that it found.
#include <stdexcept>
#include <string>
#include <thread>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/precision/autocast.hpp>

namespace ddpxx::autocast_test {
namespace {

constexpr at::ScalarType type_of(const AutocastBF16&) { return at::kBFloat16; }
constexpr at::ScalarType type_of(const AutocastFP16&) { return at::kHalf; }

void expect_same(const AutocastState& a, const AutocastState& b) {
  EXPECT_EQ(a.enabled, b.enabled);
  EXPECT_EQ(a.type, b.type);
  EXPECT_EQ(a.cache, b.cache);
}

template <class P>
class Autocast : public testing::Test {
 protected:
  P precision_{typename P::Config{}};
  AutocastState before_ = AutocastState::of(at::kCPU);
  at::Tensor x_ = at::randn({3, 8});
  at::Tensor weight_ = at::randn({4, 8}).set_requires_grad(true);

  at::Tensor product() const { return at::linear(x_, weight_); }
  at::Tensor product_by_hand() const { return at::linear(x_.to(type_of(precision_)), weight_.to(type_of(precision_))); }
};
using Policies = testing::Types<AutocastBF16, AutocastFP16>;
TYPED_TEST_SUITE(Autocast, Policies);

TYPED_TEST(Autocast, RunsMatrixProductsInSixteenBitsAndKeepsFloat32Gradients) {
  at::Tensor inside;
  {
    const auto scope = this->precision_.forward_scope(at::kCPU);
    inside = this->product();
  }
  EXPECT_TRUE(at::equal(inside, this->product_by_hand()));
  EXPECT_EQ(this->product().scalar_type(), at::kFloat);
  inside.sum().backward();
  EXPECT_EQ(this->weight_.grad().scalar_type(), at::kFloat);
}

TYPED_TEST(Autocast, ScopesNestAndGiveBackWhatTheyFound) {
  {
    const auto outer = this->precision_.forward_scope(at::kCPU);
    {
      const AutocastScope inner{{.device = at::kCPU, .enabled = false, .type = at::kBFloat16, .cache = false}};
      EXPECT_EQ(this->product().scalar_type(), at::kFloat);
    }
    expect_same(AutocastState::of(at::kCPU), {at::kCPU, true, type_of(this->precision_), true});
    {
      const auto inner = this->precision_.forward_scope(at::kCPU);
      EXPECT_EQ(this->product().scalar_type(), type_of(this->precision_));
    }
    EXPECT_EQ(this->product().scalar_type(), type_of(this->precision_));
  }
  expect_same(AutocastState::of(at::kCPU), this->before_);
  EXPECT_EQ(at::autocast::increment_nesting(), 1);
  at::autocast::decrement_nesting();
}

TYPED_TEST(Autocast, AnExceptionEndsTheScope) {
  try {
    const auto scope = this->precision_.forward_scope(at::kCPU);
    throw std::runtime_error{"from a forward pass"};
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  expect_same(AutocastState::of(at::kCPU), this->before_);
}

TYPED_TEST(Autocast, TheNextScopeSeesAnOptimizerStep) {
  const auto change = [&] {
    const c10::NoGradGuard no_grad;
    this->weight_.add_(1.0);
  };
  const auto once = this->product_by_hand();
  {
    const auto scope = this->precision_.forward_scope(at::kCPU);
    EXPECT_TRUE(at::equal(this->product(), once));
    change();
    EXPECT_TRUE(at::equal(this->product(), once)) << "a scope must cast a weight once and then use the cached copy";
  }
  const auto scope = this->precision_.forward_scope(at::kCPU);
  EXPECT_FALSE(at::equal(this->product(), once));
  EXPECT_TRUE(at::equal(this->product(), this->product_by_hand()));
}

TYPED_TEST(Autocast, HoldsForItsThreadAndItsDeviceOnly) {
  const auto scope = this->precision_.forward_scope(at::kCPU);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCUDA));
  bool elsewhere = true;
  std::thread{[&] { elsewhere = at::autocast::is_autocast_enabled(at::kCPU); }}.join();
  EXPECT_FALSE(elsewhere);
}

TYPED_TEST(Autocast, LeavesParametersInFloat32) {
  const NumberFormats formats = this->precision_.formats();
  EXPECT_EQ(formats.of("weight"), std::nullopt);
  EXPECT_EQ(formats.reduction, std::nullopt);
}

TEST(AutocastFP16, AGradientTooSmallForFloat16ArrivesBecauseTheLossIsScaled) {
  const AutocastFP16 precision{{}};
  const auto scaler = precision.make_scaler(at::kCPU);
  const auto gradient = [&](const auto& begin) {
    const auto weight = at::ones({4, 8}).set_requires_grad(true);
    at::Tensor loss;
    {
      const auto scope = precision.forward_scope(at::kCPU);
      loss = at::linear(at::ones({3, 8}), weight).to(at::kFloat).sum();
    }
    loss.backward(begin(at::scalar_tensor(0x1p-30F)));
    const auto result = weight.grad().reshape({-1});
    scaler.unscale(std::vector<Slice>{{weight.detach(), result}});
    return result;
  };
  EXPECT_TRUE(at::equal(gradient([](const at::Tensor& seed) { return seed; }), at::zeros({32})));
  EXPECT_TRUE(
      at::equal(gradient([&](const at::Tensor& seed) { return scaler.scale(seed); }), at::full({32}, 3 * 0x1p-30F)));
}

TEST(AutocastFP16, GivesItsSettingsToTheScaler) {
  const auto scaler = AutocastFP16{{.scaler = {.initial_scale = 4.0}}}.make_scaler(at::kCPU);
  EXPECT_TRUE(at::equal(scaler.scale(at::ones({})), at::scalar_tensor(4.0F)));
}

/// Fake hooks of a GPU whose generation the test chooses.
struct Hooks : at::CUDAHooksInterface {
  bool cudnn = true, rocm = false, ampere = false;
  bool hasCUDA() const override { return true; }
  bool hasCuDNN() const override { return cudnn; }
  bool hasROCM() const override { return rocm; }
  bool supportsBFloat16ConvolutionWithCuDNNv8() const override { return ampere; }
  at::DeviceIndex current_device() const override { return 1; }
};

Hooks hooks(bool cudnn, bool rocm, bool ampere) {
  Hooks result;
  result.cudnn = cudnn;
  result.rocm = rocm;
  result.ampere = ampere;
  return result;
}

TEST(RequireAmpere, RefusesAnOlderGpuAndSaysWhatToChoose) {
  const at::Device gpu{at::kCUDA, 1};
  try {
    require_ampere("bfloat16", "float32", gpu, hooks(true, false, false));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_STREQ(
        error.what(),
        "precision bfloat16: the GPU cuda:1 is older than Ampere (compute capability 8.0) and has no units for "
        "it; choose float32");
  }
}

TEST(RequireAmpere, PassesWhatIsNewerAndWhatCannotBeAsked) {
  const at::Device gpu{at::kCUDA, 1};
  EXPECT_NO_THROW(require_ampere("bfloat16", "float32", gpu, hooks(true, false, true)));
  EXPECT_NO_THROW(require_ampere("bfloat16", "float32", gpu, hooks(false, false, false)));
  EXPECT_NO_THROW(require_ampere("bfloat16", "float32", gpu, hooks(true, true, false)));
  EXPECT_NO_THROW(require_ampere("bfloat16", "float32", at::kCPU, hooks(true, false, false)));
  EXPECT_NO_THROW(AutocastBF16::check(at::kCPU));
  EXPECT_NO_THROW(AutocastFP16::check(at::kCPU));
}

}  // namespace
}  // namespace ddpxx::autocast_test
