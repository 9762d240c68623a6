// config_headers — includes the headers of config_times without a config: the difference in compile time is that of the
// config.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iostream>
#include <vector>

#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/launch/program.hpp>

int main() { std::cout << "nothing\n"; }
