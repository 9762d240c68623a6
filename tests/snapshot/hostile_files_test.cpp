// Files made by an attacker: each is refused with an error or read correctly. Nothing crashes, no code is run, and the
// memory in use stays in proportion to the file. The tests of each reader cover accidental damage.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>
#include <random>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/crc32c.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/interop/pt_file.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/safetensors.hpp>
#include <ddpxx/snapshot/snapshot.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx::hostile_files_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

/// The text of the error, or "taken" without an error. Any other exception fails the test.
std::string refusal(const std::function<void()>& read) {
  try {
    read();
    return "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::storage) << error.what();
    return error.what();
  }
}

/// Calls refusal(read) in a process that may use `bytes` more memory than it has.
std::string refusal_within(std::size_t bytes, const std::function<void()>& read) {
  const TemporaryFolder folder;
  const auto child = ::fork();
  if (child == 0) {
    std::size_t pages = 0;
    std::ifstream{"/proc/self/statm"} >> pages;
    const auto most = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + bytes;
    const rlimit limit{most, most};
    ::setrlimit(RLIMIT_AS, &limit);
    try {
      folder.file("said", refusal(read));
    } catch (const std::bad_alloc&) {
      ::_exit(7);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? read_file(folder / "said", Errc::data) : "out of memory";
}

/// Random edits of a text: most change a byte, some cut out or repeat a run of bytes.
class Edits {
 public:
  explicit Edits(std::uint32_t seed) : random_{seed} {}

  std::string operator()(std::string text, std::size_t from = 0) {
    for (auto count = 1 + below(3); count > 0; --count) {
      const auto at = from + below(text.size() - from);
      const auto kind = below(8);
      if (kind == 0)
        text.insert(at, text.substr(at, below(20)));
      else if (kind == 1)
        text.erase(at, below(20));
      else if (kind < 5)
        text[at] = "0123456789-.eE\"[]{},:\\(tNX"[below(26)];
      else
        text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
    }
    return text;
  }
  std::size_t below(std::size_t end) { return random_() % end; }

 private:
  std::mt19937 random_;
};

// --- manifests ---

std::string with_sum(const std::string& body) {
  return body + std::string{detail::kManifestSum} + sums_text({crc32c(bytes_of(body))}) +
         std::string{detail::kManifestEnd};
}

class HostileSnapshot : public testing::Test {
 protected:
  HostileSnapshot() {
    save_snapshot(place_.path(), {.run = {.step = 3,
                                          .settings = {{"training.seed", "5"}},
                                          .metrics = {{"loss", 0.5}},
                                          .parameters = {{"weight", true}}},
                                  .tensors = {{"model.weight", at::arange(500, at::kFloat)},
                                              {"model.mask", at::ones({3}, at::kBool)}}});
    const auto text = read_file(manifest_, Errc::storage);
    body_ = text.substr(0, text.rfind(detail::kManifestSum));
  }

  /// Expects that an accepted snapshot has no more values than its files have bytes for.
  std::string loading() {
    return refusal([&] {
      std::uintmax_t bytes = 0, stored = 0;
      const auto snapshot = load_snapshot(place_.path()).value();
      for (const auto& [name, tensor] : snapshot.tensors) bytes += tensor.nbytes();
      for (const auto& entry : std::filesystem::directory_iterator{manifest_.parent_path()})
        if (entry.path() != manifest_) stored += entry.file_size();
      EXPECT_LE(bytes, stored);
    });
  }
  std::string loading(const std::string& body) {
    place_.file("step-00000003/manifest.json", with_sum(body));
    return loading();
  }
  std::string replaced(const std::string& what, const std::string& by) {
    const auto at = body_.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return std::string{body_}.replace(at, what.size(), by);
  }

  TemporaryFolder place_;
  std::filesystem::path manifest_ = place_ / "step-00000003/manifest.json";
  std::string body_;  ///< A valid manifest without its checksum.
};

TEST_F(HostileSnapshot, WithPlacesInTheDataThatNoRunReachesIsRefused) {
  struct Case {
    std::string what, by, says;
  };
  for (const auto& [what, by, says] : std::vector<Case>{
           {R"("position":0)", R"("position":4611686018427387904)",
            "position=4611686018427387904 is more than any run"},
           {R"("epoch":0)", R"("epoch":1000000001)", "epoch=1000000001 is more than any run"},
           {R"("step":3)", R"("step":9223372036854775807)", "step=9223372036854775807 is more than any run"},
           {R"("tokens":0)", R"("tokens":9223372036854775807)", "tokens=9223372036854775807 is more than any run"},
           {R"("step":3)", R"("step":4)", "it is of step 4"},
           {R"("step":3)", R"("step":3e0)", "where a count belongs"},
           {R"("step":3)", R"("step":3,"step":4)", "it is of step 4"},
           {R"("loss":0.5)", R"("loss":NaN)", "it is not the manifest"},
           {R"("loss":0.5)", R"("loss":1e999)", "it is not the manifest"},
           {R"("loss":0.5)", R"("loss":null)", "it is not the manifest"}})
    EXPECT_THAT(loading(replaced(what, by)), HasSubstr(says)) << by;
  EXPECT_EQ(loading(body_), "taken");
}

TEST_F(HostileSnapshot, CutAnywhereIsRefusedThoughItsChecksumIsRight) {
  const auto optional = body_.find(",\"parameters\"");  // a manifest of an older version lacks this key
  for (std::size_t size = 0; size < body_.size(); ++size) {
    if (size == optional) continue;
    ASSERT_NE(refusal([&] { parse_manifest(with_sum(body_.substr(0, size))); }), "taken") << size;
  }
}

TEST_F(HostileSnapshot, EditedAnywhereIsRefusedOrReadThoughItsChecksumIsRight) {
  Edits edit{1};
  int refused = 0;
  for (int i = 0; i < 400; ++i) refused += loading(edit(body_)) != "taken" ? 1 : 0;
  EXPECT_GT(refused, 200);
  EXPECT_LT(refused, 400);
}

TEST_F(HostileSnapshot, ThatNestsDeeplyTakesNoMemory) {
  const std::string deep(20'000'000, '[');
  for (const char* place : {R"("format")", R"("step")", R"("settings")", R"("new")"}) {
    const auto text = with_sum(std::string{"{"} + place + ":" + deep);
    EXPECT_THAT(refusal_within(std::size_t{64} << 20U, [&] { parse_manifest(text); }), HasSubstr("nests deeper than"))
        << place;
    EXPECT_EQ(refusal_within(std::size_t{64} << 20U, [&] { is_of_another_version(text); }), "taken") << place;
  }
}

TEST_F(HostileSnapshot, OfSpecialFilesIsRefusedWithoutWaiting) {
  const auto shard = [&] {
    for (const auto& entry : std::filesystem::directory_iterator{manifest_.parent_path()})
      if (entry.path() != manifest_) return entry.path();
    return std::filesystem::path{};
  }();
  const auto loading_any = [&] {
    return refusal([&] {
      if (!load_snapshot(place_.path())) throw Error{Errc::storage, "there is no snapshot"};
    });
  };
  for (const auto& file : {manifest_, shard}) {
    const auto away = place_ / "away";
    std::filesystem::rename(file, away);
    for (const char* target : {"/dev/zero", "/dev/null", "/etc/passwd", "nowhere", "."}) {
      std::filesystem::create_symlink(target, file);
      EXPECT_NE(loading_any(), "taken") << file << " to " << target;
      std::filesystem::remove(file);
    }
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    EXPECT_NE(loading_any(), "taken") << file;
    std::filesystem::remove(file);
    std::filesystem::rename(away, file);
  }
  EXPECT_EQ(loading(), "taken");
}

// --- safetensors ---

TEST(HostileSafetensors, EditedAnywhereAreRefusedOrRead) {
  const TemporaryFolder folder;
  std::string json =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"BOOL","shape":[],"data_offsets":[24,25]},"c":{"dtype":"I64","shape":[0],"data_offsets":[25,25]}})";
  Edits edit{2};
  int refused = 0;
  for (int i = 0; i < 600; ++i) {
    auto header = edit(json);
    std::uint64_t size = header.size();
    if (edit.below(10) == 0) size ^= std::uint64_t{1} << edit.below(64);
    std::string front(sizeof(size), '\0');
    std::memcpy(front.data(), &size, sizeof(size));
    const auto path = folder.file("file", front + header + std::string(25, '\1'));
    const auto said = refusal([&] {
      std::size_t bytes = 0;
      const auto content = read_safetensors(path);
      for (const auto& [name, tensor] : content.tensors) {
        bytes += tensor.nbytes();
        ASSERT_GE(tensor.to(at::kDouble).sum().item<double>(), -1e300) << name;
      }
      EXPECT_LE(bytes, 25U) << header;
    });
    refused += said == "taken" ? 0 : 1;
  }
  EXPECT_GT(refused, 300);
  EXPECT_LT(refused, 600);
}

