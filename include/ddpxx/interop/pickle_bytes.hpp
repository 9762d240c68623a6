// ddpxx/interop/pickle_bytes.hpp — reads the numbers and texts of a pickle, one after the other.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <ddpxx/core/utf8.hpp>
#include <ddpxx/interop/pickle_objects.hpp>

namespace ddpxx::detail {

/// The bytes of a pickle, and how many of them are read.
///
/// Errors  `storage`, from every function that takes bytes, if too few are left.
class PickleBytes {
 public:
  explicit PickleBytes(std::string_view bytes) : bytes_{bytes} {}

  std::size_t size() const noexcept { return bytes_.size(); }
  std::size_t place() const noexcept { return place_; }

  std::string_view take(std::size_t count) {
    if (count > bytes_.size() - place_) refuse_pickle("ends too early");
    place_ += count;
    return bytes_.substr(place_ - count, count);
  }
  template <class T>
  T number() {
    std::uint64_t bits = 0;
    const auto bytes = take(sizeof(T));
    for (std::size_t i = 0; i < sizeof(T); ++i) bits |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    return static_cast<T>(bits);
  }
  double big_endian_double() {
    std::uint64_t bits = 0;
    for (const char byte : take(8)) bits = (bits << 8U) | static_cast<unsigned char>(byte);
    return std::bit_cast<double>(bits);
  }
  std::int64_t long_integer() {
    const auto bytes = take(number<std::uint8_t>());
    if (bytes.size() > 8) refuse_pickle("has an integer that does not fit 64 bits");
    std::uint64_t bits = !bytes.empty() && static_cast<signed char>(bytes.back()) < 0 ? ~std::uint64_t{0} : 0;
    for (auto byte = bytes.rbegin(); byte != bytes.rend(); ++byte)
      bits = (bits << 8U) | static_cast<unsigned char>(*byte);
    return static_cast<std::int64_t>(bits);
  }
  std::string_view text() {
    const auto text = take(number<std::uint32_t>());
    if (find_malformed_utf8(text) != std::string_view::npos) refuse_pickle("has a text that is not UTF-8");
    return text;
  }
  std::string_view line() {
    const auto end = bytes_.find('\n', place_);
    if (end == std::string_view::npos) refuse_pickle("ends too early");
    const auto line = take(end - place_);
    take(1);
    return line;
  }

 private:
  std::string_view bytes_;
  std::size_t place_ = 0;
};

}  // namespace ddpxx::detail
