// pkg_config.cpp — is compiled with the flags of pkg-config; it needs LibTorch and the compiled core.
#include <iostream>
#include <optional>

#include <ATen/ops/ones.h>

#include <ddpxx/observe/progress.hpp>

int main() {
  ddpxx::StepDone step;
  step.step = at::ones({3}).sum().item<std::int64_t>();
  std::cout << ddpxx::progress_line(step, 7, std::nullopt, 8) << '\n';
}
