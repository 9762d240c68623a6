// ddpxx/data/bpe/split_pattern.hpp — the regular expression that cuts a text into the pieces in which tokens are
// merged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>

// With the width 0 pcre2.h declares its functions under their full names only, so that a program can use another width.
#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 0
#endif
#include <pcre2.h>

#include <ddpxx/core/error.hpp>

namespace ddpxx::detail {

/// GPT-2's pattern: contractions, words, numbers and other characters, each with the space before it.
/// Source  GPT-2's encoder.py.
inline constexpr std::string_view kGPT2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// A pattern of a tokenizer.json in the syntax of PCRE2. Hugging Face reads patterns with Oniguruma. Only what both
/// understand alike is allowed: literals, `\p{...}` of a general category, `\s \S \d \D \r \n \t`, escaped punctuation,
/// sets without sets inside, groups `( (?: (?= (?! (?i:`, alternatives and quantifiers. None if there is anything else.
inline std::optional<std::string> pattern_for_pcre2(std::string_view pattern) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  std::string text;
  bool in_set = false;
  while (!pattern.empty()) {
    std::size_t taken = 1;
    const char c = pattern[0], next = pattern.size() > 1 ? pattern[1] : '\0';
    if (c == '\\') {
      taken = 2;
      if (next == 'p' || next == 'P') {
        const auto close = pattern.find('}');
        if (pattern.size() < 3 || pattern[2] != '{' || close == std::string_view::npos) return std::nullopt;
        const auto name = pattern.substr(3, close - 3);
        const bool is_category = (name.size() == 1 || name.size() == 2) &&
                                 std::string_view{"LMNPSZC"}.find(name[0]) != name.npos &&
                                 (name.size() == 1 || (name[1] >= 'a' && name[1] <= 'z'));
        if (!is_category) return std::nullopt;
        taken = close + 1;
      } else if (next == 's' || next == 'S') {
        // PCRE2's own \s has U+180E too, which is not white space since Unicode 6.3.
        text += next == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
        pattern.remove_prefix(2);
        continue;
      } else if (next == '\0' || is_digit(next) ||
                 (is_letter(next) && std::string_view{"dDrnt"}.find(next) == std::string_view::npos)) {
        return std::nullopt;
      }
    } else if (in_set) {
      if (c == '[' || (c == '&' && next == '&')) return std::nullopt;
      in_set = c != ']';
    } else if (c == '[') {
      in_set = true;
      taken = next == '^' ? 2 : 1;
      if (pattern.substr(taken).starts_with(']')) return std::nullopt;
    } else if (c == '(' && next == '?') {
      const auto kind = pattern.substr(2);
      taken = kind.starts_with("i:") ? 4 : 3;
      if (!kind.starts_with(':') && !kind.starts_with('=') && !kind.starts_with('!') && taken != 4) return std::nullopt;
    } else if (c == '(' && next == '*') {
      return std::nullopt;  // a verb of PCRE2, such as (*ACCEPT)
    } else if (c == '.' || c == '^' || c == '$' || (c == '{' && !is_digit(next)) ||
               (c == '}' && (next == '+' || next == '?'))) {
      return std::nullopt;
    }
    text += pattern.substr(0, taken);
    pattern.remove_prefix(taken);
  }
  return text;
}

/// A compiled pattern. Threads may use it at the same time.
class SplitPattern {
 public:
  /// Errors  `data` if the pattern has something that Oniguruma and PCRE2 do not understand alike.
  explicit SplitPattern(std::string_view pattern) {
    const auto refuse = [&](const std::string& why) {
      throw Error{Errc::data, "the pattern " + std::string{pattern} + " cannot be used: " + why};
    };
    const auto translated = pattern_for_pcre2(pattern);
    if (!translated)
      refuse(
          "it has a construct that PCRE2 may understand otherwise than Oniguruma, which the tokenizer was made with");
    int problem = 0;
    PCRE2_SIZE at = 0;
    code_.reset(::pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(translated->data()), translated->size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &problem, &at, nullptr));
    if (!code_) refuse(message_of(problem) + " at offset " + std::to_string(at) + " of " + *translated);
    std::uint32_t matches_empty = 0;
    ::pcre2_pattern_info_8(code_.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
    if (matches_empty != 0) refuse("it matches an empty text");
    ::pcre2_jit_compile_8(code_.get(), PCRE2_JIT_COMPLETE);  // where it fails, the pattern is interpreted
  }

  /// Calls `visit(std::string_view)` for each match in a UTF-8 text and for each part between matches, in their order.
  /// Errors  `data` if PCRE2 gives up.
  template <class Visit>
  void split(std::string_view text, Visit&& visit) const {
    const std::unique_ptr<pcre2_match_data_8, FreeMatch> match{
        ::pcre2_match_data_create_from_pattern_8(code_.get(), nullptr)};
    if (!match) throw std::bad_alloc{};
    std::size_t done = 0;  // end of the last piece
    for (std::size_t start = 0; start < text.size();) {
      const int found = ::pcre2_match_8(code_.get(), reinterpret_cast<PCRE2_SPTR8>(text.data()), text.size(), start,
                                        PCRE2_NO_UTF_CHECK, match.get(), nullptr);
      if (found == PCRE2_ERROR_NOMATCH) break;
      if (found < 0) throw Error{Errc::data, "the tokenizer's pattern fails on a text: " + message_of(found)};
      const auto* range = ::pcre2_get_ovector_pointer_8(match.get());
      if (range[0] > done) visit(text.substr(done, range[0] - done));
      visit(text.substr(range[0], range[1] - range[0]));
      done = start = range[1];
    }
    if (done < text.size()) visit(text.substr(done));
  }

 private:
  struct FreeCode {
    void operator()(pcre2_code_8* code) const { ::pcre2_code_free_8(code); }
  };
  struct FreeMatch {
    void operator()(pcre2_match_data_8* match) const { ::pcre2_match_data_free_8(match); }
  };

  static std::string message_of(int problem) {
    std::string text(256, '\0');
    const int size = ::pcre2_get_error_message_8(problem, reinterpret_cast<PCRE2_UCHAR8*>(text.data()), text.size());
    text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return text;
  }

  std::unique_ptr<pcre2_code_8, FreeCode> code_;
};

/// Cuts the text by the first pattern, each piece by the second, and so on; calls `visit` for the last pieces.
template <class Visit>
void split_by_all(std::span<const SplitPattern> patterns, std::string_view text, const Visit& visit) {
  if (patterns.empty())
    visit(text);
  else
    patterns[0].split(text, [&](std::string_view piece) { split_by_all(patterns.subspan(1), piece, visit); });
}

}  // namespace ddpxx::detail
