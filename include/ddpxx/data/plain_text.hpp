// ddpxx/data/plain_text.hpp — refuses files that hold no text.
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/utf8.hpp>

namespace ddpxx {

/// The offset of the first byte that is NUL or does not begin a UTF-8 character; npos if there is none.
inline std::size_t find_non_text(std::string_view text) {
  const auto nul = text.find('\0');
  return std::min(nul, find_malformed_utf8(text.substr(0, nul)));
}

/// The error `data` for a file that is not text because of the byte at `offset`. For well-known endings of `name` it
/// says what such files hold.
Error non_text_error(const std::string& name, std::size_t offset, char byte);

namespace detail {

struct BinaryKind {
  std::string_view ending;
  std::string_view advice;
};

inline constexpr std::string_view kTensorFile = "holds tensors, such as a model's weights: name a text file instead";
inline constexpr std::string_view kNumPyFile = "holds a NumPy array: name the text that it was made from";
inline constexpr std::string_view kPacked = "is compressed: unpack it first";
inline constexpr std::string_view kTable = "holds a table: write its texts to plain files first";

inline constexpr std::array kBinaryKinds{
    BinaryKind{".bin",
               "usually holds token ids, as nanoGPT's prepare.py writes them: set data.format=tokens, which is a "
               "TokenDataset in a program, or name the text that they were made from"},
    BinaryKind{".pt", kTensorFile},
    BinaryKind{".pth", kTensorFile},
    BinaryKind{".ckpt", kTensorFile},
    BinaryKind{".safetensors", kTensorFile},
    BinaryKind{".npy", kNumPyFile},
    BinaryKind{".npz", kNumPyFile},
    BinaryKind{".gz", kPacked},
    BinaryKind{".xz", kPacked},
    BinaryKind{".bz2", kPacked},
    BinaryKind{".zst", kPacked},
    BinaryKind{".zip", kPacked},
    BinaryKind{".parquet", kTable},
    BinaryKind{".arrow", kTable}};

}  // namespace detail

inline Error non_text_error(const std::string& name, std::size_t offset, char byte) {
  const auto what = name + " is not text: the byte at offset " + std::to_string(offset) +
                    (byte == '\0' ? " is NUL" : " begins no UTF-8 character");
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  for (const auto& [ending, advice] : detail::kBinaryKinds)
    if (lower.ends_with(ending))
      return Error{Errc::data, what + ". A file " + std::string{ending} + " " + std::string{advice}};
  return Error{Errc::data, what + ". Name UTF-8 text files; iconv converts other encodings"};
}

}  // namespace ddpxx
