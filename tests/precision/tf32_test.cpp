// The TF32 setting lasts as long as its policy object.
#include <string>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/precision/tf32.hpp>

namespace ddpxx::tf32_test {
namespace {

using at::Float32MatmulPrecision;

Float32MatmulPrecision now() { return at::globalContext().float32MatmulPrecision(); }

TEST(TF32, HoldsFromConstructionToDestruction) {
  ASSERT_EQ(now(), Float32MatmulPrecision::HIGHEST);
  {
    const TF32 precision{{}};
    EXPECT_EQ(now(), Float32MatmulPrecision::HIGH);
    {
      const TF32 inner{{}};
      EXPECT_EQ(now(), Float32MatmulPrecision::HIGH);
    }
    EXPECT_EQ(now(), Float32MatmulPrecision::HIGH) << "the outer scope must still be in force";
  }
  EXPECT_EQ(now(), Float32MatmulPrecision::HIGHEST);
}

TEST(TF32, BackwardMultipliesUnderTheSettingToo) {
  const TF32 precision{{}};
  { [[maybe_unused]] const auto scope = precision.forward_scope(at::kCUDA); }
  EXPECT_TRUE(at::globalContext().allowTF32CuBLAS()) << "the setting must outlast the scope of the forward pass";
}

TEST(TF32, GivesBackWhatTheProgramHadSet) {
  at::globalContext().setFloat32MatmulPrecision("medium");
  { const TF32 precision{{}}; }
  EXPECT_EQ(now(), Float32MatmulPrecision::MEDIUM);
  at::globalContext().setFloat32MatmulPrecision("highest");
}

TEST(TF32, RefusesASettingMadeThroughTheOtherInterface) {
  auto& context = at::globalContext();
  const auto before = context.float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL);
  context.setFloat32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL, at::Float32Precision::TF32);
  try {
    const TF32 precision{{}};
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_NE(std::string{error.what()}.find("setFloat32MatmulPrecision only"), std::string::npos) << error.what();
  }
  context.setFloat32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL, before);
  EXPECT_EQ(now(), Float32MatmulPrecision::HIGHEST);
}

TEST(TF32, RefusesACpu) {
  try {
    TF32::check(at::kCPU);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_NE(std::string{error.what()}.find("choose float32"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ddpxx::tf32_test
