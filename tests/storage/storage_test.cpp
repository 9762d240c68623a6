// storage_test.cpp — the properties of every storage, tested on a disk and on real S3 servers.
#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/storage/folder.hpp>
#include <ddpxx/storage/open_storage.hpp>

#include "../temporary_folder.hpp"
#include "s3_servers.hpp"

namespace ddpxx::storage_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class StorageContract : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "folder") {
      folder_ = std::make_unique<TemporaryFolder>();
      storage_ = std::make_unique<Folder>(folder_->path() / "not" / "yet");
    } else {
      const auto server = s3_server(GetParam());
      storage_ = std::make_unique<S3Storage>(s3_place(server, "contract"), s3_config(server));
    }
  }
  void TearDown() override {
    if (storage_) remove_all(*storage_);
  }

  Storage& storage() { return *storage_; }

  void write(const std::string& name, std::string_view text) {
    const std::array parts{bytes_of(text)};
    storage_->write(name, parts);
  }
  std::string read(const std::string& name, std::uint64_t offset, std::size_t count) {
    std::string text(count, '?');
    storage_->read(name, offset, std::as_writable_bytes(std::span{text}));
    return text;
  }
  std::vector<std::string> names(const std::string& prefix) {
    std::vector<std::string> names;
    for (const auto& object : storage_->list(prefix)) names.push_back(object.name);
    return names;
  }

 private:
  std::unique_ptr<TemporaryFolder> folder_;
  std::unique_ptr<Storage> storage_;
};

INSTANTIATE_TEST_SUITE_P(, StorageContract, testing::Values("folder", "ceph", "seaweedfs"),
                         [](const auto& server) { return server.param; });

TEST_P(StorageContract, WritesThePartsInOrder) {
  const std::array parts{bytes_of("one,"), bytes_of(""), bytes_of("two")};
  storage().write("step-1/manifest.json", parts);
  EXPECT_EQ(storage().read_text("step-1/manifest.json", 100), "one,two");
}

TEST_P(StorageContract, ReplacesAnObject) {
  write("object", "a long first version");
  write("object", "second");
  EXPECT_EQ(storage().read_text("object", 100), "second");
  EXPECT_THAT(storage().list(""), ElementsAre(StoredObject{"object", 6}));
}

TEST_P(StorageContract, ReadsAnyRange) {
  write("object", "0123456789");
  EXPECT_EQ(read("object", 0, 10), "0123456789");
  EXPECT_EQ(read("object", 3, 4), "3456");
  EXPECT_EQ(read("object", 9, 1), "9");
  EXPECT_EQ(read("object", 5, 0), "");
}

TEST_P(StorageContract, RefusesToReadPastTheEnd) {
  write("object", "0123456789");
  for (const auto& [offset, count] : {std::pair{8, 3}, {10, 1}, {20, 5}}) {
    const auto text =
        storage_error([&] { read("object", static_cast<std::uint64_t>(offset), static_cast<std::size_t>(count)); });
    EXPECT_THAT(text, HasSubstr(storage().full_name("object")));
    EXPECT_THAT(text, HasSubstr("it ends"));
  }
}

TEST_P(StorageContract, SaysWhichObjectIsNotThere) {
  for (const std::size_t count : {0U, 5U}) {
    const auto text = storage_error([&] { read("step-9/absent", 0, count); });
    EXPECT_THAT(text, HasSubstr(storage().full_name("step-9/absent")));
  }
  EXPECT_EQ(storage().read_text("step-9/absent", 100), std::nullopt);
}

TEST_P(StorageContract, ReadsNoTextThatIsTooLong) {
  write("object", "0123456789");
  EXPECT_EQ(storage().read_text("object", 10), "0123456789");
  for (const std::uint64_t below_max : {0U, 1U})
    EXPECT_EQ(storage().read_text("object", std::numeric_limits<std::uint64_t>::max() - below_max), "0123456789");
  EXPECT_THAT(storage_error([&] { storage().read_text("object", 9); }), HasSubstr("more than 9 bytes"));
}

