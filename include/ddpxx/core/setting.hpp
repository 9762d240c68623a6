// ddpxx/core/setting.hpp — one configuration value as text: what a snapshot records and a resumed run compares.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <ddpxx/core/crc32c.hpp>

namespace ddpxx {

/// What a resumed run does when a setting differs from the one in the snapshot.
enum class Resume { must_match, warn, free };

struct Setting {
  std::string path;   ///< As on the command line: `optimizer.learning_rate`.
  std::string value;  ///< As the configuration prints it.
  Resume resume = Resume::warn;
  std::string origin{};  ///< Who set it and what that overrode: `argument 2; overrides train.yaml:12:7 (0.001); ...`.
};

using Settings = std::vector<Setting>;

/// A value as messages show it: a long one by its beginning, its length and a checksum, so that two that differ are
/// told apart.
inline std::string shortened(const std::string& value) {
  constexpr std::size_t kMaxBytes = 200, kShownBytes = 60;
  if (value.size() <= kMaxBytes) return value;
  auto shown = kShownBytes;
  while (shown > 0 && (static_cast<unsigned char>(value[shown]) & 0xC0U) == 0x80U) --shown;  // not inside a character
  return value.substr(0, shown) + "... (" + std::to_string(value.size()) + " bytes, CRC-32C " +
         crc32c_text(crc32c(std::as_bytes(std::span{value}))) + ")";
}

}  // namespace ddpxx
