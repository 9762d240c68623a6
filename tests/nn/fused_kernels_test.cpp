// The fused operations against the plain ones, and the CUDA sources of their kernels: NVRTC compiles them, and a C++
// compiler builds them for the CPU.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <dlfcn.h>
#include <exception>
#include <limits>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/nn/add_norm.hpp>
#include <ddpxx/nn/bias_gelu.hpp>
#include <ddpxx/nn/biased_linear.hpp>
#include <ddpxx/nn/chunked_cross_entropy.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/nn/kernels/driver.hpp>
#include <ddpxx/precision/autocast.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx::fused_kernels_test {
namespace {

using at::kBFloat16, at::kFloat, at::kHalf;

/// What CUDA adds to C++, for blocks that run one after the other. A thread of a block is a context of its own on one
/// thread of the CPU: it runs until it waits for the block, and the next one goes on.
constexpr const char* kCudaOnCPU = R"cpp(
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <ucontext.h>
#include <utility>
#include <vector>
#define __global__
#define __device__
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("shared_memory")))
  struct Index {
    unsigned x = 0, y = 0;
  };
  Index threadIdx, blockIdx, blockDim, gridDim;
  struct Context {
    ucontext_t state;
    std::vector<char> stack = std::vector<char>(1 << 16);
    bool ended = false;
  };
  extern char __start_shared_memory[] __attribute__((weak, visibility("hidden")));
  extern char __stop_shared_memory[] __attribute__((weak, visibility("hidden")));
  std::vector<Context> threads_of_block;
  ucontext_t block;
  std::function<void()> call_kernel;
  void __syncthreads() { swapcontext(&threads_of_block[threadIdx.x].state, &block); }
  void run_thread() {
    call_kernel();
    threads_of_block[threadIdx.x].ended = true;
  }
  // Shared memory begins as NaN. Threads take turns in both orders, so that a missing barrier shows, and either all of
  // them wait at a barrier or none.
  void run_block() {
    std::memset(__start_shared_memory, 0xff, __stop_shared_memory - __start_shared_memory);
    for (auto& thread : threads_of_block) {
      getcontext(&thread.state);
      thread.state.uc_stack.ss_sp = thread.stack.data();
      thread.state.uc_stack.ss_size = thread.stack.size();
      thread.state.uc_link = &block;
      makecontext(&thread.state, run_thread, 0);
      thread.ended = false;
    }
    bool forward = true;
    for (unsigned ended = 0; ended < blockDim.x; forward = !forward) {
      ended = 0;
      for (unsigned i = 0; i < blockDim.x; ++i) {
        threadIdx.x = forward ? i : blockDim.x - 1 - i;
        auto& thread = threads_of_block[threadIdx.x];
        swapcontext(&block, &thread.state);
        if (thread.ended) ++ended;
      }
      if (ended > 0 && ended < blockDim.x) {
        std::fputs("some threads have ended, and others wait for them\n", stderr);
        std::abort();
      }
    }
  }
  float exchanged[1024];
  float __shfl_xor_sync(unsigned, float value, int mask) {
    exchanged[threadIdx.x] = value;
    __syncthreads();
    const float other = exchanged[threadIdx.x ^ mask];
    __syncthreads();
    return other;
  }
  float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
  unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
  float rsqrtf(float value) { return 1 / std::sqrt(value); }
  float __fdividef(float a, float b) { return a / b; }
  void __trap() { std::abort(); }
  template <class... A, std::size_t... I>
  void call(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
    kernel(*static_cast<A*>(arguments[I])...);
  }
  template <class... A>
  void run(void (*kernel)(A...), Index grid, unsigned threads, void** arguments) {
    gridDim = grid;
    blockDim = {threads, 1};
    threads_of_block.resize(threads);
    call_kernel = [=] { call(kernel, arguments, std::index_sequence_for<A...>{}); };
    for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) run_block();
  }
)cpp";

bool build(const std::string& arguments) {
  return std::system(("g++ -std=c++20 -O1 -w -fPIC " + arguments).c_str()) == 0;
}

/// Starts kernels on the CPU. Each source is compiled once, with a function `start_KERNEL` for each of its kernels.
class KernelsOnCPU {
 public:
  KernelsOnCPU() : header_{folder_.file("cuda.hpp", std::string{kCudaOnCPU} + detail::kFloatTypes)} {
    EXPECT_TRUE(build("-x c++-header -o " + header_ + ".gch " + header_));
  }

  void operator()(const detail::KernelSource& source, const char* name, const detail::LaunchShape& shape,
                  void** arguments) {
    auto& library = libraries_[source];
    if (library == nullptr) library = compile(source.text());
    ASSERT_NE(library, nullptr) << source.text();
    using Start = void(unsigned, unsigned, unsigned, void**);
    auto* const start = reinterpret_cast<Start*>(::dlsym(library, (std::string{"start_"} + name).c_str()));
    ASSERT_NE(start, nullptr) << ::dlerror();
    start(static_cast<unsigned>(shape.grid_x), static_cast<unsigned>(shape.grid_y),
          static_cast<unsigned>(shape.threads), arguments);
  }

