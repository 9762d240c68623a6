// config_times — parses a config of 200 values from its arguments repeatedly, and prints the time of one parse.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iostream>
#include <vector>

#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/launch/program.hpp>

#include "config_200.hpp"

namespace {

double parse_once(int argc, char** argv) {
  const auto begin = std::chrono::steady_clock::now();
  const auto config = ddpxx::parse_config<Config200>(argc, argv);
  const auto end = std::chrono::steady_clock::now();
  if (config.part0.seed != 5) throw ddpxx::Error{ddpxx::Errc::config, "the benchmark sets part0.seed to 5"};
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  ddpxx::run_program("config_times", [&] {
    const double first = parse_once(argc, argv);  // includes making the table, which later parses reuse
    std::vector<double> later(21);
    for (double& time : later) time = parse_once(argc, argv);
    std::ranges::nth_element(later, later.begin() + 10);
    std::cout << "{\"first_ms\": " << first << ", \"later_ms\": " << later[10] << "}\n";
  });
}
