// Reads the input as a YAML file of settings: it must be refused with a position, or its settings must survive printing
// and reading back.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <ddpxx/config/files/yaml.hpp>

#include "every.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input{reinterpret_cast<const char*>(data), size};
  ddpxx::fill_and_check(ddpxx::detail::read_yaml_text(input, "input.yaml", 0));
  return 0;
}
