// Reads three texts as a snapshot's manifest: the input, the input with a correct checksum, and a valid manifest with
// the bytes replaced that the input names. An accepted manifest must survive printing and reading back.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <ddpxx/core/crc32c.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/snapshot/manifest.hpp>

namespace {

void read(std::string_view text) {
  using namespace ddpxx;
  try {
    const auto printed = print_manifest(parse_manifest(text));
    if (print_manifest(parse_manifest(printed)) != printed) std::abort();
  } catch (const Error& error) {
    if (error.code() != Errc::storage) std::abort();
  }
}

std::string with_sum(std::string text) {
  using namespace ddpxx;
  const auto sum = sums_text({crc32c(bytes_of(text))});
  return text + std::string{detail::kManifestSum} + sum + std::string{detail::kManifestEnd};
}

/// A valid manifest without its checksum.
std::string sound() {
  ddpxx::Manifest manifest;
  manifest.starts = {"0123456789ab"};
  manifest.run.metrics = {{"loss", 0.5}};
  manifest.run.settings = {{"training.seed", "5"}};
  manifest.files = {{"rank-0", 100, ddpxx::chunk_bytes_for(100), {7}}, {"rank-1", 24, ddpxx::chunk_bytes_for(24), {9}}};
  manifest.tensors["a"] = {at::kFloat, {2, 3}, {{0, 0, 4, 80}, {1, 4, 6, 8}}};
  manifest.tensors["b"] = {at::kBool, {}, {{1, 0, 1, 0}}};
  const auto text = ddpxx::print_manifest(manifest);
  return text.substr(0, text.rfind(ddpxx::detail::kManifestSum));
}

/// Each three bytes of the input are a position of two bytes and the byte that is written there.
std::string edited(std::string_view input) {
  static const auto original = sound();
  auto text = original;
  for (std::size_t i = 0; i + 2 < input.size(); i += 3)
    text[(static_cast<unsigned char>(input[i]) * 256U + static_cast<unsigned char>(input[i + 1])) % text.size()] =
        input[i + 2];
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input{reinterpret_cast<const char*>(data), size};
  read(input);
  read(with_sum(std::string{input}));
  read(with_sum(edited(input)));
  ddpxx::is_of_another_version(with_sum(edited(input)));
  return 0;
}
