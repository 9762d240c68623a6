// tests/tokenizer/small_tokenizer.hpp — a tokenizer of 259 tokens.
#pragma once

#include <cstddef>
#include <string>

#include <nlohmann/json.hpp>

#include <ddpxx/data/bpe/byte_characters.hpp>
#include <ddpxx/data/utf8.hpp>

/// A tokenizer.json with the 256 bytes, "ab" = 256, "abab" = 257 and <|endoftext|> = 258.
inline nlohmann::json small_tokenizer() {
  static constexpr auto kCharacters = ddpxx::detail::characters_of_bytes();
  auto json = nlohmann::json::parse(R"({"added_tokens": [{"id": 258, "content": "<|endoftext|>", "single_word": false,
    "lstrip": false, "rstrip": false, "normalized": false, "special": true}], "normalizer": null, "truncation": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "model": {"type": "BPE", "dropout": null, "vocab": {"ab": 256, "abab": 257}, "merges": [["a", "b"], "ab ab"]}})");
  for (std::size_t byte = 0; byte < kCharacters.size(); ++byte) {
    std::string character;
    ddpxx::append_utf8(character, kCharacters[byte]);
    json["model"]["vocab"][character] = byte;
  }
  return json;
}
