// data_format.hpp — the kinds of data that mingpt trains on.
#pragma once

#include <array>

#include <ddpxx/core/describe.hpp>

/// text: characters in UTF-8. tokens: files of the numbers that a tokenizer has made of text.
enum class DataFormat { text, tokens };

constexpr auto enum_names(DataFormat) {
  return std::array{ddpxx::Named{DataFormat::text, "text"}, ddpxx::Named{DataFormat::tokens, "tokens"}};
}
