// vocabulary.hpp — what the ids of a model stand for: characters, or tokens of a tokenizer that mingpt does not know.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/alphabet.hpp>

/// The characters of an alphabet, or `size` tokens, whose text is their numbers with spaces between: a program with the
/// tokenizer translates them.
class Vocabulary {
 public:
  explicit Vocabulary(ddpxx::Alphabet alphabet) : alphabet_{std::move(alphabet)}, size_{alphabet_->size()} {}
  explicit Vocabulary(std::int64_t size) : size_{size} {}

  std::int64_t size() const noexcept { return size_; }
  /// None for tokens.
  const std::optional<ddpxx::Alphabet>& alphabet() const noexcept { return alphabet_; }

  /// Errors  `data` naming a character that is not in the alphabet, or a word that is no token.
  std::vector<std::int64_t> encode(std::string_view text) const {
    if (alphabet_) return alphabet_->encode(text);
    constexpr std::string_view kSpaces = " \n\t,";
    std::vector<std::int64_t> ids;
    for (auto begin = text.find_first_not_of(kSpaces); begin != std::string_view::npos;) {
      const auto end = std::min(text.find_first_of(kSpaces, begin), text.size());
      const auto word = text.substr(begin, end - begin);
      std::int64_t id = -1;
      const auto [stop, problem] = std::from_chars(word.data(), word.data() + word.size(), id);
      if (problem != std::errc{} || stop != word.data() + word.size() || id < 0 || id >= size_)
        throw ddpxx::Error{ddpxx::Errc::data, "\"" + std::string{word} +
                                                  "\" is no token: the model has the tokens 0 to " +
                                                  std::to_string(size_ - 1) +
                                                  ", and a prompt is written as their numbers, such as \"15496 995\""};
      ids.push_back(id);
      begin = text.find_first_not_of(kSpaces, end);
    }
    return ids;
  }

  std::string decode(std::span<const std::int64_t> ids) const {
    if (alphabet_) return alphabet_->decode(ids);
    std::string text;
    for (const auto id : ids) text += (text.empty() ? "" : " ") + std::to_string(id);
    return text;
  }

 private:
  std::optional<ddpxx::Alphabet> alphabet_;
  std::int64_t size_;
};
