// Reads three texts as a tokenizer.json: the input, a valid file with the bytes replaced that the input names, and a
// valid file that has the input as its pattern. A tokenizer that is accepted encodes and decodes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/tokenizer.hpp>

#include "../tokenizer/small_tokenizer.hpp"
#include "memory_file.hpp"

namespace {

void read(std::string_view json) {
  using namespace ddpxx;
  static const MemoryFile file{"tokenizer.json"};
  constexpr std::string_view kText = "abab <|endoftext|> caf\xC3\xA9's  12345\n\n \xF0\x9F\x98\x80";
  file.write(json);
  try {
    const Tokenizer tokenizer{file.path()};
    if (tokenizer.decode(tokenizer.encode(kText)).empty()) std::abort();
    if (tokenizer.decode(tokenizer.encode_ordinary(kText)).empty()) std::abort();
  } catch (const Error& error) {
    if (error.code() != Errc::data) std::abort();
  }
}

/// Each three bytes of the input are a position of two bytes and the byte that is written there.
std::string edited(std::string_view input) {
  static const auto original = small_tokenizer().dump();
  auto text = original;
  for (std::size_t i = 0; i + 2 < input.size(); i += 3)
    text[(static_cast<unsigned char>(input[i]) * 256U + static_cast<unsigned char>(input[i + 1])) % text.size()] =
        input[i + 2];
  return text;
}

std::string with_pattern(std::string_view pattern) {
  static const auto original = small_tokenizer();
  auto json = original;
  json["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers",
                            {{{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", pattern}}}},
                             {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input{reinterpret_cast<const char*>(data), size};
  read(input);
  read(edited(input));
  read(with_pattern(input.substr(0, 200)));
  return 0;
}
