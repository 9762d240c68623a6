// ddpxx/comm/secret.hpp — random text that nobody can guess.
#pragma once

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <sys/random.h>

#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// 128 random bits of the system as 32 hexadecimal figures.
/// Errors  `peer` when the system gives none.
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
