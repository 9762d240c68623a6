// Reads the input as a file of token ids. An accepted file has the ids that stand in its bytes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string_view>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/token_dataset.hpp>

#include "memory_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ddpxx;
  static const MemoryFile file{"train.bin"};
  file.write({reinterpret_cast<const char*>(data), size});
  try {
    const TokenDataset tokens{{.path = file.path(), .block_size = 4, .vocab_size = 50'000}};
    if (tokens.num_tokens() != static_cast<std::int64_t>(size / 2)) std::abort();
    std::vector<std::int64_t> indices(static_cast<std::size_t>(tokens.size()));
    std::iota(indices.begin(), indices.end(), 0);
    const auto batch = tokens.batch(indices);
    const auto* const inputs = batch.inputs.const_data_ptr<std::int64_t>();
    const auto* const targets = batch.targets.const_data_ptr<std::int64_t>();
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const auto id = [&](std::size_t token) { return data[2 * token] + 256 * data[2 * token + 1]; };
      if (inputs[4 * i] != id(i) || targets[4 * i + 3] != id(i + 4)) std::abort();
    }
  } catch (const Error& error) {
    if (error.code() != Errc::data) std::abort();
  }
  return 0;
}
