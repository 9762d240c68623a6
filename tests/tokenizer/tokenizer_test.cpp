#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/data/tokenizer.hpp>

#include "../parity/python.hpp"
#include "../temporary_folder.hpp"
#include "small_tokenizer.hpp"

namespace ddpxx::tokenizer_test {
namespace {

using Tokens = std::vector<std::int64_t>;

std::string read(const std::filesystem::path& path) { return read_file(path, Errc::data); }

/// The tokens that reference.py has written as 32-bit numbers.
Tokens read_ids(const std::filesystem::path& path) {
  const auto bytes = read(path);
  Tokens ids;
  for (std::size_t i = 0; i + 4 <= bytes.size(); i += 4) {
    std::uint32_t id = 0;
    std::memcpy(&id, bytes.data() + i, sizeof id);
    ids.push_back(id);
  }
  return ids;
}

/// Compares without printing hundreds of thousands of numbers.
void expect_equal(const Tokens& tokens, const Tokens& expected, const Tokenizer& tokenizer) {
  const auto size = std::min(tokens.size(), expected.size());
  for (std::size_t i = 0; i < size; ++i)
    if (tokens[i] != expected[i]) {
      FAIL() << "token " << i << " is \"" << tokenizer.decode({&tokens[i], 1}) << "\", not \""
             << tokenizer.decode({&expected[i], 1}) << "\", behind \""
             << tokenizer.decode(std::span{tokens}.subspan(i < 9 ? 0 : i - 9, std::min<std::size_t>(i, 9))) << '"';
    }
  EXPECT_EQ(tokens.size(), expected.size());
}

/// Python's `tokenizers` and `tiktoken` on one text, which the long tests make larger.
class TokenizerParity : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    const char* bytes = std::getenv("DDPXX_TOKENIZED_BYTES");
    run_python("../tokenizer/reference.py", {folder_->path().string(), bytes != nullptr ? bytes : "1000000"});
    text_ = read(folder_->path() / "text.txt");
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::filesystem::path at(const char* name) { return folder_->path() / name; }

  static inline std::unique_ptr<TemporaryFolder> folder_;
  static inline std::string text_;
};

TEST_F(TokenizerParity, MakesHuggingFacesTokens) {
  for (const auto* name : {"gpt2", "prefix", "llama"}) {
    SCOPED_TRACE(name);
    const Tokenizer tokenizer{at(name)};
    expect_equal(tokenizer.encode(text_), read_ids(at(name) / "ids.bin"), tokenizer);
  }
}

TEST_F(TokenizerParity, ReadsVocabularyAndMergesAsTheTokenizerJson) {
  std::filesystem::create_directory(at("two_files"));
  for (const auto* file : {"vocab.json", "merges.txt"})
    std::filesystem::copy_file(at("gpt2") / file, at("two_files") / file);
  for (const auto& path : {at("two_files"), at("gpt2") / "vocab.json"}) {
    const Tokenizer tokenizer{path};
    expect_equal(tokenizer.encode(text_), read_ids(at("gpt2") / "ids.bin"), tokenizer);
  }
}

TEST_F(TokenizerParity, OrdinaryTextHasTiktokensTokens) {
  const Tokenizer tokenizer{at("gpt2")};
  expect_equal(tokenizer.encode_ordinary(text_), read_ids(at("gpt2") / "ordinary.bin"), tokenizer);
}

TEST_F(TokenizerParity, DecodesToTheText) {
  for (const auto* name : {"gpt2", "llama"}) {
    const Tokenizer tokenizer{at(name)};
    EXPECT_TRUE(tokenizer.decode(tokenizer.encode(text_)) == text_) << name;
    EXPECT_TRUE(tokenizer.decode(tokenizer.encode_ordinary(text_)) == text_) << name;
  }
}

class SmallTokenizer : public testing::Test {
 protected:
  Tokenizer make(const nlohmann::json& json) {
    std::ofstream{path()} << json.dump();
    return Tokenizer{path()};
  }
  std::filesystem::path path() const { return folder_.path() / "tokenizer.json"; }