 private:
  void* compile(const std::string& source) const {
    auto text = source;
    const std::regex kernel{"__global__ void\\s+(?:__launch_bounds__\\([^)]*\\)\\s+)?(\\w+)"};
    for (auto found = std::sregex_iterator{source.begin(), source.end(), kernel}; found != std::sregex_iterator{};
         ++found)
      text += "extern \"C\" void start_" + (*found)[1].str() +
              "(unsigned x, unsigned y, unsigned threads, void** arguments) {\n  run(" + (*found)[1].str() +
              ", {x, y}, threads, arguments);\n}\n";
    const auto file = folder_.file("kernel" + std::to_string(libraries_.size()) + ".cpp", text), library = file + ".so";
    const bool is_built = build("-shared -include " + header_ + " -o " + library + ' ' + file);
    return is_built ? ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  }

  TemporaryFolder folder_;
  std::string header_;
  std::map<detail::KernelSource, void*> libraries_;
};

/// Shared by all tests, so that each source is compiled once.
void launch_on_cpu(const detail::KernelSource& source, const char* name, const detail::LaunchShape& shape,
                   void** arguments) {
  static KernelsOnCPU kernels;
  kernels(source, name, shape, arguments);
}
const detail::LaunchKernel launch = launch_on_cpu;

double rounding_of(at::ScalarType type) { return type == kFloat ? 2e-5 : 1e-2; }

void expect_close(const at::Tensor& got, const at::Tensor& expected, double tolerance, const char* what) {
  EXPECT_EQ(got.scalar_type(), expected.scalar_type()) << what;
  ASSERT_EQ(got.numel(), expected.numel()) << what;
  const auto difference = (got.to(at::kDouble).flatten() - expected.to(at::kDouble).flatten()).abs();
  const auto allowed = tolerance * (expected.to(at::kDouble).flatten().abs() + 1);
  EXPECT_TRUE((difference <= allowed).all().item<bool>())
      << what << ": " << (difference / allowed).max().item<double>();
}

at::Tensor draw(at::IntArrayRef sizes, at::ScalarType type) { return at::randn(sizes).to(type); }

struct Inputs {
  std::int64_t rows, width;
  at::ScalarType x, y, weight;
};

/// Odd sizes, rows that packs fill, and rows of which a thread has several parts; types as in float32, in
/// autocast, with parameters in 16 bits, and in 16 bits throughout.
const std::vector<Inputs> kInputs{{1, 1, kFloat, kFloat, kFloat},
                                  {7, 33, kFloat, kFloat, kFloat},
                                  {5, 768, kFloat, kBFloat16, kFloat},
                                  {9, 50, kBFloat16, kBFloat16, kFloat},
                                  {3, 130, kBFloat16, kBFloat16, kBFloat16},
                                  {6, 64, kFloat, kBFloat16, kFloat},
                                  {2, 2056, kFloat, kFloat, kFloat},
                                  {2, 301, kBFloat16, kFloat, kFloat}};

TEST(AddNorm, GivesTheResultsAndGradientsOfTheTwoOperations) {
  for (const auto& [rows, width, x_type, y_type, weight_type] : kInputs) {
    at::manual_seed(1);
    const std::array leaves{draw({rows, width}, x_type), draw({rows, width}, y_type), draw({width}, weight_type),
                            draw({width}, weight_type)};
    const auto d_sum = draw({rows, width}, x_type), d_normed = draw({rows, width}, x_type);
    const auto run = [&](bool fused) {
      std::vector<at::Tensor> own, found;
      for (const auto& leaf : leaves) own.push_back(leaf.clone().requires_grad_());
      if (fused) {
        const auto both = add_norm(own[0], own[1], own[2], own[3]);
        found = {both.sum, both.normed};
      } else {
        const auto sum = own[0] + own[1];
        found = {sum, at::layer_norm(sum.to(weight_type), {width}, own[2], own[3]).to(sum.scalar_type())};
      }
      torch::autograd::backward({found[0], found[1]}, {d_sum, d_normed});
      for (const auto& leaf : own) found.push_back(leaf.grad());
      return found;
    };
    const auto got = run(true), expected = run(false);
    EXPECT_TRUE(at::equal(got[0], expected[0])) << "the sum";
    const double tolerance = x_type == kFloat && y_type == kFloat ? 2e-5 : 3e-2;
    for (std::size_t i = 1; i < got.size(); ++i)
      expect_close(got[i], expected[i], tolerance * (width == 1 ? 1 : 2), std::to_string(i).c_str());
  }
}

TEST(LayerNorm, IsThatOfLibTorchInTheTypeOfItsInput) {
  for (const auto type : {kFloat, at::kDouble, kBFloat16}) {
    at::manual_seed(7);
    const auto x = draw({4, 6}, type), weight = draw({6}, type), bias = draw({6}, type);
    const auto expected = at::layer_norm(x, {6}, weight, bias);
    if (type == kBFloat16)
      expect_close(layer_norm(x, weight, bias), expected, 1e-2, "bfloat16");
    else
      EXPECT_TRUE(at::equal(layer_norm(x, weight, bias), expected));
  }
  const auto scope = AutocastBF16{{}}.forward_scope(at::kCPU);
  EXPECT_EQ(layer_norm(at::ones({2, 3}), at::ones({3}), at::ones({3})).scalar_type(), kBFloat16);
}

