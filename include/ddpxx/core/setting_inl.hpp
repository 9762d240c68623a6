// ddpxx/core/setting_inl.hpp — definitions of setting.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <ddpxx/core/crc32c.hpp>
#include <ddpxx/core/setting.hpp>

namespace ddpxx {

DDPXX_INLINE std::string shortened(const std::string& value) {
  constexpr std::size_t kMaxBytes = 200, kShownBytes = 60;
  if (value.size() <= kMaxBytes) return value;
  auto shown = kShownBytes;
  while (shown > 0 && (static_cast<unsigned char>(value[shown]) & 0xC0U) == 0x80U) --shown;  // not inside a character
  return value.substr(0, shown) + "... (" + std::to_string(value.size()) + " bytes, CRC-32C " +
         crc32c_text(crc32c(std::as_bytes(std::span{value}))) + ")";
}

}  // namespace ddpxx