  TemporaryFolder folder_;
};

TEST_F(SmallTokenizer, AddedTokensAreTokensOnlyWhereAsked) {
  const auto tokenizer = make(small_tokenizer());
  EXPECT_EQ(tokenizer.size(), 259);
  EXPECT_EQ(tokenizer.find_added("<|endoftext|>"), 258);
  EXPECT_EQ(tokenizer.find_added("abab"), std::nullopt);
  EXPECT_EQ(tokenizer.encode("abc<|endoftext|>ab"), (Tokens{256, 'c', 258, 256}));
  EXPECT_EQ(tokenizer.encode_ordinary("<|endoftext|>").size(), 13U);
  EXPECT_EQ(tokenizer.encode(""), Tokens{});
  EXPECT_EQ(tokenizer.decode(Tokens{258, 0xC3, 257}),
            "<|endoftext|>\xC3"
            "abab");
}

TEST_F(SmallTokenizer, MergesALongWordInOrder) {
  constexpr std::size_t kPairs = 500'000;
  std::string text;
  for (std::size_t i = 0; i < kPairs; ++i) text += "ab";
  EXPECT_EQ(make(small_tokenizer()).encode(text), Tokens(kPairs / 2, 257));
  EXPECT_EQ(make(small_tokenizer()).encode(text + "ab"), [&] {
    Tokens tokens(kPairs / 2, 257);
    tokens.push_back(256);
    return tokens;
  }());
}

TEST_F(SmallTokenizer, RefusesWhatIsNoUtf8) {
  const auto tokenizer = make(small_tokenizer());
  try {
    tokenizer.encode("caf\xE9 noir");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::data);
    EXPECT_NE(std::string_view{error.what()}.find("offset 3"), std::string_view::npos) << error.what();
  }
  EXPECT_THROW(tokenizer.decode(Tokens{259}), Error);
  EXPECT_THROW(tokenizer.decode(Tokens{-1}), Error);
}

