// `ddpxx tokenize`, and mingpt with a tokenizer, as a user runs them.
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/file.hpp>

#include "../launch/started_program.hpp"
#include "../temporary_folder.hpp"
#include "small_tokenizer.hpp"

namespace ddpxx::programs_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Words = std::vector<std::string>;
using Tokens = std::vector<std::uint16_t>;

constexpr std::uint16_t kAb = 256, kAbab = 257, kEnd = 258;

class TokenizePrograms : public testing::Test {
 protected:
  Ended tokenize(const Words& settings) const {
    Words words{program_folder() + "/ddpxx", "tokenize", "tokenizer=" + tokenizer_, "to=" + (folder_ / "out").string()};
    words.insert(words.end(), settings.begin(), settings.end());
    return StartedProgram{words}.wait();
  }
  static Ended mingpt(Words words) {
    words.insert(words.begin(), program_folder() + "/mingpt");
    return StartedProgram{words}.wait();
  }
  template <class Id = std::uint16_t>
  std::vector<Id> written(const char* name) const {
    const auto bytes = read_file(folder_ / "out" / name, Errc::data);
    std::vector<Id> tokens(bytes.size() / sizeof(Id));
    std::memcpy(tokens.data(), bytes.data(), bytes.size());
    return tokens;
  }

  TemporaryFolder folder_;
  std::string tokenizer_ = folder_.file("tokenizer.json", small_tokenizer().dump());
};

TEST_F(TokenizePrograms, EachFileEndsWithAToken) {
  folder_.file("texts/a/1.txt", "ababc");
  folder_.file("texts/b.txt", "<|endoftext|>ab");
  const auto run = tokenize({(folder_ / "texts").string(), "val_fraction=0"});
  EXPECT_EQ(run.code, 0) << run.err;
  Tokens expected{kAbab, 'c', kEnd};
  for (const char c : std::string{"<|endoftext|>"}) expected.push_back(static_cast<std::uint16_t>(c));
  expected.insert(expected.end(), {kAb, kEnd});
  EXPECT_EQ(written("train.bin"), expected);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out" / "val.bin"));
  EXPECT_THAT(run.out, AllOf(HasSubstr("train.bin: 18 tokens\n"), HasSubstr("data.vocab_size=259\n")));

  EXPECT_EQ(tokenize({"path=" + (folder_ / "texts/a/*").string(), "val_fraction=0", "end_of_text="}).code, 0);
  EXPECT_EQ(written("train.bin"), (Tokens{kAbab, 'c'}));
}

