// Reads the input as a file of token ids, of 16 and of 32 bits. An accepted file has the ids that stand in its bytes,
// behind a header if it has one.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/token_dataset.hpp>

#include "memory_file.hpp"

namespace {

void read(const std::string& path, std::span<const std::uint8_t> bytes, std::int64_t vocab_size, std::size_t id_bytes) {
  using namespace ddpxx;
  try {
    const TokenDataset tokens{{.path = path, .block_size = 4, .vocab_size = vocab_size}};
    const auto header = bytes.size() - static_cast<std::size_t>(tokens.num_tokens()) * id_bytes;
    if (header != 0 && header != 1024) std::abort();
    std::vector<std::int64_t> indices(static_cast<std::size_t>(tokens.size()));
    std::iota(indices.begin(), indices.end(), 0);
    const auto batch = tokens.batch(indices);
    const auto* const inputs = batch.inputs.const_data_ptr<std::int64_t>();
    const auto* const targets = batch.targets.const_data_ptr<std::int64_t>();
    const auto id_at = [&](std::size_t token) {
      std::int64_t id = 0;
      for (auto byte = id_bytes; byte-- > 0;) id = 256 * id + bytes[header + id_bytes * token + byte];
      return id;
    };
    for (std::size_t i = 0; i < indices.size(); ++i)
      if (inputs[4 * i] != id_at(i) || targets[4 * i + 3] != id_at(i + 4)) std::abort();
  } catch (const Error& error) {
    if (error.code() != Errc::data) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ddpxx::MemoryFile file{"train.bin"};
  file.write({reinterpret_cast<const char*>(data), size});
  read(file.path(), {data, size}, 50'000, 2);
  read(file.path(), {data, size}, std::int64_t{1} << 31, 4);
  return 0;
}