TEST_P(StorageContract, ReadsTextsOfAnySize) {
  for (const std::size_t size : {65'535U, 65'536U, 65'537U, 9'000'000U}) {
    const auto bytes = pattern(size);
    const std::array<Bytes, 1> parts{bytes};
    storage().write("text", parts);
    const auto text = storage().read_text("text", size);
    EXPECT_TRUE(text && std::ranges::equal(std::as_bytes(std::span{*text}), bytes)) << size;
    storage_error([&] { storage().read_text("text", size - 1); });
  }
}

TEST_P(StorageContract, KeepsEmptyObjects) {
  storage().write("empty", {});
  EXPECT_EQ(storage().read_text("empty", 100), "");
  EXPECT_EQ(read("empty", 0, 0), "");
  EXPECT_THAT(storage().list(""), ElementsAre(StoredObject{"empty", 0}));
  EXPECT_THAT(storage_error([&] { read("empty", 0, 1); }), HasSubstr("it ends"));
}

TEST_P(StorageContract, ListsByTheFrontOfNamesInTheirOrder) {
  EXPECT_THAT(storage().list(""), IsEmpty());
  for (const auto* name : {"step-2/b", "step-10/a", "step-2/a", "other"}) write(name, name);
  EXPECT_THAT(names(""), ElementsAre("other", "step-10/a", "step-2/a", "step-2/b"));
  EXPECT_THAT(names("step-2"), ElementsAre("step-2/a", "step-2/b"));
  EXPECT_THAT(names("step-2/"), ElementsAre("step-2/a", "step-2/b"));
  EXPECT_THAT(names("st"), ElementsAre("step-10/a", "step-2/a", "step-2/b"));
  EXPECT_THAT(names("none"), IsEmpty());
}

TEST_P(StorageContract, CreatesAnObjectOnlyOnce) {
  EXPECT_TRUE(storage().create("step-1/manifest.json", bytes_of("same")));
  EXPECT_FALSE(storage().create("step-1/manifest.json", bytes_of("same")));
  EXPECT_FALSE(storage().create("step-1/manifest.json", bytes_of("other")));
  EXPECT_EQ(storage().read_text("step-1/manifest.json", 100), "same");
  storage().remove("step-1/manifest.json");
  EXPECT_TRUE(storage().create("step-1/manifest.json", bytes_of("again")));
}

TEST_P(StorageContract, CreatesLargeObjects) {
  const auto content = pattern(12'000'000);
  EXPECT_TRUE(storage().create("large", content));
  EXPECT_FALSE(storage().create("large", content));
  std::vector<std::byte> back(content.size());
  storage().read("large", 0, back);
  EXPECT_TRUE(back == content);
}

TEST_P(StorageContract, LetsExactlyOneOfManyCreate) {
  constexpr std::size_t kThreads = 16;
  for (const auto* name : {"first", "second", "third"}) {
    std::array<int, kThreads> made{};
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < kThreads; ++i)
        threads.emplace_back([&, i] {
          try {
            made.at(i) = storage().create(name, bytes_of(std::string(i + 1, 'x'))) ? 1 : 0;
          } catch (const Error& error) {
            ADD_FAILURE() << error.what();
          }
        });
    }
    EXPECT_EQ(std::accumulate(made.begin(), made.end(), 0), 1) << name;
    const auto winner = static_cast<std::size_t>(std::find(made.begin(), made.end(), 1) - made.begin());
    EXPECT_EQ(storage().read_text(name, 100), std::string(winner + 1, 'x'));
  }
}

TEST_P(StorageContract, RemovesAnObjectAndMindsNoneThatIsNotThere) {
  write("step-1/a", "a");
  write("step-1/b", "b");
  storage().remove("step-1/a");
  storage().remove("step-1/a");
  storage().remove("step-7/never");
  EXPECT_THAT(names(""), ElementsAre("step-1/b"));
}

TEST_P(StorageContract, TakesOddNames) {
  std::vector<std::string> odd{"a b",
                               "plus+plus",
                               "per%20cent",
                               "%41",
                               "amp&and;",
                               "que?ry=1&x",
                               "#hash",
                               "<tag>",
                               "quote\"'",
                               "umlaut-\xc3\xbc",
                               "~tilde",
                               "deep/er/and/deeper",
                               "@at,comma",

                               "\xe4\xb8\xad\xe6\x96\x87",
                               "colon:semi;(paren)[x]{y}"};
  for (const auto& name : odd) write(name, name);
  std::sort(odd.begin(), odd.end());
  EXPECT_EQ(names(""), odd);
  for (const auto& name : odd) {
    EXPECT_EQ(storage().read_text(name, 100), name);
    EXPECT_EQ(names(name), std::vector{name});
    EXPECT_FALSE(storage().create(name, bytes_of("x"))) << name;
    storage().remove(name);
  }
  EXPECT_THAT(storage().list(""), IsEmpty());
}

TEST_P(StorageContract, RefusesWhatIsNoName) {
  for (const auto* name : {"", "/absolute", "..", "../out", "a/../b", ".", "a/./b"}) {
    EXPECT_THAT(storage_error([&] { write(name, "x"); }), HasSubstr("is not a valid name of an object")) << name;
    storage_error([&] { read(name, 0, 1); });
    storage_error([&] { storage().create(name, bytes_of("x")); });
  }
}

