// Each line of the input is a command-line argument; then each line is set as an environment variable.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ddpxx/config/line/arguments.hpp>
#include <ddpxx/config/line/environment_source.hpp>

#include "every.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ddpxx;
  using namespace ddpxx::detail;
  std::string_view input{reinterpret_cast<const char*>(data), size};
  std::vector<std::string> lines;
  while (!input.empty()) {
    const auto end = std::min(input.find('\n'), input.size());
    lines.emplace_back(input.substr(0, end));
    input.remove_prefix(std::min(end + 1, input.size()));
  }
  std::vector<const char*> arguments;
  for (const auto& line : lines) arguments.push_back(line.c_str());
  fill_and_check(read_arguments(arguments, table_of<Every>()).entries);
  fill_and_check(read_environment("", arguments, table_of<Every>()));
  return 0;
}
