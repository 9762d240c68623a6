// ddpxx/data/bpe/tokenizer_rules.hpp — what the files of a tokenizer say, whatever their format.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/bpe/byte_characters.hpp>
#include <ddpxx/data/bpe/merge_table.hpp>
#include <ddpxx/data/bpe/split_pattern.hpp>

namespace ddpxx::detail {

/// A text that is one token wherever it stands, such as <|endoftext|>.
struct AddedToken {
  std::string text;
  std::int32_t id = 0;
  bool is_normalized = false;  ///< Looked for only where no token without this mark was found.
};

struct TokenizerRules {
  std::vector<std::optional<std::string>> tokens;  ///< The bytes of each token; none for an id without a token.
  std::array<std::int32_t, 256> byte_tokens{};     ///< The token of each byte.
  std::vector<Merge> merges;                       ///< In the order in which they were learnt.
  std::vector<SplitPattern> patterns;
  std::vector<AddedToken> added;
  bool add_prefix_space = false;  ///< A space is put before a text that does not begin with one.
  bool ignore_merges = false;     ///< A piece that is a token as a whole is not merged from its bytes.
};

/// The tokens of a vocabulary by the text that the file has for them.
class WrittenVocabulary {
 public:
  static constexpr std::int64_t kMaxTokens = std::int64_t{1} << 21;  // a larger id would take memory for those below it

  /// Errors  `data` for an id outside [0, 2^21), and for one that two tokens have.
  void add(const std::string& written, std::int64_t id) {
    if (id < 0 || id >= kMaxTokens)
      throw Error{Errc::data, "the token \"" + written + "\" has the id " + std::to_string(id) + ", and ids are 0 to " +
                                  std::to_string(kMaxTokens - 1)};
    const auto index = static_cast<std::size_t>(id);
    if (index >= tokens_.size()) tokens_.resize(index + 1);
    auto& token = tokens_[index];
    if (token) throw Error{Errc::data, "\"" + written + "\" and another token have the id " + std::to_string(id)};
    token = bytes_of_token(written).value_or(written);
    ids_.emplace(written, static_cast<std::int32_t>(id));
  }

  std::optional<std::int32_t> find(const std::string& written) const {
    const auto found = ids_.find(written);
    return found == ids_.end() ? std::nullopt : std::optional{found->second};
  }

  /// Errors  `data` if a part of the merge, or the token that it makes, is not in the vocabulary.
  Merge merge(const std::string& left, const std::string& right) const {
    const auto id_of = [&](const std::string& written) {
      if (const auto id = find(written)) return *id;
      throw Error{Errc::data, "the merge \"" + left + " " + right + "\" needs the token \"" + written +
                                  "\", which the vocabulary does not have"};
    };
    return {id_of(left), id_of(right), id_of(left + right)};
  }

  /// Errors  `data` if a byte has no token.
  TokenizerRules rules() && {
    TokenizerRules rules;
    static constexpr auto kCharacters = characters_of_bytes();
    for (std::size_t byte = 0; byte < kCharacters.size(); ++byte) {
      std::string written;
      append_utf8(written, kCharacters[byte]);
      const auto id = find(written);
      if (!id)
        throw Error{Errc::data, "the vocabulary has no token for the byte " + std::to_string(byte) + ", written as \"" +
                                    written + "\": this is not a byte-level tokenizer"};
      rules.byte_tokens[byte] = *id;
    }
    rules.tokens = std::move(tokens_);
    return rules;
  }

 private:
  std::vector<std::optional<std::string>> tokens_;
  std::unordered_map<std::string, std::int32_t> ids_;
};

/// The two parts of a merge that is written with a space between them.
/// Errors  `data` if there are not two.
inline std::pair<std::string, std::string> parts_of_merge(std::string_view written) {
  const auto space = written.find(' ');
  if (space == std::string_view::npos || space == 0 || space + 1 == written.size() ||
      written.find(' ', space + 1) != std::string_view::npos)
    throw Error{Errc::data,
                "\"" + std::string{written} + "\" is not a merge, which is two tokens with a space between them"};
  return {std::string{written.substr(0, space)}, std::string{written.substr(space + 1)}};
}

}  // namespace ddpxx::detail