TEST(AddNorm, PassesOneGradientOnWhereTheOtherIsNotWanted) {
  const auto x = at::randn({3, 8}).requires_grad_(), y = at::randn({3, 8}).requires_grad_();
  const auto weight = at::randn({8}).requires_grad_(), bias = at::randn({8}).requires_grad_();
  add_norm(x, y, weight, bias).sum.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), at::ones({3, 8})));
  EXPECT_TRUE(at::equal(y.grad(), at::ones({3, 8})));
  EXPECT_FALSE(weight.grad().defined());
  add_norm(x, y, weight, bias).normed.square().sum().backward();
  EXPECT_TRUE(weight.grad().defined());
}

TEST(ResidualNorm, GivesTheResultsAndGradientsOfANormAndAnAddition) {
  for (const auto type : {kFloat, kBFloat16})
    for (const bool has_bias : {false, true}) {
      at::manual_seed(12);
      const auto x = draw({3, 4, 8}, type).transpose(0, 1), added = draw({4, 3, 8}, type);  // x is not contiguous
      const auto weight = at::randn({8}), bias = at::randn({8}), d = draw({4, 3, 8}, type),
                 d_sum = draw({4, 3, 8}, type);
      const auto run = [&](bool fused, bool use_normed, bool use_sum) {
        const auto own_x = x.detach().requires_grad_(), own_weight = weight.detach().requires_grad_();
        const auto own_bias = bias.detach().requires_grad_();
        const auto given = has_bias ? own_bias : at::Tensor{};
        const auto both =
            fused ? residual_norm(own_x, own_weight, given) : AddNorm{own_x, layer_norm(own_x, own_weight, given)};
        std::vector<at::Tensor> results, gradients;
        if (use_normed) results.push_back(both.normed), gradients.push_back(d);
        if (use_sum) results.push_back(both.sum + added), gradients.push_back(d_sum);
        torch::autograd::backward(results, gradients);
        for (const auto& leaf : {own_x, own_weight, own_bias})
          results.push_back(leaf.grad().defined() ? leaf.grad() : at::zeros({0}));
        return results;
      };
      for (const auto& [use_normed, use_sum] :
           {std::pair{true, true}, std::pair{true, false}, std::pair{false, true}}) {
        const auto got = run(true, use_normed, use_sum), expected = run(false, use_normed, use_sum);
        ASSERT_EQ(got.size(), expected.size());
        for (std::size_t i = 0; i < got.size(); ++i)
          expect_close(got[i], expected[i], rounding_of(type), std::to_string(i).c_str());
      }
    }
}

TEST(ResidualNorm, LeavesOneGradientOfItsInputToAutograd) {
  const auto x = at::randn({3, 8}).requires_grad_(), weight = at::randn({8}).requires_grad_();
  const auto both = residual_norm(x, weight, {});
  EXPECT_TRUE(at::equal(both.sum, x));
  EXPECT_EQ(both.sum.grad_fn(), both.normed.grad_fn());
  at::Tensor{both.sum}.mul_(1);  // a result may be changed in place
}

TEST(AddNorm, MayHaveNoBias) {
  at::manual_seed(10);
  const auto x = at::randn({3, 8}), y = at::randn({3, 8}), weight = at::randn({8}), d = at::randn({3, 8});
  const auto gradients = [&](const auto& norm) {
    const std::vector<at::Tensor> own{x.clone().requires_grad_(), y.clone().requires_grad_(),
                                      weight.clone().requires_grad_()};
    norm(own[0], own[1], own[2]).backward(d);
    return std::vector{own[0].grad(), own[1].grad(), own[2].grad()};
  };
  const auto got = gradients([](const auto& a, const auto& b, const auto& w) { return add_norm(a, b, w, {}).normed; });
  const auto expected =
      gradients([](const auto& a, const auto& b, const auto& w) { return at::layer_norm(a + b, {8}, w, {}); });
  for (std::size_t i = 0; i < got.size(); ++i) expect_close(got[i], expected[i], 1e-5, std::to_string(i).c_str());
  EXPECT_TRUE(at::equal(layer_norm(x, weight, {}), at::layer_norm(x, {8}, weight, {})));
}

/// A function that gives its input no gradient at all.
struct NoGradient : torch::autograd::Function<NoGradient> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list&) {
    return {at::Tensor{}};
  }
};

TEST(AddNorm, PassesNoGradientOnWhereNeitherResultHasOne) {
  const auto x = at::randn({3, 8}).requires_grad_(), y = at::randn({3, 8}).requires_grad_();
  const auto weight = at::randn({8}).requires_grad_(), bias = at::randn({8}).requires_grad_();
  const auto both = add_norm(x, y, weight, bias);
  (NoGradient::apply(both.sum) + NoGradient::apply(both.normed) + x).sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), at::ones({3, 8})));
  for (const auto& other : {y, weight, bias}) EXPECT_FALSE(other.grad().defined());
}

