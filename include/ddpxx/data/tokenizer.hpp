// ddpxx/data/tokenizer.hpp — GPT-2's byte-level byte pair encoding: text as tokens and back. Programs that include this
// header link ddpxx::tokenizer, which brings PCRE2.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/utf8.hpp>
#include <ddpxx/data/bpe/merge_table.hpp>
#include <ddpxx/data/bpe/split_pattern.hpp>
#include <ddpxx/data/bpe/tokenizer_files.hpp>
#include <ddpxx/data/bpe/tokenizer_rules.hpp>

namespace ddpxx {

/// A tokenizer of GPT-2's kind, read from the files that Hugging Face publishes. Threads may use it at the same time.
/// Source  Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"; equal to Hugging Face's
///         `tokenizers` and to `tiktoken`, but for characters that are newer than PCRE2's Unicode tables.
class Tokenizer {
 public:
  /// Reads a tokenizer.json, a vocab.json with merges.txt beside it, or a folder with one of the two.
  /// Errors  `data`, naming the file, if it cannot be read or asks for something that would not give equal tokens.
  explicit Tokenizer(const std::filesystem::path& path) : Tokenizer{detail::read_tokenizer_rules(path)} {}

  /// The largest id and one more.
  std::int64_t size() const noexcept { return std::ssize(tokens_); }

  bool has(std::int64_t id) const noexcept { return id >= 0 && id < size() && tokens_[static_cast<std::size_t>(id)]; }

  /// The tokens of a UTF-8 text. The texts of added tokens, such as <|endoftext|>, become these tokens.
  /// Errors  `data` if the text is not UTF-8.
  std::vector<std::int64_t> encode(std::string_view text) const;

  /// The tokens of a UTF-8 text, without added tokens: <|endoftext|> in the text is a text like any other.
  /// Errors  `data` if the text is not UTF-8.
  std::vector<std::int64_t> encode_ordinary(std::string_view text) const;

  /// The id of an added token, such as <|endoftext|>; none if the tokenizer has no such token.
  std::optional<std::int64_t> find_added(std::string_view token) const;

  /// The bytes of the tokens, one after the other. They are not valid UTF-8 if some tokens of a character are missing.
  /// Errors  `data` for an id without a token.
  std::string decode(std::span<const std::int64_t> ids) const;

 private:
  explicit Tokenizer(detail::TokenizerRules rules);

  class Output;

  static void check_utf8(std::string_view text);
  void append(std::string_view text, std::span<const std::span<const detail::AddedToken>> groups, Output& out) const;
  void append_ordinary(std::string_view text, Output& out) const;

  std::vector<std::optional<std::string>> tokens_;
  std::array<std::int32_t, 256> byte_tokens_;
  std::unordered_map<std::string_view, std::int32_t> whole_;  ///< Pieces that are not merged; views of tokens_.
  detail::MergeTable merges_;
  std::vector<detail::SplitPattern> patterns_;
  std::vector<detail::AddedToken> exact_;       ///< Added tokens that are looked for first.
  std::vector<detail::AddedToken> normalized_;  ///< Added tokens that are looked for in the rest.
  bool add_prefix_space_;
};

/// The tokens of one text, and where the tokens of each piece are: most pieces of a text come many times.
class Tokenizer::Output {
 public:
  explicit Output(const Tokenizer& tokenizer) : tokenizer_{tokenizer} {}

  void append(std::int32_t token) { ids_.push_back(token); }

  /// Keeps a text alive until the last call.
  std::string_view keep(std::string text) { return kept_.emplace_back(std::move(text)); }

  /// Merges a piece. `piece` must be alive until the last call.
  void append_merged(std::string_view piece) {
    const auto [place, is_new] = places_.try_emplace(piece);
    auto& [first, count] = place->second;
    if (is_new) {
      merge(piece);
      first = ids_.size();
      count = word_.size();
      ids_.insert(ids_.end(), word_.begin(), word_.end());
    } else {
      ids_.resize(ids_.size() + count);
      std::copy_n(ids_.begin() + static_cast<std::ptrdiff_t>(first), count,
                  ids_.end() - static_cast<std::ptrdiff_t>(count));
    }
  }

  std::vector<std::int64_t> take() { return std::move(ids_); }

 private:
  struct Place {
    std::size_t first = 0, count = 0;
  };

