// with_core.cpp — calls a function of the library ddpxx::core without compiling it.
#include <iostream>
#include <optional>

#include <ddpxx/observe/progress.hpp>

#ifndef DDPXX_CORE
#error "ddpxx::core defines DDPXX_CORE for the targets that link it"
#endif

int main() {
  ddpxx::StepDone step;
  step.step = 3;
  std::cout << ddpxx::progress_line(step, 7, std::nullopt, 8) << '\n';
}