TEST(BiasGelu, GivesTheResultsAndGradientsOfTheTwoOperations) {
  for (const char* approximate : {"tanh", "none"})
    for (const auto& [rows, width, x_type, y_type, weight_type] : kInputs) {
      at::manual_seed(2);
      const auto x = draw({rows, width}, x_type), bias = draw({width}, weight_type), d_y = draw({rows, width}, x_type);
      const auto run = [&](bool fused) {
        const auto own = x.clone().requires_grad_(), own_bias = bias.clone().requires_grad_();
        const auto y = fused ? bias_gelu(own, own_bias, approximate) : at::gelu(own + own_bias.to(x_type), approximate);
        y.backward(d_y);
        return std::vector{y, own.grad(), own_bias.grad()};
      };
      const auto got = run(true), expected = run(false);
      for (std::size_t i = 0; i < got.size(); ++i)
        expect_close(got[i], expected[i], x_type == kFloat ? 2e-5 : 4e-2, approximate);
    }
}

TEST(BiasedLinear, GivesTheResultsAndGradientsOfALinearLayerInParts) {
  at::manual_seed(8);
  const auto x = at::randn({2, 5, 4}), weight = at::randn({6, 4}), bias = at::randn({6}), d = at::randn({2, 5, 6});
  for (const bool in_bfloat16 : {false, true})
    for (const std::size_t num_parts : {1U, 2U, 3U}) {
      const auto run = [&](bool biased) {
        const std::vector<at::Tensor> own{x.clone().requires_grad_(), weight.clone().requires_grad_(),
                                          bias.clone().requires_grad_()};
        const auto count = static_cast<std::int64_t>(num_parts);
        std::vector<at::Tensor> parts;
        {
          const auto scope =
              in_bfloat16 ? AutocastBF16{{}}.forward_scope(at::kCPU) : AutocastScope{AutocastState::of(at::kCPU)};
          parts = biased ? biased_linear_parts(own[0], own[1], own[2], num_parts)
                         : at::linear(own[0], own[1], own[2]).chunk(count, -1);
        }
        torch::autograd::backward(parts, d.to(parts[0].scalar_type()).chunk(count, -1));
        for (const auto& tensor : own) parts.push_back(tensor.grad());
        return parts;
      };
      const auto got = run(true), expected = run(false);
      ASSERT_EQ(got.size(), num_parts + 3);
      for (std::size_t i = 0; i + 1 < got.size(); ++i) EXPECT_TRUE(at::equal(got[i], expected[i])) << i;
      expect_close(got.back(), expected.back(), in_bfloat16 ? 1e-2 : 1e-6, "the gradient of the bias");
    }
  EXPECT_TRUE(at::equal(biased_linear(x, weight, bias), at::linear(x, weight, bias)));  // nothing needs a gradient
  EXPECT_TRUE(at::equal(biased_linear(x, weight, {}), at::linear(x, weight)));
  for (const std::size_t num_parts : {1U, 3U}) {
    const auto changed = bias.clone().requires_grad_();
    auto parts = biased_linear_parts(x, weight, changed, num_parts);
    parts[0].mul_(2);
    torch::autograd::backward(parts, at::ones({2, 5, 6}).chunk(static_cast<std::int64_t>(num_parts), -1));
    const auto expected = at::full({6}, 10.0);
    expected.narrow(0, 0, 6 / static_cast<std::int64_t>(num_parts)).fill_(20);
    EXPECT_TRUE(at::equal(changed.grad(), expected)) << changed.grad();
  }
  const auto learned = bias.clone().requires_grad_();
  EXPECT_EQ(biased_linear(x, weight, learned).grad_fn()->next_edges().size(), 2);
  biased_linear(x, weight, learned).sum().backward();  // the gradient is an expanded number
  EXPECT_TRUE(at::equal(learned.grad(), at::full({6}, 10.0)));
}

