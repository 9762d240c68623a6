// A configuration in Python, as the input is: it is refused at a place, or what it sets prints to the same again.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include <ddpxx/config/files/python_file.hpp>
#include <ddpxx/config/text/source.hpp>

#include "every.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ddpxx;
  const std::string_view input{reinterpret_cast<const char*>(data), size};
  fill_and_check(read_python(input, std::make_shared<ConfigSource>(ConfigSource{.name = "input.py"})));
  return 0;
}
