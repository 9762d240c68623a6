// ddpxx/comm/secret.hpp — random texts that cannot be guessed.
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
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

namespace detail {

/// Whether two secrets are equal; the time depends only on their lengths.
inline bool equal_secrets(std::string_view left, std::string_view right) {
  if (left.size() != right.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < left.size(); ++i)
    difference |= static_cast<unsigned>(static_cast<unsigned char>(left[i]) ^ static_cast<unsigned char>(right[i]));
  return difference == 0;
}

}  // namespace detail

}  // namespace ddpxx
