// config_one — config_times with a config of one value: the difference in compile time is that of the other 199 values.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iostream>
#include <vector>

#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/launch/program.hpp>

struct ConfigOfOne {
  int seed = 1;
};

int main(int argc, char** argv) {
  ddpxx::run_program("config_one", [&] { std::cout << ddpxx::parse_config<ConfigOfOne>(argc, argv).seed << '\n'; });
}
