// A YAML file of settings, as the input is: it is refused at a place, or what it sets prints to the same again.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <ddpxx/config/files/yaml.hpp>

#include "every.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input{reinterpret_cast<const char*>(data), size};
  ddpxx::fill_and_check(ddpxx::read_yaml_text(input, "input.yaml", 0));
  return 0;
}