  void merge(std::string_view piece) {
    word_.clear();
    if (const auto whole = tokenizer_.whole_.find(piece); whole != tokenizer_.whole_.end()) {
      word_.push_back(whole->second);
      return;
    }
    for (const char byte : piece) word_.push_back(tokenizer_.byte_tokens_[static_cast<unsigned char>(byte)]);
    tokenizer_.merges_.apply(word_);
  }

  const Tokenizer& tokenizer_;
  std::vector<std::int64_t> ids_;
  std::vector<std::int32_t> word_;
  std::unordered_map<std::string_view, Place> places_;
  std::deque<std::string> kept_;
};

inline Tokenizer::Tokenizer(detail::TokenizerRules rules)
    : tokens_{std::move(rules.tokens)},
      byte_tokens_{rules.byte_tokens},
      merges_{rules.merges},
      patterns_{std::move(rules.patterns)},
      add_prefix_space_{rules.add_prefix_space} {
  if (rules.ignore_merges)
    for (std::size_t id = 0; id < tokens_.size(); ++id)
      if (tokens_[id]) whole_.emplace(*tokens_[id], static_cast<std::int32_t>(id));
  for (auto& token : rules.added) {
    whole_.erase(token.text);
    (token.is_normalized ? normalized_ : exact_).push_back(std::move(token));
  }
}

inline std::vector<std::int64_t> Tokenizer::encode(std::string_view text) const {
  check_utf8(text);
  Output out{*this};
  append(text, std::array{std::span{exact_}, std::span{normalized_}}, out);
  return out.take();
}

inline std::vector<std::int64_t> Tokenizer::encode_ordinary(std::string_view text) const {
  check_utf8(text);
  Output out{*this};
  append(text, {}, out);
  return out.take();
}

inline std::optional<std::int64_t> Tokenizer::find_added(std::string_view token) const {
  for (const auto* added : {&exact_, &normalized_})
    if (const auto found = std::ranges::find(*added, token, &detail::AddedToken::text); found != added->end())
      return found->id;
  return std::nullopt;
}

inline std::string Tokenizer::decode(std::span<const std::int64_t> ids) const {
  std::string text;
  for (const auto id : ids) {
    if (!has(id))
      throw Error{Errc::data, "the tokenizer has no token " + std::to_string(id) + ": its tokens are 0 to " +
                                  std::to_string(size() - 1)};
    text += *tokens_[static_cast<std::size_t>(id)];
  }
  return text;
}

inline void Tokenizer::check_utf8(std::string_view text) {
  if (const auto offset = find_malformed_utf8(text); offset != std::string_view::npos)
    throw Error{Errc::data, "the byte at offset " + std::to_string(offset) +
                                " of a text to tokenize begins no UTF-8 character; iconv converts other encodings"};
}

/// Cuts the text at the added tokens of the first group; the parts between them at those of the other groups.
inline void Tokenizer::append(std::string_view text, std::span<const std::span<const detail::AddedToken>> groups,
                              Output& out) const {
  if (groups.empty()) return append_ordinary(text, out);
  const auto added = groups[0];
  std::vector<std::size_t> next(added.size());  // where each token is found next
  for (std::size_t i = 0; i < added.size(); ++i) next[i] = text.find(added[i].text);
  for (std::size_t done = 0;;) {
    // The leftmost token counts, and of those that begin at one place the longest.
    auto begin = std::string_view::npos;
    std::size_t chosen = 0;
    for (std::size_t i = 0; i < added.size(); ++i) {
      if (next[i] < done) next[i] = text.find(added[i].text, done);
      if (next[i] < begin ||
          (next[i] == begin && begin != text.npos && added[i].text.size() > added[chosen].text.size()))
        begin = next[i], chosen = i;
    }
    append(text.substr(done, begin == text.npos ? text.npos : begin - done), groups.subspan(1), out);
    if (begin == text.npos) return;
    out.append(added[chosen].id);
    done = begin + added[chosen].text.size();
  }
}

inline void Tokenizer::append_ordinary(std::string_view text, Output& out) const {
  if (text.empty()) return;
  const bool add_space = add_prefix_space_ && text.front() != ' ';
  detail::split_by_all(patterns_, add_space ? out.keep(' ' + std::string{text}) : text,
                       [&out](std::string_view piece) { out.append_merged(piece); });
}

}  // namespace ddpxx