TEST_P(StorageContract, CarriesLargeObjects) {
  const auto whole = pattern(40'000'000);
  const auto all = std::span{whole};
  const std::array<Bytes, 4> parts{all.first(7), all.subspan(7, 16'000'001), Bytes{}, all.subspan(16'000'008)};
  storage().write("large", parts);
  EXPECT_THAT(storage().list(""), ElementsAre(StoredObject{"large", whole.size()}));

  std::vector<std::byte> back(whole.size());
  storage().read("large", 0, back);
  EXPECT_TRUE(back == whole);
  for (const auto& [offset, count] : {std::pair{5'242'879U, 2U}, {1U, 11'000'000U}, {16'000'000U, 24'000'000U}}) {
    std::vector<std::byte> buffer(count);
    storage().read("large", offset, buffer);
    EXPECT_TRUE(std::equal(buffer.begin(), buffer.end(), whole.begin() + offset)) << offset;
  }
  EXPECT_THAT(storage_error([&] { storage().read("large", 1, back); }), HasSubstr("it ends"));
}

TEST_P(StorageContract, PreparesThePlaceAndLeavesNothingThere) {
  storage().prepare();
  EXPECT_THAT(storage().list(""), IsEmpty());
  write("object", "x");
  storage().prepare();
  EXPECT_THAT(names(""), ElementsAre("object"));
}

TEST_P(StorageContract, NamesPlaceAndObject) {
  EXPECT_EQ(storage().full_name("a/b"), storage().full_name("a") + "/b");
  EXPECT_THAT(storage().full_name("a"), testing::StartsWith(storage().full_name("")));
}

class S3Servers : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(, S3Servers, testing::Values("ceph", "seaweedfs"),
                         [](const auto& server) { return server.param; });

TEST_P(S3Servers, TakeAnObjectOf300MBInPartsAsLargeAsTrainingSendsThem) {
  const auto server = s3_server(GetParam());
  auto config = s3_config(server);
  config.part_bytes = S3Config{}.part_bytes;
  config.stall_timeout = std::chrono::seconds{60};  // the server writes to a disk that other tests use too
  S3Storage storage{s3_place(server, "large"), config};
  const auto content = pattern(300'000'000);
  const auto all = std::span{content};
  const std::array<Bytes, 3> parts{all.first(100'000'001), all.subspan(100'000'001, 99), all.subspan(100'000'100)};
  storage.write("object", parts);
  std::vector<std::byte> back(content.size());
  storage.read("object", 0, back);
  EXPECT_TRUE(same_bytes(back, content));
  remove_all(storage);
}

TEST_P(S3Servers, GiveListsPageByPage) {
  const auto server = s3_server(GetParam());
  const FaultProxy proxy{server};
  proxy.no_rule();
  auto config = s3_config(server);
  config.endpoint = proxy.endpoint();
  config.page_keys = 3;
  S3Storage storage{s3_place(server, "pages"), config};
  std::vector<StoredObject> expected;
  for (const auto* name : {"a b", "a%20b", "a&b", "a+b", "deep/one", "deep/two", "x"}) {
    storage.write(name, std::array{bytes_of(name)});
    expected.push_back({name, std::string_view{name}.size()});
  }
  proxy.no_rule();
  EXPECT_EQ(storage.list(""), expected);
  EXPECT_EQ(proxy.requests().size(), 3U) << "expected three pages of three names";
  EXPECT_EQ(storage.list("a").size(), 4U);
  remove_all(storage);
}

TEST(S3Keys, ThatNoNameHasAreLeftOutOfListsWithOneWarning) {
  const auto server = s3_server("ceph");  // SeaweedFS takes "a//b" for "a/b"
  const auto place = s3_place(server, "keys");
  detail::S3Client client{place.bucket, s3_config(server)};
  const auto key = place.prefix + "books//2.txt";
  const std::array content{bytes_of("two")};
  ASSERT_TRUE(client.send({.operation = "PutObject", .method = "PUT", .key = key, .query = "", .body = content}).ok());
  S3Storage storage{place, s3_config(server)};
  storage.write("books/1.txt", std::array{bytes_of("one")});
  testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) EXPECT_THAT(storage.list("books"), ElementsAre(StoredObject{"books/1.txt", 3}));
  const auto warning = testing::internal::GetCapturedStderr();
  EXPECT_THAT(warning, HasSubstr("are left out, such as s3://" + place.bucket + '/' + key + ": copy them"));
  EXPECT_EQ(std::ranges::count(warning, '\n'), 1) << warning;
  EXPECT_TRUE(client.send({.operation = "DeleteObject", .method = "DELETE", .key = key, .query = ""}).ok());
  remove_all(storage);
}

TEST(OpenStorage, TellsPlacesApart) {
  EXPECT_NE(dynamic_cast<Folder*>(open_storage("runs/one").get()), nullptr);
  const auto storage = open_storage("s3://bucket/runs/one");
  EXPECT_NE(dynamic_cast<S3Storage*>(storage.get()), nullptr);
  EXPECT_EQ(storage->full_name("x"), "s3://bucket/runs/one/x");
  try {
    open_storage("ftp://host/x");
    FAIL() << "the storage was opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
  }
}

}  // namespace
}  // namespace ddpxx::storage_test
