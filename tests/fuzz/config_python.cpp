// Reads the input as a Python configuration file: it must be refused with a position, or its settings must survive
// printing and reading back.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include <ddpxx/config/files/python_file.hpp>
#include <ddpxx/config/text/source.hpp>

#include "every.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ddpxx;
  using namespace ddpxx::detail;
  const std::string_view input{reinterpret_cast<const char*>(data), size};
  fill_and_check(read_python(input, std::make_shared<ConfigSource>(ConfigSource{.name = "input.py"})));
  return 0;
}
