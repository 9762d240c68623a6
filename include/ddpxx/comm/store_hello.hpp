// ddpxx/comm/store_hello.hpp — the first message of a client of a job's store, and the answer to it.
//
// A hello is a magic, whose last byte is the version of the protocol, the sizes of the token and of the run id in two
// bytes each, the token and the run id. The answer is one byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <ddpxx/comm/job_store_protocol.hpp>
#include <ddpxx/comm/store_credentials.hpp>

namespace ddpxx::detail {

enum class HelloAnswer : std::uint8_t {
  accepted = 'a',
  wrong_token = 't',
  other_run = 'r',
  full = 'f',
  other_version = 'v'
};

inline constexpr std::string_view kHelloMagic{"ddpxx\0\0\2", 8};  // the last byte is the version of the protocol
inline constexpr std::size_t kHelloHeaderBytes = kHelloMagic.size() + 4;
inline constexpr std::size_t kMaxHelloBytes = kHelloHeaderBytes + 2 * kMaxCredentialBytes;

inline std::string hello_message(const StoreCredentials& credentials) {
  std::string bytes{kHelloMagic};
  append_number(bytes, static_cast<std::uint16_t>(credentials.token.size()));
  append_number(bytes, static_cast<std::uint16_t>(credentials.run_id.size()));
  return bytes + credentials.token + credentials.run_id;
}

/// The hello in the bytes that a client has sent so far. Token and run id are views into these bytes.
struct ReceivedHello {
  enum class State {
    incomplete,
    complete,
    foreign,        ///< The client is not a program of ddpxx.
    other_version,  ///< The client has another version of the protocol.
    malformed       ///< A size exceeds its limit.
  } state = State::incomplete;
  std::size_t size = kHelloHeaderBytes;  ///< Of the hello, or of its header before that is there. Read no more bytes.
  std::string_view token = {}, run_id = {};
};

/// Reads the bytes that a client has sent so far.
inline ReceivedHello read_hello(std::string_view input) {
  using State = ReceivedHello::State;
  constexpr auto kName = kHelloMagic.substr(0, kHelloMagic.size() - 1);  // the version follows
  if (input.substr(0, kName.size()) != kName.substr(0, input.size())) return {.state = State::foreign};
  if (input.size() < kHelloHeaderBytes) return {};
  if (input[kName.size()] != kHelloMagic.back()) return {.state = State::other_version};
  const std::size_t token_bytes = read_number<std::uint16_t>(input.substr(kHelloMagic.size()));
  const std::size_t run_id_bytes = read_number<std::uint16_t>(input.substr(kHelloMagic.size() + 2));
  if (token_bytes > kMaxCredentialBytes || run_id_bytes > kMaxCredentialBytes) return {.state = State::malformed};
  const auto size = kHelloHeaderBytes + token_bytes + run_id_bytes;
  if (input.size() < size) return {.size = size};
  return {.state = State::complete,
          .size = size,
          .token = input.substr(kHelloHeaderBytes, token_bytes),
          .run_id = input.substr(kHelloHeaderBytes + token_bytes, run_id_bytes)};
}

}  // namespace ddpxx::detail
