// product_times — the time of the matrix products of a GPT's step alone, by LibTorch, in one thread. The rest of
// a step is the most that other optimizations can save. Prints the median of the repetitions in milliseconds.
//
//   product_times LAYERS WIDTH VOCABULARY ROWS fp32|bf16 REPETITIONS     ROWS are samples times tokens
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/launch/program.hpp>

namespace {

using Clock = std::chrono::steady_clock;

/// A linear layer, forward and backward: y = x w^T, d_x = d_y w, d_w = d_y^T x.
class Products {
 public:
  Products(std::int64_t rows, std::int64_t in, std::int64_t out, at::ScalarType type)
      : x_{at::rand({rows, in}, type)},
        w_{at::rand({out, in}, type)},
        y_{at::rand({rows, out}, type)},
        d_x_{at::rand({rows, in}, type)},
        d_w_{at::rand({out, in}, type)} {}

  void forward() { at::mm_out(y_, x_, w_.t()); }
  void backward() {
    at::mm_out(d_x_, y_, w_);
    at::mm_out(d_w_, y_.t(), x_);
  }

 private:
  at::Tensor x_, w_, y_, d_x_, d_w_;
};

}  // namespace

int main(int argc, char** argv) {
  ddpxx::run_program("product_times", [&] {
    if (argc != 7)
      throw ddpxx::Error{ddpxx::Errc::config,
                         "usage: product_times LAYERS WIDTH VOCABULARY ROWS fp32|bf16 REPETITIONS"};
    const auto number = [&](int i) { return std::atoll(argv[i]); };
    const std::int64_t layers = number(1), C = number(2), vocabulary = number(3), rows = number(4);
    const auto type = std::string_view{argv[5]} == "bf16" ? at::kBFloat16 : at::kFloat;
    at::set_num_threads(1);

    std::vector<Products> all;
    for (std::int64_t layer = 0; layer < layers; ++layer)
      for (const auto& [in, out] : {std::pair{C, 3 * C}, {C, C}, {C, 4 * C}, {4 * C, C}})
        all.emplace_back(rows, in, out, type);
    all.emplace_back(rows, C, vocabulary, type);
    std::vector<double> times;
    for (std::int64_t i = 0; i <= number(6); ++i) {  // the first one is for warm-up
      const auto begin = Clock::now();
      for (auto& products : all) products.forward();
      for (auto products = all.rbegin(); products != all.rend(); ++products) products->backward();
      times.push_back(std::chrono::duration<double, std::milli>{Clock::now() - begin}.count());
    }
    std::ranges::sort(times.begin() + 1, times.end());
    std::cout << times[1 + (times.size() - 1) / 2] << std::endl;
  });
}
