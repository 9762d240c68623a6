// ddpxx/comm/secret.hpp — a random text that cannot be guessed.
#pragma once

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <sys/random.h>

#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// Returns 128 random bits of the system as 32 hexadecimal digits.
/// Errors  `peer` if the system has none.
inline std::string make_secret() {
  static constexpr char kHex[] = "0123456789abcdef";
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw Error{Errc::peer, "the system gives no random numbers: " + std::string{std::strerror(errno)}};
  std::string text;
  for (const unsigned byte : bytes) text += {kHex[byte >> 4U], kHex[byte & 0xFU]};
  return text;
}

}  // namespace ddpxx
