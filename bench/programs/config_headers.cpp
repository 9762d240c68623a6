// config_headers — what config_times includes, and no config: what is left of its compile time is the config's.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iostream>
#include <vector>

#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/launch/program.hpp>

int main() { std::cout << "nothing\n"; }