TEST_F(TokenizePrograms, TheEndOfTheTextIsHeldOut) {
  folder_.file("texts/1.txt", "ab ab");
  folder_.file("texts/2.txt", "xy\xC3\xA9z");  // the cut at 8 of 10 bytes is inside of the third character
  folder_.file("texts/3.txt", "");
  const auto run = tokenize({(folder_ / "texts").string(), "val_fraction=0.2"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(written("train.bin"), (Tokens{kAb, ' ', kAb, kEnd, 'x', 'y'}));
  EXPECT_EQ(written("val.bin"), (Tokens{0xC3, 0xA9, 'z', kEnd, kEnd}));

  const auto stale = tokenize({(folder_ / "texts").string(), "val_fraction=0"});
  EXPECT_EQ(stale.code, 2);
  EXPECT_THAT(stale.err, HasSubstr("val.bin is from an earlier call"));
}

TEST_F(TokenizePrograms, MakeTheFoldersThatTheUserNames) {
  const auto text = folder_.file("a.txt", "abab");
  const auto expect_tokens_in = [&](const std::filesystem::path& named, const std::filesystem::path& real) {
    const auto run = tokenize({text, "val_fraction=0", "to=" + named.string()});
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(std::filesystem::file_size(real / "train.bin"), 4U);
  };
  expect_tokens_in(folder_ / "data/of/books", folder_ / "data/of/books");
  std::filesystem::create_directory(folder_ / "disk");
  std::filesystem::create_directory_symlink("disk", folder_ / "link");
  expect_tokens_in(folder_ / "link", folder_ / "disk");

  const auto file = tokenize({text, "to=" + text + "/tokens"});
  EXPECT_EQ(file.code, 4);
  EXPECT_THAT(file.err, HasSubstr("cannot make the folder " + text + "/tokens: Not a directory"));
}

TEST_F(TokenizePrograms, MayWriteBesideTheText) {
  const auto text = folder_.file("data/input.txt", "ab ab ab ab");
  for (int call = 0; call < 2; ++call) {
    const auto run = tokenize({text, "to=" + (folder_ / "data").string()});
    EXPECT_EQ(run.code, 0) << run.err;
  }
}

TEST_F(TokenizePrograms, ReplaceNoFileIfOneOfTheTwoCannotBe) {
  const auto text = folder_.file("a.txt", "ab ab ab ab");
  ASSERT_EQ(tokenize({text}).code, 0);
  const auto val = written("val.bin");
  std::filesystem::remove(folder_ / "out/train.bin");
  std::filesystem::create_directory(folder_ / "out/train.bin");
  const auto run = tokenize({folder_.file("b.txt", "xyxyxyxy"), "val_fraction=0.5"});
  EXPECT_EQ(run.code, 4);
  EXPECT_THAT(run.err, HasSubstr("out/train.bin"));
  EXPECT_EQ(written("val.bin"), val);
  for (const auto& entry : std::filesystem::directory_iterator{folder_ / "out"})
    EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
}

TEST_F(TokenizePrograms, RefuseWhatCannotBeTokenized) {
  const auto text = folder_.file("a.txt", "ab"), latin = folder_.file("latin.txt", "caf\xE9 noir");
  const auto expect = [&](const Words& settings, int code, const std::string& reason) {
    const auto run = tokenize(settings);
    EXPECT_EQ(run.code, code) << run.err;
    EXPECT_THAT(run.err, HasSubstr(reason));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out" / "train.bin")) << reason;
  };
  expect({}, 2, "no text to tokenize");
  expect({text, "tokenizer="}, 2, "name the tokenizer");
  expect({text, "val_fraction=1"}, 2, "val_fraction");
  expect({text, "end_of_text=</s>"}, 2, "no added token \"</s>\": name its own");
  expect({text, "tokenizer=" + text}, 3, "the tokenizer " + text + " cannot be used: this is not a JSON object");
  expect({latin}, 3, "latin.txt is not text: the byte at offset 3 begins no UTF-8 character");
  expect({"s3://bucket/text"}, 2, "path: ddpxx tokenize reads and writes files of this machine");
  expect({text, "tokenizer=s3://bucket/gpt2"}, 2,
         "tokenizer=s3://bucket/gpt2\": ddpxx tokenize reads and writes files");
  expect({text, "to=s3://bucket/tokens"}, 2, "to=s3://bucket/tokens\": ddpxx tokenize reads and writes files");
  // All files in a folder of texts are read: another call would read the tokens as text.
  const auto texts = (folder_ / "texts").string();
  folder_.file("texts/tokenizer.json", small_tokenizer().dump());
  expect({texts, "to=" + texts + "/new"}, 2, "/new\": lies in path=" + texts + ", all files of which are read as text");
  expect({texts, "tokenizer=" + texts}, 2, "lies in path=" + texts);
  const auto tokens = folder_.file("tokens/train.bin", "ab");
  expect({(folder_ / "tok*s").string(), "to=" + (folder_ / "tokens").string()}, 2, tokens + " is among the texts");
  expect({text, "val_fraction=0.99"}, 3, "train.bin would have no tokens: the texts have 2 bytes");
  expect({text, "val_fraction=1e-17"}, 3, "val.bin would have no tokens");
  // PCRE2 gives up on a pattern that can match a text in too many ways.
  auto slow = small_tokenizer();
  slow["pre_tokenizer"] = nlohmann::json::parse(R"({"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": "(?:a+)+[bc]"}, "behavior": "Isolated", "invert": false},
    {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})");
  const auto many = folder_.file("many.txt", std::string(60, 'a'));
  expect({many, "tokenizer=" + folder_.file("slow.json", slow.dump())}, 3, "text=" + many);
}

TEST_F(TokenizePrograms, WriteTheTokensOfALargeTokenizerAs32BitNumbers) {
  auto large = small_tokenizer();
  large["model"]["vocab"]["abc"] = 65536;
  large["model"]["merges"].push_back("ab c");
  const auto run = tokenize(
      {folder_.file("a.txt", "abc ab"), "val_fraction=0", "tokenizer=" + folder_.file("large.json", large.dump())});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(written<std::uint32_t>("train.bin"), (std::vector<std::uint32_t>{65536, ' ', kAb, kEnd}));
  EXPECT_THAT(run.out, AllOf(HasSubstr("train.bin: 4 tokens\n"), HasSubstr("data.vocab_size=65537\n")));
}

TEST_F(TokenizePrograms, MingptTrainsOnTheTokensAndGeneratesText) {
  std::string text;
  for (int i = 0; i < 600; ++i) text += "abab ab caf\xC3\xA9 " + std::to_string(i % 7) + '\n';
  folder_.file("text.txt", text);
  ASSERT_EQ(tokenize({(folder_ / "text.txt").string()}).code, 0);
  const auto out = (folder_ / "out").string(), place = (folder_ / "run").string();
  const Words data{"data.format=tokens",
                   "data.path=" + out + "/train.bin",
                   "data.val_path=" + out + "/val.bin",
                   "data.tokenizer=" + tokenizer_,
                   "data.block_size=16",
                   "model.n_layer=1",
                   "model.n_head=2",
                   "model.n_embd=16",
                   "training.max_steps=3",
                   "training.eval_every=3",
                   "training.save_dir=" + place,
                   "generate.tokens=4"};
  auto train = data;
  train.insert(train.end(), {"data.vocab_size=320", "generate.prompt=abab <|endoftext|>caf\xC3\xA9"});
  const auto trained = mingpt(train);
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.out, AllOf(HasSubstr("vocab_size is 320."), HasSubstr("val_loss"),
                                 HasSubstr("--- generated text ---\nabab <|endoftext|>caf\xC3\xA9")));

  const Words generate{"generate", "--from", place};
  auto prompted = generate;
  prompted.insert(prompted.end(), {"generate.prompt=caf\xC3\xA9 ab", "generate.tokens=3"});
  const auto generated = mingpt(prompted);
  EXPECT_EQ(generated.code, 0) << generated.err;
  EXPECT_THAT(generated.out, testing::StartsWith("caf\xC3\xA9 ab"));
  const auto unprompted = mingpt({"generate", "--from", place, "generate.prompt="});
  EXPECT_EQ(unprompted.code, 0) << unprompted.err;
  EXPECT_THAT(unprompted.out, testing::StartsWith("<|endoftext|>"));
  // Without the tokenizer, prompt and text are numbers.
  auto numbers = generate;
  numbers.insert(numbers.end(), {"data.tokenizer=", "generate.prompt=256 257", "generate.tokens=1"});
  EXPECT_THAT(mingpt(numbers).out, testing::ContainsRegex("^256 257 [0-9]+\n"));

  const auto gone = mingpt({"generate", "--from", place, "data.tokenizer=/nowhere/gpt2"});
  EXPECT_EQ(gone.code, 3);
  EXPECT_THAT(gone.err, HasSubstr("data.tokenizer=/nowhere/gpt2: cannot open"));

  auto few = data;
  few.push_back("data.vocab_size=258");
  const auto beyond = mingpt(few);
  EXPECT_EQ(beyond.code, 3);
  EXPECT_THAT(beyond.err, HasSubstr("has 259 tokens, and data.vocab_size=258 is less"));
  const auto characters = mingpt({"data.path=" + (folder_ / "text.txt").string(), "data.tokenizer=" + tokenizer_});
  EXPECT_EQ(characters.code, 2);
  EXPECT_THAT(characters.err, HasSubstr("make tokens of it with `ddpxx tokenize`"));
}

}  // namespace
}  // namespace ddpxx::programs_test
