// Reads the input as the header of a safetensors file, and a valid header with the bytes replaced that the input names.
// Each must be refused, or survive printing and reading back.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <ddpxx/snapshot/safetensors_header.hpp>

namespace {

constexpr std::string_view kSound =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
    R"("b":{"dtype":"BOOL","shape":[],"data_offsets":[24,25]},"c":{"dtype":"I64","shape":[0],"data_offsets":[25,25]}})";
constexpr std::size_t kSoundBytes = 25;

void read(std::string_view json, std::size_t data_bytes) {
  using namespace ddpxx;
  try {
    const auto printed = print_safetensors_header(parse_safetensors_header(json, data_bytes));
    if (print_safetensors_header(parse_safetensors_header(printed, data_bytes)) != printed) std::abort();
  } catch (const Error& error) {
    if (error.code() != Errc::storage) std::abort();
  }
}

/// Each two bytes of the input are a position and the byte that is written there.
std::string edited(std::string_view input) {
  std::string json{kSound};
  for (std::size_t i = 0; i + 1 < input.size(); i += 2)
    json[static_cast<unsigned char>(input[i]) % json.size()] = input[i + 1];
  return json;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input{reinterpret_cast<const char*>(data), size};
  // The first byte of the input is the number of bytes behind the header.
  if (!input.empty()) read(input.substr(1), data[0]);
  read(edited(input), kSoundBytes);
  return 0;
}
