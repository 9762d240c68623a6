// vocabulary.hpp — what the ids of a model stand for: characters, tokens of a tokenizer, or tokens of one that mingpt
// does not know.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/alphabet.hpp>
#include <ddpxx/data/tokenizer.hpp>

/// The characters of an alphabet, or `size` tokens. Without their tokenizer the text of tokens is their numbers with
/// spaces between: a program with the tokenizer translates them.
class Vocabulary {
 public:
  explicit Vocabulary(ddpxx::Alphabet alphabet) : alphabet_{std::move(alphabet)}, size_{alphabet_->size()} {}
  explicit Vocabulary(std::int64_t size) : size_{size} {}

  /// `size` tokens of the tokenizer in the file or folder `tokenizer`. A model may have more tokens than its tokenizer,
  /// since a multiple of 64 is faster on GPUs.
  /// Errors  `data` if the tokenizer cannot be read or has more tokens.
  Vocabulary(std::int64_t size, const std::string& tokenizer) : tokenizer_{read_tokenizer(tokenizer)}, size_{size} {
    if (tokenizer_->size() > size)
      throw ddpxx::Error{ddpxx::Errc::data, "data.tokenizer=" + tokenizer + " has " +
                                                std::to_string(tokenizer_->size()) +
                                                " tokens, and data.vocab_size=" + std::to_string(size) +
                                                " is less: set the number of the tokenizer that "
                                                "made the tokens, or more"};
  }

  std::int64_t size() const noexcept { return size_; }
  /// None for tokens.
  const std::optional<ddpxx::Alphabet>& alphabet() const noexcept { return alphabet_; }

  /// Errors  `data` naming a character that is not in the alphabet, or a word that is not a token.
  std::vector<std::int64_t> encode(std::string_view text) const {
    if (alphabet_) return alphabet_->encode(text);
    if (tokenizer_) return tokenizer_->encode(text);
    constexpr std::string_view kSpaces = " \n\t,";
    std::vector<std::int64_t> ids;
    for (auto begin = text.find_first_not_of(kSpaces); begin != std::string_view::npos;) {
      const auto end = std::min(text.find_first_of(kSpaces, begin), text.size());
      const auto word = text.substr(begin, end - begin);
      std::int64_t id = -1;
      const auto [stop, problem] = std::from_chars(word.data(), word.data() + word.size(), id);
      if (problem != std::errc{} || stop != word.data() + word.size() || id < 0 || id >= size_)
        throw ddpxx::Error{ddpxx::Errc::data, "\"" + std::string{word} +
                                                  "\" is not a token: the model has the tokens 0 to " +
                                                  std::to_string(size_ - 1) +
                                                  ", and a prompt is written as their numbers, such as \"15496 995\""};
      ids.push_back(id);
      begin = text.find_first_not_of(kSpaces, end);
    }
    return ids;
  }

  /// The ids of a text to continue. An empty one begins with <|endoftext|> where the tokenizer has it, else with 0.
  std::vector<std::int64_t> encode_prompt(std::string_view text) const {
    auto ids = encode(text);
    if (ids.empty()) ids.push_back(tokenizer_ ? tokenizer_->find_added("<|endoftext|>").value_or(0) : 0);
    return ids;
  }

  /// Tokens that a model has and its tokenizer has not are shown as their numbers in brackets.
  std::string decode(std::span<const std::int64_t> ids) const {
    if (alphabet_) return alphabet_->decode(ids);
    std::string text;
    if (tokenizer_) {
      for (const auto& id : ids)
        text += tokenizer_->has(id) ? tokenizer_->decode({&id, 1}) : '<' + std::to_string(id) + '>';
      return text;
    }
    for (const auto id : ids) text += (text.empty() ? "" : " ") + std::to_string(id);
    return text;
  }

 private:
  static std::shared_ptr<const ddpxx::Tokenizer> read_tokenizer(const std::string& tokenizer) {
    try {
      return std::make_shared<const ddpxx::Tokenizer>(tokenizer);
    } catch (const ddpxx::Error& error) {
      throw ddpxx::Error{error.code(), "data.tokenizer=" + tokenizer + ": " + error.what()};
    }
  }

  std::optional<ddpxx::Alphabet> alphabet_;
  std::shared_ptr<const ddpxx::Tokenizer> tokenizer_;
  std::int64_t size_;
};
