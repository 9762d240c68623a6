// Reads .pt files: the input as a pickle, and a valid pickle and a valid file with the bytes replaced that the input
// names. Each must be refused, or accepted in a form that can be written and whose tensors can be read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <ddpxx/interop/pt_file.hpp>

namespace {

at::Tensor zeros(const ddpxx::PickledStorage& storage) {
  if (storage.num_elements > 1000) throw ddpxx::Error{ddpxx::Errc::storage, "too much is asked for"};
  return at::zeros({storage.num_elements}, storage.dtype);
}

std::string print(const ddpxx::PickleValue& value) {
  std::size_t bytes = 0;
  return ddpxx::print_pickle(value, [&bytes](const at::Tensor& tensor) {
    bytes += tensor.contiguous().nbytes();
    return std::to_string(bytes);
  });
}

void read_pickle(const std::string& pickle) {
  const auto value = ddpxx::parse_pickle(pickle, zeros);
  if (print(value).size() > (std::size_t{64} << 20U)) std::abort();  // a small input must not expand to a huge text
}

void read_file(const std::string& bytes) { print(ddpxx::unpack_pt(bytes, "the input")); }

const ddpxx::PickleValue& sound_value() {
  using namespace ddpxx;
  static const PickleValue value{
      PickleDict{}
          .add("model", PickleDict{}.add("w", at::ones({2, 3}).t()).add("mask", at::ones({2}, at::kBool)))
          .add("numbers", PickleTuple{{1, std::int64_t{1} << 40, 0.5, true, {}}})
          .add(7, PickleList{"text", PickleList{}})};
  return value;
}

/// Each three bytes of the input are a position of two bytes and the byte that is written there.
std::string edited(std::string sound, std::string_view input) {
  const auto byte = [&input](std::size_t i) { return static_cast<unsigned char>(input[i]); };
  for (std::size_t i = 0; i + 2 < input.size(); i += 3)
    sound[(byte(i) * 256U + byte(i + 1)) % sound.size()] = input[i + 2];
  return sound;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string pickle = ddpxx::print_pickle(sound_value(), [](const auto&) { return "0"; });
  static const std::string file = ddpxx::pack_pt(sound_value());
  const std::string input{reinterpret_cast<const char*>(data), size};
  const auto try_to = [](auto&& read, const std::string& bytes) {
    try {
      read(bytes);
    } catch (const ddpxx::Error& error) {
      if (error.code() != ddpxx::Errc::storage) std::abort();
    }
  };
  try_to(read_pickle, input);
  try_to(read_pickle, "\x80\x02" + input + '.');
  try_to(read_pickle, edited(pickle, input));
  try_to(read_file, edited(file, input));
  return 0;
}
