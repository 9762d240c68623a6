// s3_faults_test.cpp — operations succeed although some requests fail, and leave nothing behind if they cannot succeed.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/storage/s3_storage.hpp>

#include "s3_servers.hpp"

namespace ddpxx::s3_faults_test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

class S3Faults : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { config_.endpoint = proxy_.endpoint(); }
  void TearDown() override {
    proxy_.no_rule();
    EXPECT_EQ(direct_.abort_uploads_older_than(std::chrono::seconds{-3600}), uploads_left_);
    remove_all(direct_);
  }

  void write(const std::string& name, Bytes content) {
    const std::array parts{content};
    storage().write(name, parts);
  }
  S3Storage& storage() {
    if (!storage_) storage_ = std::make_unique<S3Storage>(place_, config_);
    return *storage_;
  }
  /// Whether the object has this content, read without the proxy.
  bool holds(const std::string& name, Bytes content) {
    std::vector<std::byte> back(content.size());
    direct_.read(name, 0, back);
    return std::equal(back.begin(), back.end(), content.begin()) &&
           direct_.list(name) == std::vector{StoredObject{name, content.size()}};
  }

  json server_ = s3_server(GetParam());
  FaultProxy proxy_{server_};
  S3Place place_ = s3_place(server_, "faults");
  S3Config config_ = s3_config(server_);
  S3Storage direct_{place_, config_};
  std::vector<std::byte> large_ = pattern(12'000'000);  // uploaded in three parts
  std::vector<std::byte> small_ = pattern(100'000, 2);
  std::int64_t uploads_left_ = 0;

 private:
  std::unique_ptr<S3Storage> storage_;
};

INSTANTIATE_TEST_SUITE_P(, S3Faults, testing::Values("ceph", "seaweedfs"),
                         [](const auto& server) { return server.param; });

