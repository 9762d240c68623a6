// ddpxx/observe/json_row.hpp — one flat JSON object on one line. So little that no JSON library need be compiled for
// it.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include <ddpxx/core/utf8.hpp>

namespace ddpxx {

/// Collects keys and values in order. Keys are plain words.
class JsonRow {
 public:
  JsonRow& add(std::string_view key, std::int64_t value) { return write(key, number(value)); }

  /// JSON has no NaN and no infinity: they become null.
  JsonRow& add(std::string_view key, double value) { return write(key, std::isfinite(value) ? number(value) : "null"); }

  JsonRow& add(std::string_view key, std::string_view value) { return write(key, quoted(value)); }

  /// The row with its line end.
  std::string line() const { return (text_.empty() ? "{" : text_) + "}\n"; }

 private:
  JsonRow& write(std::string_view key, std::string_view value) {
    text_ += text_.empty() ? '{' : ',';
    ((text_ += '"').append(key) += "\":").append(value);
    return *this;
  }

  /// The shortest text that reads back as the same number.
  static std::string number(auto value) {
    char text[32];
    return {text, std::to_chars(text, text + sizeof text, value).ptr};
  }

  /// Malformed UTF-8 becomes U+FFFD.
  static std::string quoted(std::string_view value) {
    static constexpr std::string_view kHex = "0123456789abcdef";
    std::string result = "\"";
    while (!value.empty()) {
      const auto length = utf8_length(value);
      const auto byte = static_cast<unsigned char>(value[0]);
      if (length == 0) {
        result += "\xEF\xBF\xBD";
      } else if (byte == '"' || byte == '\\') {
        result += {'\\', value[0]};
      } else if (byte < 0x20) {
        result.append("\\u00") += {kHex[byte >> 4U], kHex[byte & 0xFU]};
      } else {
        result += value.substr(0, length);
      }
      value.remove_prefix(length == 0 ? 1 : length);
    }
    return result + '"';
  }

  std::string text_;
};

}  // namespace ddpxx
