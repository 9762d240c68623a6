// s3_text_data_test.cpp — training text behind s3://.
#include <array>
#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/data/stored_text.hpp>
#include <ddpxx/storage/open_storage.hpp>

#include "s3_servers.hpp"

namespace ddpxx::s3_text_data_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class S3TextData : public testing::TestWithParam<std::string> {
 protected:
  S3TextData() {
    set("AWS_ENDPOINT_URL", server_.at("endpoint"));
    set("AWS_REGION", server_.at("region"));
    set("AWS_ACCESS_KEY_ID", server_.at("access_key"));
    set("AWS_SECRET_ACCESS_KEY", server_.at("secret_key"));
    for (const auto& [name, text] : {std::pair{"books/1.txt", "first,"},
                                     {"books/2.txt", "second,"},
                                     {"books/10/a b+%.txt", "tenth,"},
                                     {"books/notes.md", "notes"},
                                     {"books-2/x.txt", "not this"},
                                     {"empty", ""}})
      storage_.write(name, std::array{bytes_of(text)});
  }
  void TearDown() override {
    remove_all(storage_);
    for (const auto* name : {"AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"})
      ::unsetenv(name);
  }
  static void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

  std::string at(const std::string& name) const { return place_.text(name); }

  nlohmann::json server_ = s3_server(GetParam());
  S3Place place_ = s3_place(server_, "text");
  S3Storage storage_{place_, s3_config(server_)};
};

INSTANTIATE_TEST_SUITE_P(, S3TextData, testing::Values("ceph", "seaweedfs"),
                         [](const auto& server) { return server.param; });

std::string error_of(const std::string& place, Errc code) {
  try {
    read_stored_text(place, 0, open_storage);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << place << " was read";
  return {};
}

TEST_P(S3TextData, IsAnObjectOrAllBelowAPrefixOrWhatMatches) {
  EXPECT_EQ(read_stored_text(at("books/2.txt"), 0, open_storage), "second,");
  EXPECT_EQ(read_stored_text(at("books/10/a b+%.txt"), 0, open_storage), "tenth,");
  for (const auto* name : {"books", "books/"})
    EXPECT_EQ(read_stored_text(at(name), 0, open_storage), "first,tenth,second,notes");
  EXPECT_EQ(read_stored_text(at("books/*.txt"), 0, open_storage), "first,second,");
  EXPECT_EQ(read_stored_text(at("books/1*"), 0, open_storage), "first,tenth,");
  EXPECT_EQ(read_stored_text(at("empty"), 0, open_storage), "");
}

TEST_P(S3TextData, EndsAfterTheMostBytesAndBeforeATornCharacter) {
  EXPECT_EQ(read_stored_text(at("books"), 8, open_storage), "first,te");
  storage_.write("torn", std::array{bytes_of("a\xC3\xA9")});
  EXPECT_EQ(read_stored_text(at("torn"), 2, open_storage), "a");
}

TEST_P(S3TextData, SaysWhatIsNotThere) {
  EXPECT_THAT(error_of(at("absent.txt"), Errc::data), HasSubstr("there is no object " + at("absent.txt")));
  EXPECT_THAT(error_of(at("book"), Errc::data), HasSubstr("there is no object"))
      << "a prefix of names is not the name of an object";
  EXPECT_THAT(error_of(at("books/*.pdf"), Errc::data), HasSubstr("there is no object"));
  EXPECT_THAT(error_of("s3://ddpxx-no-such-bucket/text", Errc::storage),
              AllOf(HasSubstr("NoSuchBucket"), HasSubstr("make the bucket")));
}

}  // namespace
}  // namespace ddpxx::s3_text_data_test