TEST_P(S3Faults, PartsArriveAlthoughRequestsFail) {
  const std::vector<json> faults{
      {{"method", "PUT"}, {"path", "partNumber="}, {"action", "status"}, {"times", 3}},
      {{"method", "PUT"},
       {"path", "partNumber="},
       {"action", "status"},
       {"status", 500},
       {"code", "InternalError"},
       {"times", 2}},
      {{"method", "PUT"}, {"path", "partNumber=2&"}, {"action", "reset"}, {"times", 2}},
      {{"method", "PUT"},
       {"path", "partNumber=2&"},
       {"action", "reset"},
       {"at", "body"},
       {"bytes", 100'000},
       {"times", 2}},
      {{"method", "PUT"}, {"path", "partNumber=1&"}, {"action", "lost_reply"}, {"times", 1}},
      {{"method", "PUT"}, {"path", "partNumber=3&"}, {"action", "stall"}, {"times", 1}},
      {{"method", "POST"}, {"path", "uploadId="}, {"action", "lost_reply"}, {"times", 1}},
      {{"method", "POST"}, {"path", "uploadId="}, {"action", "error200"}, {"times", 1}},
      {{"method", "POST"},
       {"path", "uploadId="},
       {"action", "status"},
       {"status", 404},
       {"code", "NoSuchUpload"},
       {"times", 1}},
      {{"method", "PUT"}, {"path", "partNumber=2&"}, {"action", "corrupt"}, {"bytes", 1'000'000}, {"times", 1}},
      {{"method", "PUT"},
       {"path", "partNumber=2&"},
       {"action", "status"},
       {"status", 429},
       {"code", "TooManyRequests"},
       {"times", 1}},
  };
  for (std::size_t i = 0; i < faults.size(); ++i) {
    SCOPED_TRACE(faults[i].dump());
    proxy_.rule(faults[i]);
    const auto content = pattern(12'000'000, static_cast<unsigned>(i));
    write("object", content);
    EXPECT_EQ(proxy_.hits(), faults[i].at("times").get<int>());
    EXPECT_TRUE(holds("object", content));
  }
}

TEST_P(S3Faults, SmallObjectsArriveAlthoughRequestsFail) {
  const std::vector<json> faults{
      {{"action", "status"}, {"times", 2}},
      {{"action", "reset"}, {"at", "body"}, {"bytes", 1000}, {"times", 1}},
      {{"action", "lost_reply"}, {"times", 1}},
      {{"action", "stall"}, {"times", 1}},
      {{"action", "corrupt"}, {"bytes", 77'777}, {"times", 1}},
      {{"action", "status"}, {"status", 429}, {"code", "TooManyRequests"}, {"times", 2}},
      {{"action", "status"}, {"status", 403}, {"code", "RequestTimeTooSkewed"}, {"times", 1}},
      {{"action", "status"}, {"status", 408}, {"code", "RequestTimeout"}, {"times", 1}},
      {{"action", "status"}, {"status", 400}, {"code", "RequestTimeout"}, {"times", 1}},
      {{"action", "status"}, {"status", 500}, {"code", "InternalError"}, {"times", 1}},
      {{"action", "status"}, {"status", 502}, {"code", "BadGateway"}, {"times", 1}},
      {{"action", "status"}, {"status", 504}, {"code", "GatewayTimeout"}, {"times", 1}},
      {{"action", "status"}, {"status", 507}, {"code", "InsufficientStorage"}, {"times", 1}},
      {{"action", "status"}, {"status", 520}, {"code", "UnknownError"}, {"times", 1}},
  };
  for (std::size_t i = 0; i < faults.size(); ++i) {
    SCOPED_TRACE(faults[i].dump());
    auto rule = faults[i];
    rule["method"] = "PUT";
    proxy_.rule(rule);
    const auto content = pattern(100'000, static_cast<unsigned>(i));
    write("object", content);
    EXPECT_EQ(proxy_.hits(), rule.at("times").get<int>());
    EXPECT_TRUE(holds("object", content));
  }
}

TEST_P(S3Faults, ReadsAllAlthoughRepliesFail) {
  write("large", large_);
  write("small", small_);
  const std::vector<json> faults{
      {{"action", "status"}, {"times", 3}},
      {{"action", "status"}, {"status", 500}, {"code", "InternalError"}, {"times", 1}},
      {{"action", "reset"}, {"at", "reply"}, {"bytes", 50'000}, {"times", 1}},
      {{"action", "truncate"}, {"bytes", 50'000}, {"times", 1}},
      {{"action", "stall"}, {"at", "reply"}, {"bytes", 50'000}, {"times", 1}},
      {{"action", "status"}, {"status", 429}, {"code", "TooManyRequests"}, {"times", 1}},
  };
  for (const auto& fault : faults) {
    for (const auto& [name, content] : {std::pair{"large", &large_}, {"small", &small_}}) {
      SCOPED_TRACE(fault.dump() + ' ' + name);
      auto rule = fault;
      rule["method"] = "GET";
      proxy_.rule(rule);
      std::vector<std::byte> back(content->size());
      storage().read(name, 0, back);
      EXPECT_TRUE(back == *content);
      EXPECT_EQ(proxy_.hits(), rule.at("times").get<int>());
    }
  }
}

TEST_P(S3Faults, RefusesAReplyWithoutALengthThatIsTooShort) {
  write("object", small_);
  for (const auto bytes : {0, 50'000}) {
    SCOPED_TRACE(bytes);
    proxy_.rule({{"method", "GET"}, {"drop", "content-length"}, {"action", "truncate"}, {"bytes", bytes}});
    std::vector<std::byte> back(small_.size());
    const auto refusal = HasSubstr(place_.text("object") + ": it ends before 100000 bytes");
    EXPECT_THAT(storage_error([&] { storage().read("object", 0, back); }), refusal);
    EXPECT_THAT(storage_error([&] { storage().read_text("object", small_.size()); }), refusal);
  }
}

TEST_P(S3Faults, RefusesAServerThatIgnoresARange) {
  config_.retries = 0;  // the setting that prepare() uses
  write("object", small_);
  proxy_.rule({{"method", "GET"}, {"drop", "content-range"}});
  std::vector<std::byte> back(small_.size());
  EXPECT_THAT(storage_error([&] { storage().read("object", 0, back); }),
              AllOf(HasSubstr("cannot read " + place_.text("object")), HasSubstr("which part of the object it sends")));
  EXPECT_EQ(proxy_.hits(), 1) << "the request must not be tried again, because that cannot help";
}

TEST_P(S3Faults, KnowsItsOwnObjectWhenTheReplyWasLost) {
  proxy_.rule({{"method", "PUT"}, {"action", "lost_reply"}, {"times", 1}});
  EXPECT_TRUE(storage().create("manifest.json", bytes_of("mine")));
  proxy_.rule({{"method", "PUT"}, {"action", "lost_reply"}, {"times", 1}});
  EXPECT_FALSE(storage().create("manifest.json", bytes_of("mine")))
      << "an object with equal content that another writer has made must not count as created";
  EXPECT_EQ(direct_.read_text("manifest.json", 100), "mine");
}

TEST_P(S3Faults, KnowsItsOwnObjectWhenEveryReplyWasLost) {
  config_.retries = 1;
  proxy_.rule({{"method", "PUT"}, {"action", "lost_reply"}});
  EXPECT_TRUE(storage().create("manifest.json", bytes_of("mine")));
  EXPECT_FALSE(storage().create("manifest.json", bytes_of("mine")))
      << "an object with equal content that another writer has made must not count as created";
  EXPECT_EQ(direct_.read_text("manifest.json", 100), "mine");
}

TEST_P(S3Faults, DoesNotSayWhoMadeAnObjectThatItCannotSee) {
  config_.retries = 1;
  const auto refusal = HasSubstr("cannot create " + place_.text("manifest.json"));
  proxy_.rule({{"method", "PUT"}, {"action", "reset"}});
  EXPECT_THAT(storage_error([&] { storage().create("manifest.json", bytes_of("mine")); }), refusal);
  direct_.create("manifest.json", bytes_of("theirs"));
  proxy_.rule({{"action", "reset"}});
  EXPECT_THAT(storage_error([&] { storage().create("manifest.json", bytes_of("mine")); }), refusal);
}

TEST_P(S3Faults, KeepsTheOldObjectAndNoPartsWhenAnUploadFails) {
  config_.retries = 1;
  config_.stall_timeout = std::chrono::seconds{30};  // a busy machine is not to be one more fault
  write("object", small_);
  for (const auto& rule : std::vector<json>{{{"method", "PUT"}, {"path", "partNumber=2&"}, {"action", "status"}},
                                            {{"method", "POST"},
                                             {"path", "uploadId="},
                                             {"action", "status"},
                                             {"status", 500},
                                             {"code", "InternalError"}},
                                            {{"method", "PUT"},
                                             {"path", "partNumber="},
                                             {"action", "status"},
                                             {"status", 403},
                                             {"code", "ExpiredToken"}}}) {
    proxy_.rule(rule);
    const auto text = storage_error([&] { write("object", large_); });
    EXPECT_THAT(text, AllOf(HasSubstr("cannot write " + place_.text("object")),
                            HasSubstr(rule.value("code", std::string{"SlowDown"}))));
    EXPECT_TRUE(holds("object", small_)) << rule;
    EXPECT_EQ(direct_.abort_uploads_older_than(std::chrono::seconds{-3600}), 0) << rule;
  }
}

TEST_P(S3Faults, SurfacesAServerThatStaysAway) {
  config_.retries = 2;
  config_.stall_timeout = std::chrono::seconds{1};
  proxy_.rule({{"action", "stall"}});
  EXPECT_THAT(storage_error([&] { write("object", small_); }), HasSubstr("stopped sending and taking bytes for 1 s"));
  proxy_.rule({{"action", "reset"}});
  EXPECT_THAT(storage_error([&] { storage().list(""); }), HasSubstr("cannot list " + place_.text("")));
  proxy_.rule({{"action", "status"}, {"status", 429}, {"code", "TooManyRequests"}});
  EXPECT_THAT(storage_error([&] { storage().remove("x"); }), HasSubstr("429 TooManyRequests"));
  EXPECT_EQ(proxy_.requests().size(), static_cast<std::size_t>(config_.attempts));
}

TEST_P(S3Faults, AsksABusyServerAsOftenAsTheLibraryAsksASlowOne) {
  config_.retries = 5;
  proxy_.rule({{"action", "status"}, {"status", 429}, {"code", "TooManyRequests"}});
  EXPECT_THAT(storage_error([&] { storage().remove("x"); }), HasSubstr("429 TooManyRequests"));
  EXPECT_EQ(proxy_.requests().size(), config_.retries + 1U);
}

TEST_P(S3Faults, LeavesToTheLibraryWhatItHasTriedAgain) {
  config_.retries = 1;
  for (const auto& [status, code] : {std::pair{403, "RequestTimeTooSkewed"}, {400, "RequestTimeout"}}) {
    proxy_.rule({{"action", "status"}, {"status", status}, {"code", code}});
    EXPECT_THAT(storage_error([&] { storage().remove("x"); }), HasSubstr(code));
    EXPECT_EQ(proxy_.requests().size(), 2U) << code;
  }
}

TEST_P(S3Faults, AbortsUploadsThatALostReplyLeftBehind) {
  proxy_.rule({{"method", "POST"}, {"path", "uploads"}, {"action", "lost_reply"}, {"times", 1}});
  write("object", large_);
  EXPECT_TRUE(holds("object", large_));
  EXPECT_EQ(direct_.abort_uploads_older_than(std::chrono::hours{1}), 0) << "the uploads are too young to be aborted";
  uploads_left_ = 1;  // TearDown expects one unfinished upload
}

TEST_P(S3Faults, FindsUploadsOnEveryPageOfTheirList) {
  for (const auto& [name, lost] : {std::pair{"object+1", 3}, {"object+2", 2}}) {
    proxy_.rule({{"method", "POST"}, {"path", "uploads"}, {"action", "lost_reply"}, {"times", lost}});
    write(name, large_);
  }
  auto config = config_;
  config.page_keys = 2;
  const auto pages = [&] {
    std::int64_t count = 0;
    for (const auto& request : proxy_.requests())
      if (request.at("path").get<std::string>().find("max-uploads=2") != std::string::npos) ++count;
    return count;
  };
  proxy_.no_rule();
  detail::S3Objects objects{place_, config};
  const auto now = std::chrono::steady_clock::now();
  EXPECT_EQ(detail::abort_unfinished_uploads(objects, std::chrono::seconds{-3600}, now), 0) << "there was no time left";
  EXPECT_EQ(pages(), 1);
  proxy_.no_rule();
  S3Storage paged{place_, config};
  EXPECT_EQ(paged.abort_uploads_older_than(std::chrono::seconds{-3600}), 5);
  EXPECT_GE(pages(), 3);
}

TEST_P(S3Faults, SweepsOldUploadsOfThisPlaceBeforeWork) {
  proxy_.rule({{"method", "POST"}, {"path", "uploads"}, {"action", "lost_reply"}, {"times", 1}});
  write("object", large_);
  auto config = config_;
  config.upload_max_age = std::chrono::seconds{-3600};
  auto beside = place_;
  beside.prefix.insert(beside.prefix.size() - 1, "-2");
  S3Storage{beside, config}.prepare();
  uploads_left_ = 1;
  EXPECT_EQ(direct_.abort_uploads_older_than(std::chrono::hours{1}), 0);
  S3Storage{place_, config}.prepare();
  uploads_left_ = 0;
}

TEST_P(S3Faults, WorksWhereUnfinishedUploadsAreNotShown) {
  proxy_.rule(
      {{"method", "GET"}, {"path", "uploads"}, {"action", "status"}, {"status", 403}, {"code", "AccessDenied"}});
  storage().prepare();
  EXPECT_EQ(proxy_.hits(), 1);
}

/// Starts build/bin/s3_writer, which writes `bytes` bytes to the object through the proxy.
pid_t start_writer(const S3Config& config, const S3Place& place, const std::string& name, std::size_t bytes) {
  const auto child = ::fork();
  if (child == 0) {
    ::setenv("AWS_ENDPOINT_URL", config.endpoint.c_str(), 1);
    ::setenv("AWS_ACCESS_KEY_ID", config.credentials->access_key.c_str(), 1);
    ::setenv("AWS_SECRET_ACCESS_KEY", config.credentials->secret_key.c_str(), 1);
    ::setenv("AWS_REGION", config.region.c_str(), 1);
    ::execl(DDPXX_S3_WRITER, "s3_writer", place.text("").c_str(), name.c_str(), std::to_string(bytes).c_str(), nullptr);
    ::_exit(127);
  }
  return child;
}

TEST_P(S3Faults, AWriterKilledBetweenTwoRequestsLeavesTheResultOfTheFirst) {
  for (const auto& [failpoint, left] :
       {std::pair{"s3.before_write:kill", 7U}, {"s3.after_write:kill", 0U}, {"s3.before_remove:kill", 0U}}) {
    direct_.write("object", std::array<Bytes, 1>{Bytes{small_}.first(7)});
    ::setenv("DDPXX_FAILPOINT", failpoint, 1);
    int status = 0;
    ::waitpid(start_writer(config_, place_, "object", 0), &status, 0);
    ::unsetenv("DDPXX_FAILPOINT");
    EXPECT_TRUE(WIFSIGNALED(status)) << failpoint;
    const auto text = direct_.read_text("object", 100);
    ASSERT_TRUE(text) << failpoint;
    EXPECT_EQ(text->size(), left) << failpoint;
  }
  ::setenv("DDPXX_FAILPOINT", "s3.after_remove:kill", 1);
  int status = 0;
  ::waitpid(start_writer(config_, place_, "object", 0), &status, 0);
  ::unsetenv("DDPXX_FAILPOINT");
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(direct_.read_text("object", 100));
}

TEST_P(S3Faults, KeepsTheOldObjectWhenTheWriterIsKilled) {
  direct_.write("object", std::array<Bytes, 1>{small_});
  proxy_.rule({{"method", "PUT"}, {"path", "partNumber=2&"}, {"action", "stall"}});
  const auto writer = start_writer(config_, place_, "object", 40'000'000);
  const auto has_begun = [&] {
    for (const auto& request : proxy_.requests())
      if (request.at("path").get<std::string>().find("partNumber=2&") != std::string::npos) return true;
    return false;
  };
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds{30};
  while (!has_begun() && std::chrono::steady_clock::now() < patience)
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
  EXPECT_TRUE(has_begun());
  ::kill(writer, SIGKILL);
  int status = 0;
  ::waitpid(writer, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(holds("object", small_));
  uploads_left_ = 1;

  proxy_.no_rule();
  const auto second = start_writer(config_, place_, "object", 40'000'000);
  ::waitpid(second, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(direct_.list("object"), (std::vector{StoredObject{"object", 40'000'000}}));
}

}  // namespace
}  // namespace ddpxx::s3_faults_test