TEST(FusedKernels, RefuseShapesThatDoNotFitAndSecondDerivatives) {
  const auto expect = [](const char* sentence, const auto& call) {
    try {
      call();
      ADD_FAILURE() << "accepted: " << sentence;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::config);
      EXPECT_NE(std::string{error.what()}.find(sentence), std::string::npos) << error.what();
    }
  };
  const auto x = at::ones({2, 3}).requires_grad_(), three = at::ones({3}), four = at::ones({4});
  expect("do not fit", [&] { add_norm(x, at::ones({2, 4}), three, three); });
  expect("do not fit", [&] { add_norm(x, x, four, four); });
  expect("layer_norm: x [2, 3], weight [4] and bias [4] do not fit", [&] { layer_norm(x, four, four); });
  const auto elsewhere = at::ones({3}, at::kMeta);
  expect("pass tensors of one device", [&] { layer_norm(x, elsewhere, three); });
  expect("4 features do not divide into 3 parts", [&] { biased_linear_parts(x, at::ones({4, 3}), four, 3); });
  expect("do not fit each other", [&] { add_norm(x, at::ones({2, 3}, at::kMeta), three, three); });
  expect("chunked_cross_entropy: hidden is on cpu, weight on meta", [&] {
    chunked_cross_entropy(x, at::ones({5, 3}, at::kMeta), at::zeros({2}, at::kLong), 1);
  });
  expect("targets are Float", [&] { chunked_cross_entropy(x, at::ones({5, 3}), at::zeros({2}), 1); });
  expect("do not fit", [&] { bias_gelu(x, four, "tanh"); });
  expect("bias_gelu: x is on cpu and bias on meta", [&] { bias_gelu(x, elsewhere, "tanh"); });
  expect("pass tanh or none", [&] { bias_gelu(x, three, "fast"); });
  expect("not in", [&] { detail::type_in_kernel(at::kDouble); });
  expect("a layer norm of width 5000", [&] { detail::threads_for_row(5000); });
  expect("no second derivative", [&] {
    torch::autograd::grad({add_norm(x, x, three, three).normed.sum()}, {x}, {}, std::nullopt, /*create_graph=*/true);
  });
  expect("no second derivative", [&] {
    const auto bias = three.clone().requires_grad_();
    torch::autograd::grad({biased_linear(x, at::ones({3, 3}), bias).sum()}, {bias}, {}, std::nullopt,
                          /*create_graph=*/true);
  });
  expect("no second derivative", [&] {
    torch::autograd::grad({bias_gelu(x, three, "tanh").sum()}, {x}, {}, std::nullopt, /*create_graph=*/true);
  });
}

/// The kernels of CUDA, run on a CPU, against their twins.
TEST(FusedKernels, OfAddNormAreEqualToTheirTwin) {
  for (const auto& [rows, width, x_type, y_type, weight_type] : kInputs) {
    at::manual_seed(3);
    const auto sum_type = at::result_type(at::empty({1}, x_type), at::empty({1}, y_type));
    const auto x = draw({rows, width}, sum_type), y = draw({rows, width}, y_type);
    const auto weight = draw({width}, weight_type), bias = draw({width}, weight_type);
    const auto normed_type = y_type;
    const auto got = detail::add_norm_forward_by_kernel(x, y, weight, bias, 1e-5, normed_type, launch);
    const auto expected = detail::add_norm_forward(x, y, weight, bias, 1e-5, normed_type);
    EXPECT_TRUE(at::equal(got.sum, expected.sum));
    expect_close(got.normed, expected.normed, rounding_of(normed_type), "the norm");
    expect_close(got.mean, expected.mean, 2e-5, "the mean");
    expect_close(got.rstd, expected.rstd, 2e-5, "the inverse deviation");

    const auto unbiased = detail::add_norm_forward_by_kernel(x, y, weight, {}, 1e-5, normed_type, launch);
    const auto without = detail::add_norm_forward(x, y, weight, {}, 1e-5, normed_type);
    expect_close(unbiased.normed, without.normed, rounding_of(normed_type), "the norm without a bias");

    const auto alone = detail::add_norm_forward_by_kernel(x, {}, weight, bias, 1e-5, normed_type, launch);
    const auto of_x = detail::add_norm_forward(x, at::zeros_like(x), weight, bias, 1e-5, normed_type);
    EXPECT_TRUE(alone.sum.is_same(x));
    expect_close(alone.normed, of_x.normed, rounding_of(normed_type), "the norm of x alone");

    const auto d_normed = draw({rows, width}, normed_type);
    for (const auto bias_type : {weight_type, at::ScalarType::Undefined, kFloat})
      for (const auto& d_sum : {draw({rows, width}, sum_type), at::Tensor{}}) {
        const auto mine =
            detail::add_norm_backward_by_kernel(d_sum, d_normed, expected.sum, expected.mean.flatten(),
                                                expected.rstd.flatten(), weight, bias_type, y_type, launch);
        const auto twin = detail::add_norm_backward(d_sum, d_normed, expected.sum, expected.mean, expected.rstd, weight,
                                                    bias_type, y_type);
        expect_close(mine.x, twin.x, rounding_of(sum_type), "the gradient of x");
        expect_close(mine.y, twin.y, rounding_of(y_type), "the gradient of y");
        expect_close(mine.weight, twin.weight, rounding_of(weight_type), "the gradient of the weight");
        ASSERT_EQ(mine.bias.defined(), twin.bias.defined());
        ASSERT_EQ(mine.bias.defined(), bias_type != at::ScalarType::Undefined);
        if (twin.bias.defined()) expect_close(mine.bias, twin.bias, rounding_of(bias_type), "the gradient of the bias");
      }
  }
}

/// Sums of some rows of bfloat16 need more bits than bfloat16 has.
TEST(AddNorm, KeepsFloat32InABiasBesideAWeightOfBFloat16) {
  at::manual_seed(11);
  const auto x = draw({50, 8}, kBFloat16), weight = draw({8}, kBFloat16), d = draw({50, 8}, kBFloat16);
  const auto bias = at::randn({8}).requires_grad_();
  add_norm(x, at::zeros_like(x), weight, bias).normed.backward(d);
  expect_close(bias.grad(), d.to(kFloat).sum(0), 1e-6, "the gradient of the bias");

  const auto in_float = x.to(kFloat), zeros = at::zeros_like(x);
  const auto got = detail::add_norm_forward_by_kernel(in_float, zeros, weight, bias.detach(), 1e-5, kFloat, launch);
  const auto expected = detail::add_norm_forward(in_float, zeros, weight, bias.detach(), 1e-5, kFloat);
  expect_close(got.normed, expected.normed, 2e-5, "the norm");
}