// --- .pt files ---

/// A record of an archive made by an attacker; `size` and `place` are the numbers that the archive states.
struct Record {
  std::string name;
  std::string content;
  std::uint16_t method = 0;
  std::uint16_t flags = 0;
  std::uint32_t size = 0xDEADBEEF;  ///< By default the true size.
  std::int64_t place = -1;          ///< If negative, the true position.
  /// What the archive states in 64 bits instead, as large archives do: the size, the packed size and the position.
  std::vector<std::uint64_t> wide = {};
};

template <class T>
std::string little(T number) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &number, sizeof(T));
  return bytes;
}

std::string archive(const std::vector<Record>& records) {
  std::string text, directory;
  for (const auto& record : records) {
    const auto size = record.size == 0xDEADBEEF ? static_cast<std::uint32_t>(record.content.size()) : record.size;
    const auto place =
        record.place < 0 ? static_cast<std::uint32_t>(text.size()) : static_cast<std::uint32_t>(record.place);
    const auto facts = little(record.flags) + little(record.method) + little(std::uint32_t{0}) +
                       little(std::uint32_t{0}) + little(size) + little(size) +
                       little(static_cast<std::uint16_t>(record.name.size()));
    std::string extra;
    for (const auto number : record.wide) extra += little(number);
    if (!extra.empty()) extra = little(std::uint16_t{1}) + little(static_cast<std::uint16_t>(extra.size())) + extra;
    text += "PK\3\4" + little(std::uint16_t{20}) + facts + little(std::uint16_t{0}) + record.name + record.content;
    directory += "PK\1\2" + little(std::uint32_t{20}) + facts + little(static_cast<std::uint16_t>(extra.size())) +
                 little(std::uint16_t{0}) + little(std::uint16_t{0}) + little(std::uint16_t{0}) +
                 little(std::uint32_t{0}) + little(place) + record.name + extra;
  }
  return text + directory + "PK\5\6" + little(std::uint32_t{0}) + little(static_cast<std::uint16_t>(records.size())) +
         little(static_cast<std::uint16_t>(records.size())) + little(static_cast<std::uint32_t>(directory.size())) +
         little(static_cast<std::uint32_t>(text.size())) + little(std::uint16_t{0});
}