TEST_F(SmallTokenizer, RefusesFilesWhoseTokensWouldDiffer) {
  using Json = nlohmann::json;
  struct Case {
    const char* pointer;  // of the changed value
    Json value;
    const char* reason;
  };
  const std::vector<Case> cases{
      {"/normalizer", {{"type", "NFC"}}, "normalizer"},
      {"/truncation", {{"max_length", 5}}, "truncation"},
      {"/post_processor", {{"type", "TemplateProcessing"}}, "post_processor.type is \"TemplateProcessing\""},
      {"/pre_tokenizer", {{"type", "Metaspace"}}, "pre_tokenizer"},
      {"/pre_tokenizer", nullptr, "pre_tokenizer"},
      {"/pre_tokenizer",
       Json::parse(R"({"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {"type": "ByteLevel"}]})"),
       "before the last is \"Digits\""},
      {"/pre_tokenizer",
       Json::parse(R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "ByteLevel"}]})"),
       "before the last is \"ByteLevel\""},
      {"/pre_tokenizer", Json::parse(R"({"type": "Sequence", "pretokenizers": []})"), "pretokenizers is array"},
      {"/model/type", "WordPiece", "model.type is \"WordPiece\""},
      {"/model/dropout", 0.1, "model.dropout is 0.1"},
      {"/model/continuing_subword_prefix", "##", "continuing_subword_prefix is \"##\""},
      {"/model/vocab/a", "one", "the token \"a\" has no number as its id"},
      {"/model/vocab/a", -1, "the token \"a\" has the id -1"},
      {"/model/vocab/a", 1 << 21, "ids are 0 to 2097151"},
      {"/model/vocab/a", 98, "have the id 98"},
      {"/model/vocab", {{"a", 0}}, "needs the token"},
      {"/model/vocab", 3, "it has no vocabulary"},
      {"/model/merges/0", "a  b", "\"a  b\" is not a merge"},
      {"/model/merges/0", "a c", "needs the token \"ac\""},
      {"/model/merges", "a b", "not a list"},
      {"/model/merges/0", 7, "model.merges has an element that is not a pair of tokens"},
      {"/model/merges/0", Json::array({"a"}), "model.merges has an element that is not a pair of tokens"},
      {"/pre_tokenizer",
       Json::parse(R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "a"},
          "behavior": "Isolated"}, {"type": "ByteLevel", "add_prefix_space": true}]})"),
       "pre_tokenizer.add_prefix_space behind another step is true, which ddpxx does not support"},
      {"/added_tokens/0", 5, "added_tokens has an element without a text or without an id"},
      {"/added_tokens/0/content", "", "added_tokens has an element without a text or without an id"},
      {"/added_tokens/0/id", "258", "added_tokens has an element without a text or without an id"},
      {"/added_tokens/0/lstrip", true, "lstrip of the token <|endoftext|>"},
      {"/added_tokens/0/content", "ab", "\"ab\" has another id"},
  };
  for (const auto& [pointer, value, reason] : cases) {
    auto json = small_tokenizer();
    json[Json::json_pointer{pointer}] = value;
    try {
      make(json);
      ADD_FAILURE() << "no error for " << pointer << " = " << value;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::data);
      EXPECT_NE(std::string_view{error.what()}.find(reason), std::string_view::npos) << error.what();
      EXPECT_NE(std::string_view{error.what()}.find(path().string()), std::string_view::npos) << error.what();
    }
  }
  auto json = small_tokenizer();
  json["model"]["vocab"].erase("c");
  EXPECT_THROW(make(json), Error);
  std::ofstream{path()} << std::string(100'000, '[');
  EXPECT_THROW(Tokenizer{path()}, Error);
  EXPECT_THROW(Tokenizer{folder_.path() / "absent.json"}, Error);
  std::filesystem::remove(path());
  EXPECT_THROW(Tokenizer{folder_.path()}, Error);
}

TEST_F(SmallTokenizer, AnErrorInMergesTxtNamesItsLine) {
  std::ofstream{folder_.path() / "vocab.json"} << small_tokenizer()["model"]["vocab"].dump();
  const auto reason = [&](const char* merges) -> std::string {
    std::ofstream{folder_.path() / "merges.txt"} << merges;
    try {
      return "no error: " + std::to_string(Tokenizer{folder_.path()}.size());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::data);
      return error.what();
    }
  };
  const auto begin = "line 3 of " + (folder_.path() / "merges.txt").string() + ": ";
  EXPECT_EQ(reason("#version: 0.2\r\na b\r\n\r\nab ab\r\n"), "no error: 258");
  EXPECT_NE(reason("#version: 0.2\na b\na  b\n").find(begin + "\"a  b\" is not a merge"), std::string::npos);
  EXPECT_NE(reason("#version: 0.2\na b\na c\n").find(begin + "the merge \"a c\" needs the token"), std::string::npos);
}

TEST(SplitPattern, RefusesWhatOnigurumaAndPcre2ReadDifferently) {
  const auto split = [](std::string_view pattern, std::string_view text) {
    std::vector<std::string> pieces;
    detail::SplitPattern{pattern}.split(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
    return pieces;
  };
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(split(R"(\s)", "a\xE1\xA0\x8E b"), (Pieces{"a\xE1\xA0\x8E", " ", "b"}));  // U+180E is not white space
  EXPECT_EQ(split(R"([^\s\p{L}]+)", "a\xE1\xA0\x8E b"), (Pieces{"a", "\xE1\xA0\x8E", " b"}));
  EXPECT_EQ(split(R"(\p{Lu}{2,3}|(?i:'S))", "xABCD's"), (Pieces{"x", "ABC", "D", "'s"}));
  for (const auto* pattern : {R"(\w+)", R"(\bx)", R"(\h)", R"(\p{Greek})", R"(\p{^L})", R"(\pL)", R"(x\1)",  R"(\)",
                              ".",      "^a",     "a$",    "[[:alpha:]]",  "[a&&b]",    "[]a]",   "(?<x>a)", "(?>a)",
                              "(?i)a",  "a{2}+",  "a{2}?", "a{,3}",        "a*",        "(",      "[a"})
    EXPECT_THROW(detail::SplitPattern{pattern}, Error) << pattern;
  for (const auto* verb : {"a(*ACCEPT)b", "(*LIMIT_MATCH=9)a", "a(*SKIP)b"})
    EXPECT_THROW(detail::SplitPattern{verb}, Error) << verb;
}

}  // namespace
}  // namespace ddpxx::tokenizer_test