TEST(FusedKernels, OfBiasGeluAreEqualToTheirTwin) {
  for (const char* approximate : {"tanh", "none"})
    for (const auto& [rows, width, x_type, y_type, weight_type] : {kInputs[1], kInputs[4], kInputs[5]}) {
      at::manual_seed(4);
      const auto x = draw({rows, width}, x_type), bias = draw({width}, weight_type), d_y = draw({rows, width}, x_type);
      expect_close(detail::bias_gelu_forward_by_kernel(x, bias, approximate, launch),
                   detail::bias_gelu_forward(x, bias, approximate), rounding_of(x_type), approximate);
      const auto mine = detail::bias_gelu_backward_by_kernel(d_y, x, bias, approximate, launch);
      const auto twin = detail::bias_gelu_backward(d_y, x, bias, approximate);
      expect_close(mine.x, twin.x, rounding_of(x_type), "the gradient of x");
      expect_close(mine.bias, twin.bias, rounding_of(weight_type), "the gradient of the bias");
    }
}

/// With 4200 rows some threads have eight rows and some have nine, and with 600 all have one or two.
TEST(FusedKernels, OfJoinedSumsAreEqualToTheirTwin) {
  for (const auto& [count, rows, width, type, sum_type] :
       {std::tuple{1, 7, 33, kFloat, kFloat}, std::tuple{1, 600, 1040, kBFloat16, kFloat},
        std::tuple{1, 4200, 8, kFloat, kFloat}, std::tuple{3, 4200, 16, kBFloat16, kFloat},
        std::tuple{3, 7, 33, kBFloat16, kFloat}, std::tuple{3, 600, 8, kFloat, kFloat},
        std::tuple{2, 3, 1040, kBFloat16, kBFloat16}}) {
    at::manual_seed(9);
    std::vector<at::Tensor> parts;
    for (int i = 0; i < count; ++i) parts.push_back(draw({rows, width}, type));
    parts.back() = parts.back().t().contiguous().t();  // not in the order of its rows
    const auto mine = detail::joined_sums_by_kernel(parts, sum_type, launch);
    const auto twin = detail::joined_sums(parts, sum_type);
    EXPECT_TRUE(at::equal(mine.joined, twin.joined));
    expect_close(mine.sums, twin.sums, rounding_of(sum_type), "the sums");
  }
  const std::vector<at::Tensor> empty(3, at::empty({0, 8}));
  const auto none = detail::joined_sums_by_kernel(empty, kFloat, launch);
  EXPECT_EQ(none.joined.sizes(), (at::IntArrayRef{0, 24}));
  EXPECT_TRUE(at::equal(none.sums, at::zeros({24})));
}

/// More blocks of rows than the threads of a block take at once, and a number of columns that eight do not divide.
TEST(FusedKernels, OfSumsOfBlocksAddUpAllBlocks) {
  for (const std::int64_t count : {1, 31, 32, 33, 1024})
    for (const std::int64_t width : {1, 8, 13}) {
      const auto blocks = at::arange(count * width, kFloat).remainder(7).view({count, width});
      EXPECT_TRUE(at::equal(detail::sum_blocks_by_kernel(blocks, kFloat, launch), blocks.sum(0)));
    }
}

