// Hostile and valid .pt files. tests/parity/pt_files_test.cpp tests the files that Python itself writes and reads.
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/wait.h>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/interop/pt_file.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx::pickle_test {
namespace {

using testing::HasSubstr;

/// A storage of zeros, or an error if too many elements are asked for.
at::Tensor zeros(const PickledStorage& storage) {
  if (storage.num_elements > 1000) throw Error{Errc::storage, "too much is asked for"};
  return at::zeros({storage.num_elements}, storage.dtype);
}

/// The value as Python source; a tensor by its type and sizes.
std::string text_of(const PickleValue& value) {
  std::ostringstream text;
  const auto list = [&](const auto& items) {
    for (const auto& item : items) text << text_of(item) << ", ";
  };
  value.visit([&]<class T>(const T& content) {
    if constexpr (std::is_same_v<T, std::monostate>) {
      text << "None";
    } else if constexpr (std::is_same_v<T, bool>) {
      text << (content ? "True" : "False");
    } else if constexpr (std::is_same_v<T, std::string>) {
      text << '\'' << content << '\'';
    } else if constexpr (std::is_same_v<T, PickleList>) {
      text << '[', list(content), text << ']';
    } else if constexpr (std::is_same_v<T, PickleTuple>) {
      text << '(', list(content.items), text << ')';
    } else if constexpr (std::is_same_v<T, PickleDict>) {
      text << '{';
      for (const auto& [key, item] : content.entries) text << text_of(key) << ": " << text_of(item) << ", ";
      text << '}';
    } else if constexpr (std::is_same_v<T, at::Tensor>) {
      text << content.scalar_type() << content.sizes();
    } else {
      text << content;
    }
  });
  return text.str();
}

/// A pickle made of these opcodes, a header and a stop opcode.
std::string pickle(std::string_view codes) { return "\x80\x02" + std::string{codes} + "."; }

std::string read(std::string_view codes) { return text_of(parse_pickle(pickle(codes), zeros)); }

/// The error about a pickle.
std::string refusal_of_whole(std::string_view whole) {
  try {
    parse_pickle(whole, zeros);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::storage);
    return error.what();
  }
  return "it was accepted";
}
std::string refusal(std::string_view codes) { return refusal_of_whole(pickle(codes)); }

std::string text(std::string_view text) {
  return std::string{'X', static_cast<char>(text.size()), '\0', '\0', '\0'} + std::string{text};
}
std::string number(std::int64_t number) { return "\x8a\x08" + std::string{reinterpret_cast<const char*>(&number), 8}; }
std::string tuple(const std::vector<std::int64_t>& numbers) {
  std::string codes = "(";
  for (const auto one : numbers) codes += number(one);
  return codes + 't';
}

const std::string kNoHooks = "ccollections\nOrderedDict\n)R";

std::string storage(std::int64_t count, std::string_view type = "FloatStorage", std::string_view key = "0") {
  return '(' + text("storage") + "ctorch\n" + std::string{type} + '\n' + text(key) + text("cuda:0") + number(count) +
         "tQ";
}
std::string tensor(const std::string& storage, std::int64_t offset, const std::vector<std::int64_t>& sizes,
                   const std::vector<std::int64_t>& strides) {
  return "ctorch._utils\n_rebuild_tensor_v2\n(" + storage + number(offset) + tuple(sizes) + tuple(strides) + "\x89" +
         kNoHooks + "tR";
}

TEST(Pickle, ComesBackAsItWasWritten) {
  const auto x = at::arange(6, at::kFloat);
  PickleDict nested;
  nested.add("text", "\xC3\xA9\xE2\x82\xAC").add(std::int64_t{-7}, PickleTuple{{1, 2.5, PickleValue{}}});
  PickleDict dict;
  dict.add("small", 255).add("large", std::int64_t{1} << 40).add("least", std::numeric_limits<std::int64_t>::min());
  dict.add("yes", true).add("no", false).add("list", PickleList{1, "a", PickleList{}}).add("dict", nested);
  dict.add("empty", PickleDict{}).add("float", -1e300).add("tensor", x.view({2, 3})).add("scalar", x[1]);
  const auto back = unpack_pt(pack_pt(dict), "memory");
  EXPECT_EQ(text_of(back), text_of(dict));
  EXPECT_TRUE(at::equal(back.get<PickleDict>("it").find("tensor")->get<at::Tensor>("tensor"), x.view({2, 3})));
}

TEST(Pickle, KeepsStoragesSharedAndViewsAsTheyAre) {
  const auto x = at::arange(12, at::kFloat);
  PickleDict dict;
  dict.add("whole", x)
      .add("transposed", x.view({3, 4}).t())
      .add("middle", x.slice(0, 2, 9, 3))
      .add("empty", x.slice(0, 3, 3));
  const auto back = unpack_pt(pack_pt(dict), "memory");
  const auto get = [&](const char* name) { return back.get<PickleDict>("it").find(name)->get<at::Tensor>(name); };
  EXPECT_EQ(get("transposed").strides(), x.view({3, 4}).t().strides());
  get("whole")[2].fill_(100);
  EXPECT_EQ(get("middle")[0].item<float>(), 100);
  EXPECT_EQ(get("transposed")[2][0].item<float>(), 100);
  EXPECT_EQ(get("empty").numel(), 0);
  const auto much = at::zeros({10'000});
  EXPECT_LT(pack_pt(PickleList{much, much.view({100, 100}), much[0]}).size(), 45'000U)
      << "the shared elements were stored more than once";
}

TEST(Pickle, PacksWithLittleUnusedMemory) {
  PickleList tensors;
  for (int i = 1; i <= 20; ++i) tensors.emplace_back(at::zeros({i * 7'001}));
  const auto bytes = pack_pt(tensors);
  EXPECT_LT(bytes.capacity(), bytes.size() + 40'000);
}

TEST(Pickle, EveryTypeComesBackBitForBit) {
  const auto plain = at::arange(-6, 6, at::kFloat).div(7);
  for (const auto& [name, dtype] : detail::kPickledTypes) {
    const auto x = plain.mul(100).to(dtype);
    const auto back = unpack_pt(pack_pt(x), "memory");
    EXPECT_EQ(back.get<at::Tensor>("it").scalar_type(), dtype);
    EXPECT_TRUE(at::equal(back.get<at::Tensor>("it"), x)) << name;
  }
}

TEST(Pickle, TakesWhatPythonWritesAround) {
  using namespace std::string_literals;
  const auto one = storage(4);
  EXPECT_EQ(read(kNoHooks + "q\0(X\1\0\0\0aK\1u}X\x09\0\0\0_metadataNsbh\0\x86"s), "({'a': 1, }, {'a': 1, }, )");
  EXPECT_EQ(read("ctorch\nSize\nK\2K\3\x86\x85R"), "(2, 3, )");
  EXPECT_EQ(read("ccollections\nCounter\n}K\7K\1s\x85R"), "{7: 1, }");
  EXPECT_EQ(read("ctorch._utils\n_rebuild_parameter\n" + tensor(one, 0, {2, 2}, {2, 1}) + "\x88" + kNoHooks + "\x87R"),
            "Float[2, 2]");
  EXPECT_EQ(read(tensor(one, 4, {0, 7}, {7, 1})), "Float[0, 7]");
  EXPECT_EQ(read(tensor(one, 0, {1, 2, 2}, {0, 1, 1})), "Float[1, 2, 2]");
  EXPECT_EQ(read("(\x8a\0\x8a\1\xff\x8a\2\0\x80J\xff\xff\xff\xff"
                 "G\x3f\xf8\0\0\0\0\0\0t"s),
            "(0, -1, -32768, -1, 1.5, )");
}

TEST(Pickle, RefusesByName) {
  EXPECT_THAT(refusal("cos\nsystem\n" + text("true") + "\x85R"), HasSubstr(R"(names "os" "system")"));
  EXPECT_THAT(refusal("cbuiltins\neval\n"), HasSubstr(R"(names "builtins" "eval")"));
  EXPECT_THAT(refusal("c__builtin__\nset\n]\x85R"), HasSubstr(R"("__builtin__" "set")"));
  EXPECT_THAT(refusal("ctorch\nComplexFloatStorage\n"), HasSubstr("ComplexFloatStorage"));
  EXPECT_THAT(refusal("ctorch._utils\n_rebuild_tensor_v3\n"), HasSubstr("_rebuild_tensor_v3"));
  EXPECT_THAT(refusal("c\x1b[2J\nx\n"), HasSubstr(R"("\u001b[2J")"));
  EXPECT_LT(refusal("cx\n" + std::string(100'000, 'y') + "\n").size(), 500U);
}

TEST(Pickle, RefusesWhatIsOutOfPlaceAndSaysWhat) {
  using namespace std::string_literals;
  struct Case {
    std::string codes, says;
  };
  const auto big = std::int64_t{1} << 62;
  const std::vector<Case> cases{
      {"", "without a value"},
      {"NN", "left over"},
      {"(N", "left over"},
      {"N.", "left over"},
      {"(0", "the code \"0\""},
      {"\x95", "the code"},
      {"]N\x85N", "left over"},
      {"a", "empty stack"},
      {"]a", "empty stack"},
      {"N(a", "empty stack"},
      {"t", "not opened"},
      {"NNa", "where a list belongs"},
      {"}Na", "where a list belongs"},
      {"]NNs", "where a dict belongs"},
      {"}(Nu", "key without a value"},
      {"}NNs", "neither a text nor an integer"},
      {"}" + text("a") + "Ns" + text("a") + "Ns", "a key twice: \"a\""},
      {"}K\1NsK\1Ns", "a key twice: 1"},
      {"X\xff\xff\xff\xff", "ends too early"},
      {"X\1\0\0\0\xff"s, "not UTF-8"},
      {"\x8a\x09" + std::string(9, '\1'), "64 bits"},
      {"Nr\xff\xff\xff\x7f", "with gaps"},
      {"Nq\1", "with gaps"},
      {"h\0"s, "not there"},
      {"NNR", "a tuple of arguments"},
      {"N)R", "the name of what to build"},
      {"ccollections\nOrderedDict\nK\1\x85R", "do not belong"},
      {"ccollections\nOrderedDict\n", "the name of a type"},
      {"ctorch\nFloatStorage\n)R", "the name of what to build"},
      {"}}b", "gives attributes to a dict"},
      {"]}b", "where an OrderedDict belongs"},
      {kNoHooks + "Nb", "a dict of attributes"},
      {"NQ", "the name of a storage"},
      {"(" + text("module") + "ctorch\nFloatStorage\n" + text("0") + text("cpu") + "K\1tQ", "not a storage"},
      {text("storage") + "\x85Q", "not a storage"},
      {storage(4), "a storage, in the place of a value"},
      {storage(-1), "negative length"},
      {storage(big), "too much is asked for"},
      {storage(4) + storage(5), "two different storages"},
      {storage(4) + storage(4, "IntStorage"), "two different storages"},
      {tensor(storage(4), 0, {5}, {1}), "beyond its storage"},
      {tensor(storage(4), 1, {4}, {1}), "beyond its storage"},
      {tensor(storage(4), -1, {1}, {1}), "beyond its storage"},
      {tensor(storage(4), 4, {}, {}), "beyond its storage"},
      {tensor(storage(4), 5, {0}, {1}), "beyond its storage"},
      {tensor(storage(4), 0, {-1}, {1}), "beyond its storage"},
      {tensor(storage(4), 0, {2}, {-1}), "beyond its storage"},
      {tensor(storage(4), 0, {2}, {}), "beyond its storage"},
      {tensor(storage(4), 0, {1000}, {0}), "more than is in it"},
      {tensor(storage(4), 0, {big, 4}, {0, 0}), "beyond its storage"},
      {tensor(storage(4), 0, {3}, {big}), "beyond its storage"},
      {tensor(storage(4), std::numeric_limits<std::int64_t>::max(), {2}, {1}), "beyond its storage"},
      {tensor(storage(1), 0, std::vector<std::int64_t>(65, 1), std::vector<std::int64_t>(65, 1)), "64 dimensions"},
      {"]q\0h\0a"s, "holds itself"},
      {"]q\0(h\0h\0h\0e"s, "holds itself"},
      {"}q\0K\1h\0s"s, "holds itself"},
      {"N" + std::string(1000, '\x85'), "deeper than 100"},
      {std::string(1000, ']') + std::string(999, 'a'), "deeper than 100"},
  };
  for (const auto& [codes, says] : cases) EXPECT_THAT(refusal(codes), HasSubstr(says)) << codes;
  EXPECT_THAT(refusal_of_whole(""), HasSubstr("ends too early"));
  EXPECT_THAT(refusal_of_whole("rubbish"), HasSubstr("is not a pickle"));
  EXPECT_THAT(refusal_of_whole("\x80\x04N."), HasSubstr("protocol 4"));
}

TEST(Pickle, RefusesToExpandASmallFileToAHugeValue) {
  using namespace std::string_literals;
  // Each of 60 lists holds the previous list twice.
  std::string codes = "]q\0"s;
  for (char i = 1; i < 60; ++i) codes += "](h"s + static_cast<char>(i - 1) + "h" + static_cast<char>(i - 1) + "eq" + i;
  EXPECT_THAT(refusal("(" + codes + "t"), HasSubstr("repeats its objects"));
  // A long text that the pickle uses a hundred thousand times.
  std::string texts = "(X\0\0\x10\0"s + std::string(1 << 20, 'x') + "q\0"s;
  for (int i = 0; i < 100'000; ++i) texts += "h\0"s;
  EXPECT_THAT(refusal(texts + 't'), HasSubstr("repeats its objects"));
  // A list that holds itself a million times: each level of nesting would need as much memory again.
  std::string itself = "]q\0("s;
  for (int i = 0; i < 1'000'000; ++i) itself += "h\0"s;
  EXPECT_THAT(refusal(itself + 'e'), HasSubstr("repeats its objects"));
}

TEST(Pickle, EveryBeginningOfAPickleIsRefused) {
  PickleDict dict;
  dict.add("a", PickleList{1, 2.5, std::int64_t{1} << 40, at::zeros({2, 3})}).add(7, PickleTuple{{true, {}}});
  const auto sound = print_pickle(dict, [](const auto&) { return "0"; });
  parse_pickle(sound, zeros);
  for (std::size_t length = 0; length < sound.size(); ++length)
    EXPECT_NE(refusal_of_whole(std::string_view{sound}.substr(0, length)), "it was accepted") << length;
}

TEST(Pickle, RefusesToWriteWhatItWouldNotRead) {
  const TemporaryFolder folder;
  write_pt(folder / "file", 1);
  PickleValue deep;
  for (int i = 0; i < 200; ++i) deep = PickleList{deep};
  const std::vector<std::pair<PickleValue, std::string>> cases{
      {at::Tensor{}, "undefined"},
      {at::zeros({2}, at::kComplexFloat), "ComplexFloat"},
      {at::zeros({2, 2}).to_sparse(), "dense"},
      {at::empty({2}, at::TensorOptions{}.device(at::kMeta)), "dense"},
      {"\xff", "UTF-8"},
      {PickleDict{}.add(1.5, 1), "a float"},
      {deep, "deeper"}};
  for (const auto& [value, says] : cases) {
    try {
      write_pt(folder / "file", value);
      ADD_FAILURE() << says;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(says));
      EXPECT_THAT(error.what(), HasSubstr((folder / "file").string()));
    }
  }
  EXPECT_EQ(read_pt(folder / "file").get<std::int64_t>("it"), 1);
}

// --- the archive ---

/// The error about a file; empty if the file is accepted.
std::string refusal_of_file(std::string bytes) {
  try {
    unpack_pt(std::move(bytes), "NAME");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::storage);
    EXPECT_TRUE(std::string_view{error.what()}.starts_with("NAME is damaged, or no .pt file")) << error.what();
    return error.what();
  }
  return "";
}

std::string small_file() {
  PickleDict dict;
  dict.add("weight", at::arange(6, at::kFloat).view({2, 3})).add("mask", at::ones({3}, at::kBool)).add("epoch", 3);
  return pack_pt(dict);
}

TEST(PtFile, EveryBeginningIsRefused) {
  const auto sound = small_file();
  ASSERT_EQ(refusal_of_file(sound), "");
  for (std::size_t length = 0; length < sound.size(); ++length)
    ASSERT_NE(refusal_of_file(sound.substr(0, length)), "") << length;
}

TEST(PtFile, AFlippedBitIsRefusedOrChangesNothing) {
  const auto sound = small_file();
  const auto meant = pack_pt(unpack_pt(sound, "NAME"));
  std::size_t refused = 0;
  for (std::size_t place = 0; place < sound.size(); ++place)
    for (int bit = 0; bit < 8; ++bit) {
      auto damaged = sound;
      damaged[place] = static_cast<char>(damaged[place] ^ (1 << bit));
      if (!refusal_of_file(damaged).empty())
        ++refused;
      else
        ASSERT_EQ(pack_pt(unpack_pt(damaged, "NAME")), meant) << "bit " << bit << " of byte " << place;
    }
  EXPECT_GT(refused, 8 * 500U);
}

TEST(PtFile, RefusesWhatIsNoPtFileAndSaysSo) {
  EXPECT_THAT(refusal_of_file(""), HasSubstr("not a zip archive"));
  EXPECT_THAT(refusal_of_file(std::string(100'000, 'x')), HasSubstr("not a zip archive"));
  EXPECT_THAT(refusal_of_file("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M"),
              HasSubstr("from before PyTorch 1.6"));
  EXPECT_THAT(refusal_of_file(std::string{"PK\5\6", 4} + std::string(18, '\0')), HasSubstr("lacks the record"));
  const auto refused = [](std::string_view what, std::string_view by) {
    auto file = small_file();
    const auto place = file.find(what);
    return refusal_of_file(file.replace(place, what.size(), by));
  };
  EXPECT_THAT(refused("weight", "heavy!"), HasSubstr("the checksum of \"archive/data.pkl\" is wrong"));
  EXPECT_THAT(refused("little", "middle"), HasSubstr("the checksum"));
  const TemporaryFolder folder;
  torch::jit::Module("m").save(folder / "script");
  EXPECT_THAT(refusal_of_file(read_file(folder / "script", Errc::storage)), HasSubstr("TorchScript"));
}

TEST(PtFile, ALackOfMemoryIsNoDamage) {
  auto bytes = pack_pt(std::string(4U << 20U, 'x'));
  const pid_t pid = ::fork();
  if (pid == 0) {
    auto* const for_the_error = ::malloc(256U << 10U);
    const rlimit nothing_more{.rlim_cur = 1, .rlim_max = 1};
    ::setrlimit(RLIMIT_AS, &nothing_more);
    void* volatile taken = nullptr;
    do taken = ::malloc(1U << 20U);
    while (taken != nullptr);
    ::free(for_the_error);
    try {
      unpack_pt(std::move(bytes), "model.pt");
    } catch (const Error& error) {
      const std::string_view text = error.what();
      const bool names_the_file = text.find("model.pt") != text.npos;
      std::_Exit(error.code() == Errc::memory && names_the_file && text.find("damaged") == text.npos ? 7 : 4);
    }
    std::_Exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
}

TEST(PtFile, AFullDiskIsAnErrorAndTheOldFileStays) {
  const TemporaryFolder folder;
  write_pt(folder / "file", at::ones({4}));
  const pid_t pid = ::fork();
  if (pid == 0) {
    const rlimit limit{.rlim_cur = 6000, .rlim_max = 6000};
    ::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_pt(folder / "file", PickleList{at::ones({1000}), at::ones({1001}), at::ones({1002})});
    } catch (const Error& error) {
      std::_Exit(std::string_view{error.what()}.find("File too large") != std::string_view::npos ? 4 : 5);
    }
    std::_Exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status)) << "a signal from inside LibTorch ended the program";
  EXPECT_EQ(WEXITSTATUS(status), 4);
  EXPECT_EQ(read_pt(folder / "file").get<at::Tensor>("it").numel(), 4);
}

}  // namespace
}  // namespace ddpxx::pickle_test