std::string reading(const std::string& file) {
  return refusal([&] { pack_pt(unpack_pt(file, "NAME")); });
}

const std::string kSeven{"\x80\2K\7.", 5};

TEST(HostilePtFile, OfArchivesThatLieIsRefused) {
  using namespace std::string_literals;
  const auto little_end = Record{"a/byteorder", "little"};
  EXPECT_EQ(reading(archive({{"a/data.pkl", kSeven}, little_end})), "taken")
      << "the unchanged archive of these tests must be valid";
  EXPECT_EQ(reading(archive({{"../data.pkl", kSeven}})), "taken")
      << "a name in an archive must never be used as a file name";
  struct Case {
    std::vector<Record> records;
    std::string says;
  };
  const std::string bomb(1000, '\0');
  for (const auto& [records, says] : std::vector<Case>{
           {{}, "lacks the record \"data.pkl\""},
           {{{"a/data.pkl", bomb, 8, 0, 0xFFFFFFF0}}, "is compressed"},
           {{{"a/data.pkl", kSeven, 0, 1}}, "is encrypted"},
           {{{"a/data.pkl", kSeven}, {"a/data.pkl", kSeven}}, "comes twice"},
           {{{"a/data.pkl", kSeven}, {"a/data/0", "", 0, 0, 10, 0}}, "overlap"},
           {{{"a/data.pkl", kSeven, 0, 0, 0x7FFFFFFF}}, "claims 2147483647 bytes"},
           {{{"a/data.pkl", kSeven, 0, 0, 0xFFFFFFFF}}, "claims 4294967295 bytes"},
           {{{"a/data.pkl", kSeven, 0, 0, 5, 0x7FFFFFFF}}, "is not where the list of records says"},
           {{{"a/data.pkl", kSeven, 0, 0, 5, 3}}, "is not where the list of records says"},
           {{{"a/data.pkl", kSeven}, {"a/byteorder", "big"}}, "big-endian"},
           {{{"a/data.pkl", kSeven}, {"a/constants.pkl", ""}}, "TorchScript"},
           {{{"\x1b[2J/data.pkl", kSeven}, {"\x1b[2J/data.pkl", kSeven}}, R"("\u001b[2J/data.pkl" comes twice)"},
           {{{"a/data.pkl", "\x80\4K\7."}}, "protocol 4"},
           {{{"a/data.pkl", ""}}, "ends too early"}})
    EXPECT_THAT(reading(archive(records)), HasSubstr(says));
  const auto sound = archive({{"a/data.pkl", kSeven}});
  for (std::size_t size = 0; size < sound.size(); ++size) ASSERT_NE(reading(sound.substr(0, size)), "taken") << size;
}

TEST(HostilePtFile, WithNumbersOf64BitsIsReadAndTheNumbersAreChecked) {
  constexpr std::uint32_t kWide = 0xFFFFFFFF;  // the number stands among those of 64 bits
  const auto of = [](std::int64_t place, std::vector<std::uint64_t> wide) {
    return archive({{"a/data.pkl", kSeven, 0, 0, kWide, place, std::move(wide)}});
  };
  const std::uint64_t size = kSeven.size(), huge = std::uint64_t{1} << 40;
  EXPECT_EQ(reading(of(-1, {size, size})), "taken");
  EXPECT_EQ(reading(of(kWide, {size, size, 0})), "taken");
  EXPECT_THAT(reading(of(-1, {huge, huge})),
              HasSubstr("\"a/data.pkl\" claims 1099511627776 bytes, and the archive ends"));
  EXPECT_THAT(reading(of(-1, {size, huge})), HasSubstr("\"a/data.pkl\" has two different sizes"));
  EXPECT_THAT(reading(of(kWide, {size, size, huge})), HasSubstr("is not where the list of records says"));
  EXPECT_THAT(reading(of(-1, {size})), HasSubstr("the zip archive ends too early"));
}

TEST(HostilePtFile, RunsNothing) {
  const TemporaryFolder folder;
  const auto proof = (folder / "proof").string();
  const auto command = "touch " + proof;
  const auto text = [](const std::string& words) {
    return "X" + little(static_cast<std::uint32_t>(words.size())) + words;
  };
  const auto shown = text(command);
  const auto python = text("open('" + proof + "', 'w')");
  for (const auto& codes : std::vector<std::string>{"cos\nsystem\n" + shown + "\x85R",
                                                    "cposix\nsystem\n(" + shown + "tR",
                                                    "cnt\nsystem\n" + shown + "\x85R",
                                                    "csubprocess\nPopen\n(" + shown + "tR",
                                                    "csubprocess\ncheck_output\n" + shown + "\x85\x81",
                                                    "cbuiltins\neval\n" + python + "\x85R",
                                                    "cbuiltins\nexec\n" + python + "\x85R",
                                                    "c__builtin__\neval\n" + python + "\x85R",
                                                    "cbuiltins\n__import__\n" + text("os") + "\x85R",
                                                    "cbuiltins\ngetattr\n(cbuiltins\n__import__\n" + text("os") +
                                                        "\x85R" + text("system") + "tR" + shown + "\x85R",
                                                    "coperator\nattrgetter\n" + text("system") + "\x85R",
                                                    "cnumpy.testing._private.utils\nrunstring\n(" + python + "}tR",
                                                    "ctorch.serialization\nload\n" + shown + "\x85R",
                                                    "ctorch\nload\n" + shown + "\x85R",
                                                    "ctorch._utils\n_rebuild_sparse_tensor\n)R",
                                                    "ccollections\nOrderedDict\n)R}X\3\0\0\0foob",
                                                    "(S'" + command + "'\nios\nsystem\n",
                                                    "(cos\nsystem\n" + shown + "o",
                                                    text("os") + text("system") + "\x93" + shown + "\x85R",
                                                    "\x82\1" + shown + "\x85R",
                                                    "P" + command + "\n",
                                                    shown + "Q",
                                                    "I1\n",
                                                    "V" + command + "\n"}) {
    const auto said = reading(archive({{"a/data.pkl", "\x80\2" + codes + "."}}));
    EXPECT_THAT(said, StartsWith("NAME is damaged, or no .pt file")) << codes;
    EXPECT_EQ(said.find('\x1b'), std::string::npos);
  }
  EXPECT_FALSE(std::filesystem::exists(proof));
}

TEST(HostilePtFile, EditedAnywhereIsRefusedOrRead) {
  PickleDict dict;
  dict.add("weight", at::arange(6, at::kFloat).view({2, 3}).t()).add("mask", at::ones({3}, at::kBool)).add("epoch", 3);
  std::vector<Record> records;
  auto packed = pack_pt(dict);
  for (const auto& [name, content] : read_zip(std::as_writable_bytes(std::span{packed})))
    records.push_back({name, {reinterpret_cast<const char*>(content.data()), content.size()}});
  const auto sound = archive(records);
  ASSERT_EQ(reading(sound), "taken");
  Edits edit{3};
  int refused = 0;
  for (int i = 0; i < 600; ++i) {
    auto edited = records;
    for (auto& record : edited)
      if (record.name.ends_with("/data.pkl")) record.content = edit(record.content);
    refused += reading(i % 3 == 0 ? edit(sound) : archive(edited)) != "taken" ? 1 : 0;
  }
  EXPECT_GT(refused, 300);
  EXPECT_LT(refused, 600);
}

TEST(HostilePtFile, TakesMemoryInProportionToItsText) {
  std::string pickle{"\x80\2N", 3};
  while (pickle.size() < 2'200'000) pickle += '\x85';  // each \x85 wraps the previous value in a tuple
  EXPECT_THAT(refusal_within(std::size_t{192} << 20U,
                             [&] { parse_pickle(pickle + '.', [](const auto&) { return at::zeros({1}); }); }),
              HasSubstr("objects; for its size that is the limit"));
}

TEST(HostilePtFile, MayHoldAMillionNumbers) {
  std::string pickle{"\x80\2](", 4};
  for (int i = 0; i < 550'000; ++i) pickle += "\x88K\1";
  const auto value = parse_pickle(pickle + "e.", [](const auto&) { return at::zeros({1}); });
  EXPECT_EQ(value.get<PickleList>("it").size(), 1'100'000U);
}

}  // namespace
}  // namespace ddpxx::hostile_files_test