/// Halfway between two numbers of bfloat16, next to that, below the normal numbers, and beyond the largest one. On a
/// GPU one instruction rounds so.
TEST(FusedKernels, RoundToBFloat16AsATenDoes) {
  const float infinity = std::numeric_limits<float>::infinity(), largest = std::numeric_limits<float>::max();
  const auto values = at::tensor({1 + 0x1p-8F, 1 + 0x3p-8F, 1 + 0x1p-8F + 0x1p-20F, -1 - 0x1p-8F, 0x1p-130F,
                                  0x1.8p-134F, 0x1p-149F, largest, -largest, infinity, -infinity, 0.1F});
  const auto rounded = detail::sum_blocks_by_kernel(values.unsqueeze(0), kBFloat16, launch);
  EXPECT_TRUE(at::equal(rounded, values.to(kBFloat16))) << rounded;
  const auto nan = at::full({1, 1}, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(detail::sum_blocks_by_kernel(nan, kBFloat16, launch).isnan().item<bool>());
}

/// Tensors that do not begin where packs must begin are copied.
TEST(FusedKernels, TakeTensorsAtAnyAddress) {
  const auto all = at::randn({1 + 16}), bias = at::randn({8});
  const auto x = all.narrow(0, 1, 16).view({2, 8});
  EXPECT_NE(detail::in_packs(x).data_ptr(), x.data_ptr());
  EXPECT_EQ(detail::in_packs(bias).data_ptr(), bias.data_ptr());
  expect_close(detail::bias_gelu_forward_by_kernel(x, bias, "tanh", launch), detail::bias_gelu_forward(x, bias, "tanh"),
               2e-5, "the value");
}

/// Rows in which a target does not count, some logits are minus infinity, one is far above the others, or NaN.
TEST(FusedKernels, OfCrossEntropyIsEqualToItsTwin) {
  for (const auto type : {kFloat, kBFloat16})
    for (const std::int64_t vocabulary : {1, 13, 4104})
      for (const bool gradients : {false, true}) {
        at::manual_seed(6);
        const auto logits = (at::randn({5, vocabulary}) * 4).to(type);
        auto targets = at::randint(vocabulary, {5}, at::kLong);
        targets[1] = -1;
        if (vocabulary > 1) {
          logits[2].narrow(0, 0, vocabulary / 2).fill_(-std::numeric_limits<float>::infinity());
          targets[2] = vocabulary - 1;
          logits[3][0] = 200;
          logits[3][1] = 196;  // the loss is far smaller than the logits
          targets[3] = 0;
        }
        const auto got = logits.clone(), expected = logits.clone();
        const auto got_losses = at::full({5}, 7.0F), expected_losses = at::full({5}, 7.0F);
        detail::cross_entropy_by_kernel(got, targets, got_losses, gradients, launch);
        const detail::ScoreMemory memory{expected};
        detail::cross_entropy_by_operations(expected, targets, expected_losses, gradients, memory);
        expect_close(got_losses, expected_losses, 2e-5, "the losses");
        if (gradients)
          expect_close(got, expected, rounding_of(type), "the gradient");
        else
          EXPECT_TRUE(at::equal(got, logits));
        if (vocabulary > 1) EXPECT_NEAR(got_losses[3].item<double>() / expected_losses[3].item<double>(), 1, 1e-3);
      }
  const auto logits = at::zeros({2, 13}), losses = at::zeros({2});
  logits[0][5] = std::numeric_limits<float>::quiet_NaN();
  logits[1].fill_(-std::numeric_limits<float>::infinity());
  detail::cross_entropy_by_kernel(logits, at::zeros({2}, at::kLong), losses, false, launch);
  EXPECT_TRUE(losses.isnan().all().item<bool>());
}

TEST(FusedKernels, AreCompiledByNvrtcForEachTypeAndGPU) {
  std::optional<detail::Nvrtc> nvrtc;
  try {
    nvrtc.emplace();
  } catch (const Error& error) {
    GTEST_SKIP() << "this machine has no NVRTC (./dev setup full fetches it): " << error.what();
  }
  const auto compile = [&](const detail::KernelSource& source, int capability) {
    const auto text = std::string{detail::kFloatTypes} + detail::kHalfType + source.text();
    EXPECT_FALSE(nvrtc->compile(text, capability).empty());
  };
  for (const int capability : {75, 80, 90, 100})
    for (const auto type : {kFloat, kBFloat16, kHalf}) {
      compile(detail::sum_blocks_source(type), capability);
      compile(detail::joined_sums_source(type, 1, 33), capability);
      compile(detail::joined_sums_source(type, 3, 768), capability);
      for (const std::int64_t width : {33, 768}) {
        compile(detail::add_norm_source({kFloat, type, type, kFloat, /*has_bias=*/width == 768}, width), capability);
        compile(detail::bias_gelu_source(type, kFloat, "tanh", width), capability);
        compile(detail::bias_gelu_source(type, type, "none", width), capability);
        compile(detail::cross_entropy_source(type, width), capability);
      }
    }
  try {
    compile({.name = "none", .kernels = "this is no source", .types = {}, .numbers = {}}, 90);
    ADD_FAILURE() << "a wrong source was compiled";
  } catch (const Error& error) {
    EXPECT_NE(std::string{error.what()}.find("ddpxx.cu"), std::string::npos) << error.what();
  }
}

/// CUDA's driver for a GPU of capability 9.0 that is not there. Modules are numbers.
constexpr const char* kDriverWithoutGPU = R"cpp(
  extern "C" {
  long num_modules = 0, num_functions = 0;
  int cuCtxGetCurrent(void** context) {
    *context = &num_modules;
    return 0;
  }
  int cuCtxSetCurrent(void*) { return 0; }
  int cuDevicePrimaryCtxRetain(void**, int) { return 0; }
  int cuDeviceGet(int* number, int index) {
    *number = index;
    return 0;
  }
  int cuDeviceGetAttribute(int* value, int attribute, int) {
    *value = attribute == 75 ? 9 : 0;
    return 0;
  }
  int cuModuleLoadData(void** module, const void*) {
    *module = reinterpret_cast<void*>(++num_modules);
    return 0;
  }
  int cuModuleGetFunction(void** function, void*, const char*) {
    *function = reinterpret_cast<void*>(++num_functions);
    return 0;
  }
  int cuLaunchKernel() { return 0; }
  int cuGetErrorString(int, const char**) { return 0; }
  }
)cpp";

