// ddpxx/comm/job_store_protocol.hpp — the messages between a job's store and its clients.
//
// A client whose hello (store_hello.hpp) is accepted sends requests one at a time, and each gets one answer. A message
// is its length in four bytes, a code in one byte, and fields; a number takes eight bytes, a text its length in four
// bytes and its own bytes. All numbers are little-endian.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace ddpxx::detail {

enum class StoreOperation : std::uint8_t {
  set = 1,
  get,
  add,
  append,
  compare_set,
  check,
  wait,
  multi_get,
  multi_set,
  remove,
  count_keys,
  claim
};

enum class StoreStatus : std::uint8_t {
  done = 1,
  late,         ///< The time of a wait is over; the indices of the missing keys follow.
  interrupted,  ///< The key that ends the wait early exists; its value follows.
  refused       ///< The request exceeds a limit of the store; the reason follows.
};

template <class Number>
void append_number(std::string& bytes, Number number) {
  for (std::size_t i = 0; i < sizeof number; ++i) bytes += static_cast<char>((number >> (8 * i)) & 0xFFU);
}

template <class Number>
Number read_number(std::string_view bytes) {
  Number number = 0;
  for (std::size_t i = 0; i < sizeof number; ++i)
    number = static_cast<Number>(
        number | static_cast<Number>(static_cast<Number>(static_cast<unsigned char>(bytes[i])) << (8 * i)));
  return number;
}

/// A message that is being built.
class StoreMessage {
 public:
  explicit StoreMessage(StoreOperation operation) : StoreMessage{static_cast<std::uint8_t>(operation)} {}
  explicit StoreMessage(StoreStatus status) : StoreMessage{static_cast<std::uint8_t>(status)} {}

  StoreMessage& number(std::int64_t value) & {
    append_number(bytes_, static_cast<std::uint64_t>(value));
    return *this;
  }
  StoreMessage& text(std::string_view value) & {
    append_number(bytes_, static_cast<std::uint32_t>(value.size()));
    bytes_ += value;
    return *this;
  }
  StoreMessage&& number(std::int64_t value) && { return std::move(number(value)); }
  StoreMessage&& text(std::string_view value) && { return std::move(text(value)); }
  std::size_t size() const noexcept { return bytes_.size(); }

  /// The whole message, with its length in front.
  std::string finish() && {
    std::string length;
    append_number(length, static_cast<std::uint32_t>(bytes_.size() - kLengthBytes));
    bytes_.replace(0, kLengthBytes, length);
    return std::move(bytes_);
  }

  static constexpr std::size_t kLengthBytes = 4;

 private:
  explicit StoreMessage(std::uint8_t code) : bytes_(kLengthBytes, '\0') { bytes_ += static_cast<char>(code); }

  std::string bytes_;
};

/// Thrown if a message does not have the form that its code requires.
struct MalformedMessage : std::runtime_error {
  MalformedMessage() : std::runtime_error{"malformed message"} {}
};

/// Reads a message without its length. The texts are views into it.
/// Errors  `MalformedMessage` where a field is cut off.
class StoreMessageReader {
 public:
  explicit StoreMessageReader(std::string_view bytes) : rest_{bytes} {}

  std::uint8_t code() { return static_cast<std::uint8_t>(take(1)[0]); }
  std::int64_t number() { return std::bit_cast<std::int64_t>(read_number<std::uint64_t>(take(8))); }
  std::string_view text() { return take(read_number<std::uint32_t>(take(4))); }
  bool at_end() const noexcept { return rest_.empty(); }

 private:
  std::string_view take(std::size_t size) {
    if (size > rest_.size()) throw MalformedMessage{};
    const auto taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
};

}  // namespace ddpxx::detail