TEST(FusedKernels, AreCompiledOnceForEachSourceAndGPU) {
  if (::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) != nullptr) GTEST_SKIP() << "CUDA's own driver is loaded";
  const TemporaryFolder folder;
  const auto source = folder.file("driver.cpp", kDriverWithoutGPU), library = source + ".so";
  ASSERT_TRUE(build("-shared -Wl,-soname,libcuda.so.1 -o " + library + ' ' + source));
  void* const loaded = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);  // the name now stands for this library
  ASSERT_NE(loaded, nullptr) << ::dlerror();
  const auto count = [&](const char* name) { return *static_cast<const long*>(::dlsym(loaded, name)); };
  std::optional<detail::Driver> driver;
  try {
    driver.emplace();
  } catch (const Error& error) {
    GTEST_SKIP() << "this machine has no NVRTC (./dev setup full fetches it): " << error.what();
  }
  const auto biased = detail::add_norm_source({kFloat, kFloat, kFloat, kFloat, /*has_bias=*/true}, 64);
  const auto unbiased = detail::add_norm_source({kFloat, kFloat, kFloat, kFloat, /*has_bias=*/false}, 64);
  for (int pass = 0; pass < 2; ++pass) {
    const std::set kernels{
        driver->kernel(0, biased, "add_norm_forward"), driver->kernel(0, biased, "add_norm_backward"),
        driver->kernel(1, biased, "add_norm_forward"), driver->kernel(0, unbiased, "add_norm_forward")};
    EXPECT_EQ(kernels.size(), 4);
    EXPECT_EQ(count("num_modules"), 3);
    EXPECT_EQ(count("num_functions"), 4);
  }
  const detail::KernelSource wrong{.name = "none", .kernels = "this is no source", .types = {}, .numbers = {}};
  for (int pass = 0; pass < 2; ++pass) EXPECT_THROW(driver->kernel(0, wrong, "none"), Error);
}

/// CUDA reports the failure of an earlier kernel in a later call, which is not at fault.
TEST(FusedKernels, AreNotBlamedForErrorsOfTheGPU) {
  const auto error_of = [](int result) -> Error {
    try {
      detail::throw_driver_error(result, result == 2 ? "out of memory" : "a text of the driver", "sum_blocks");
    } catch (const std::exception& cause) {
      const bool is_of_gpu = dynamic_cast<const c10::AcceleratorError*>(&cause) != nullptr;
      EXPECT_EQ(is_of_gpu, std::string{cause.what()}.starts_with("CUDA error: ")) << cause.what();
      return as_error(cause, Errc::peer);
    }
  };
  for (const int result : {214, 220, 700, 702, 710, 719, 999}) EXPECT_EQ(error_of(result).code(), Errc::peer) << result;
  for (const int result : {1, 200, 209, 300, 400, 500, 701, 720}) {
    const auto error = error_of(result);
    EXPECT_EQ(error.code(), Errc::config) << result;
    EXPECT_NE(std::string{error.what()}.find("sum_blocks cannot be started: a text of the driver; set model.fused"),
              std::string::npos);
  }
  EXPECT_EQ(error_of(2).code(), Errc::memory);
}

/// A GPT with and without the fused operations.
TEST(FusedKernels, GiveAGPTItsLossAndGradients) {
  for (const auto& [layout, bias, in_bfloat16] :
       {std::tuple{GPTLayout::gpt2, true, false}, std::tuple{GPTLayout::gpt2, true, true},
        std::tuple{GPTLayout::gpt2, false, true}, std::tuple{GPTLayout::mingpt_ddp, true, true},
        std::tuple{GPTLayout::mingpt_ddp, false, false}}) {
    GPTConfig config{.n_layer = 2, .n_head = 2, .n_embd = 18, .dropout = 0.0, .layout = layout, .bias = bias};
    const auto run = [&config, in_16_bits = in_bfloat16](bool fused) {
      config.fused = fused;
      at::manual_seed(5);
      GPT gpt{config, 11, 8};
      PlainCall plain;
      LayerRunner runner{plain};
      const auto ids = (at::arange(27, at::kLong) * 7 % 11).view({3, 9});
      const Batch batch{ids.narrow(1, 0, 8), ids.narrow(1, 1, 8), 24};
      at::Tensor loss;
      {
        const auto scope =
            in_16_bits ? AutocastBF16{{}}.forward_scope(at::kCPU) : AutocastScope{AutocastState::of(at::kCPU)};
        loss = gpt.forward(runner, batch).sum;
      }
      if (fused) EXPECT_THROW(torch::autograd::grad({loss}, gpt.parameters(), {}, true, true), Error);
      loss.backward();
      std::vector<at::Tensor> found{loss.detach()};
      for (const auto& parameter : gpt.parameters()) found.push_back(parameter.grad());
      return found;
    };
    const auto got = run(true), expected = run(false);
    for (std::size_t i = 0; i < got.size(); ++i)
      expect_close(got[i], expected[i], in_bfloat16 ? 3e-2 : 1e-5, std::to_string(i).c_str());
  }
}

}  // namespace
}  // namespace ddpxx::fused_kernels_test
