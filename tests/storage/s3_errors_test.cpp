// s3_errors_test.cpp — the errors that users get when an S3 server refuses them or cannot be reached.
#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/storage/s3_storage.hpp>

#include "../temporary_folder.hpp"
#include "s3_servers.hpp"

namespace ddpxx::s3_errors_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class S3Errors : public testing::TestWithParam<std::string> {
 protected:
  nlohmann::json server_ = s3_server(GetParam());
  S3Config config_ = s3_config(server_);
  S3Place place_ = s3_place(server_, "errors");

  /// The error of prepare(), which a program calls at its start.
  std::string refusal() {
    auto text = storage_error([&] { S3Storage{place_, config_}.prepare(); });
    EXPECT_THAT(text, HasSubstr(place_.text(""))) << "the error must name the place";
    if (config_.credentials) {
      EXPECT_THAT(text, Not(HasSubstr(config_.credentials->secret_key))) << "the error shows a secret";
    }
    return text;
  }
};

INSTANTIATE_TEST_SUITE_P(, S3Errors, testing::Values("ceph", "seaweedfs"),
                         [](const auto& server) { return server.param; });

TEST_P(S3Errors, TellsAWrongSecretFromAnUnknownKey) {
  config_.credentials->secret_key = "not-the-secret";
  EXPECT_THAT(refusal(), AllOf(HasSubstr("answered 403 SignatureDoesNotMatch"), HasSubstr("secret key does not fit")));
  config_.credentials->access_key = "nobody";
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("answered 403 InvalidAccessKeyId"), HasSubstr("does not know the access key")));
}

TEST_P(S3Errors, AsksToMakeTheBucketOrCorrectThePlace) {
  place_.bucket = "ddpxx-no-such-bucket";
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("answered 404 NoSuchBucket"), HasSubstr("make the bucket, or correct the place")));
  S3Storage storage{place_, config_};
  EXPECT_THAT(storage_error([&] { storage.list(""); }), HasSubstr("make the bucket"));
  EXPECT_THAT(storage_error([&] { storage.read_text("x", 10); }), HasSubstr("make the bucket"));
  EXPECT_THAT(storage_error([&] { storage.remove("x"); }), HasSubstr("make the bucket"));
}

TEST_P(S3Errors, SaysThatAccessIsDenied) {
  config_.credentials = S3Credentials{server_.at("other_access_key"), server_.at("other_secret_key"), ""};
  EXPECT_THAT(refusal(), AllOf(HasSubstr("answered 403 AccessDenied"), HasSubstr("let the bucket's owner grant")));
}

TEST_P(S3Errors, AsksToRenewASessionThatHasExpired) {
  const FaultProxy proxy{server_};
  proxy.rule({{"action", "status"}, {"status", 403}, {"code", "ExpiredToken"}});
  config_.endpoint = proxy.endpoint();
  EXPECT_THAT(refusal(), AllOf(HasSubstr("answered 403 ExpiredToken"), HasSubstr("renew the credentials")));
  EXPECT_EQ(proxy.requests().size(), 1) << "the request was tried again";
}

TEST_P(S3Errors, SaysWhatTheServerMustSupport) {
  const FaultProxy proxy{server_};
  config_.endpoint = proxy.endpoint();
  for (const auto& [status, code] : {std::pair{501, "NotImplemented"}, {400, "InvalidArgument"}}) {
    proxy.rule({{"method", "PUT"}, {"action", "status"}, {"status", status}, {"code", code}});
    EXPECT_THAT(refusal(), AllOf(HasSubstr(code), HasSubstr("must support the header If-None-Match: *")));
    EXPECT_EQ(proxy.requests().size(), 1) << "the request was tried again";
  }
}

TEST_P(S3Errors, BlamesNoHeaderForOtherRefusals) {
  const FaultProxy proxy{server_};
  config_.endpoint = proxy.endpoint();
  proxy.rule({{"method", "PUT"}, {"action", "status"}, {"status", 400}, {"code", "KeyTooLongError"}});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("answered 400 KeyTooLongError"), Not(HasSubstr("If-None-Match"))));
  // A server that expects TLS says so in a web page.
  proxy.rule({{"method", "PUT"}, {"action", "status"}, {"status", 400}, {"code", ""}});
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("with http:// or https:// as the server has it"), Not(HasSubstr("If-None-Match"))));
}

// A load balancer or a proxy answers in place of the server while that starts anew.
TEST_P(S3Errors, TakesNoAnswerOfAnotherServerForOneOfS3) {
  const FaultProxy proxy{server_};
  config_.endpoint = proxy.endpoint();
  S3Storage storage{place_, config_};
  const auto answers = [&](int status) { proxy.rule({{"action", "status"}, {"status", status}, {"code", ""}}); };
  const std::string other_server = proxy.endpoint() + " did not answer as a server of S3; check S3Config::endpoint";
  ASSERT_TRUE(storage.create("there", bytes_of("x")));
  proxy.rule({{"method", "HEAD"}, {"action", "status"}, {"status", 200}, {"code", ""}});
  EXPECT_THAT(storage_error([&] { storage.create("there", bytes_of("x")); }), HasSubstr(other_server))
      << "who wrote the object is not known";
  proxy.no_rule();
  storage.remove("there");
  answers(200);
  EXPECT_THAT(refusal(), HasSubstr(other_server));
  EXPECT_THAT(storage_error([&] { storage.list(""); }), HasSubstr(other_server)) << "a list without an object";
  EXPECT_THAT(storage_error([&] { storage.create("x", bytes_of("x")); }), HasSubstr(other_server)) << "a lost object";
  EXPECT_THAT(storage_error([&] { storage.write("x", std::array{bytes_of("x")}); }), HasSubstr(other_server));
  answers(404);
  EXPECT_THAT(storage_error([&] { storage.read_text("x", 10); }), HasSubstr("answered 404 to GetObject"));
  EXPECT_THAT(storage_error([&] { storage.remove("x"); }), HasSubstr("answered 404 to DeleteObject"));
}

TEST_P(S3Errors, WarnsOfAServerThatWouldLetRunsOverwriteEachOther) {
  const FaultProxy proxy{server_};
  config_.endpoint = proxy.endpoint();
  const auto warning = [&] {
    testing::internal::CaptureStderr();
    S3Storage{place_, config_}.prepare();
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(warning(), "");
  proxy.rule({{"method", "PUT"}, {"action", "status"}, {"status", 200}, {"skip", 1}});
  EXPECT_THAT(warning(), HasSubstr("ignores the header If-None-Match: *: two runs that save to " + place_.text("")));
  proxy.rule({{"method", "PUT"}, {"action", "lost_reply"}, {"times", 1}});
  EXPECT_EQ(warning(), "") << "an object that the first request has made must not count as another run's";
}

TEST_P(S3Errors, ShowsNoWordsOfTheServerThatAreNoCode) {
  const FaultProxy proxy{server_};
  proxy.rule({{"action", "status"}, {"status", 403}, {"code", "see \x1b[31m secret"}});
  config_.endpoint = proxy.endpoint();
  EXPECT_THAT(refusal(), AllOf(HasSubstr("answered 403"), Not(HasSubstr("secret"))));
}

TEST(S3Refusals, SaysWhereCredentialsWereLookedFor) {
  const auto server = s3_server("ceph");
  auto config = s3_config(server);
  config.credentials.reset();
  config.profile = "nobodys";
  for (const auto* name : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_CONTAINER_CREDENTIALS_FULL_URI"})
    ::unsetenv(name);
  ::setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
  ::setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/credentials", 1);
  ::setenv("AWS_CONFIG_FILE", "/nonexistent/config", 1);
  const auto text = storage_error([&] { S3Storage{s3_place(server, "errors"), config}.prepare(); });
  EXPECT_THAT(text,
              AllOf(HasSubstr("no credentials were found"), HasSubstr("AWS_ACCESS_KEY_ID"), HasSubstr("nobodys")));

  ::setenv("AWS_ACCESS_KEY_ID", server.at("access_key").get<std::string>().c_str(), 1);
  ::setenv("AWS_SECRET_ACCESS_KEY", server.at("secret_key").get<std::string>().c_str(), 1);
  S3Storage{s3_place(server, "errors"), config}.prepare();
  ::unsetenv("AWS_ACCESS_KEY_ID");
  ::unsetenv("AWS_SECRET_ACCESS_KEY");
}

TEST(S3Refusals, ReadsCredentialsOfAProfile) {
  const TemporaryFolder folder;
  const auto server = s3_server("ceph");
  const auto file =
      folder.file("credentials", "[lab]\naws_access_key_id = " + server.at("access_key").get<std::string>() +
                                     "\naws_secret_access_key = " + server.at("secret_key").get<std::string>() + "\n");
  ::setenv("AWS_SHARED_CREDENTIALS_FILE", file.c_str(), 1);
  auto config = s3_config(server);
  config.credentials.reset();
  config.profile = "lab";
  S3Storage{s3_place(server, "errors"), config}.prepare();
  ::unsetenv("AWS_SHARED_CREDENTIALS_FILE");
}

TEST(S3Refusals, TakesSessionsAndRefusesThemWithoutTheirToken) {
  const auto server = s3_server("ceph");
  auto config = s3_config(server);
  config.credentials =
      S3Credentials{server.at("session_access_key"), server.at("session_secret_key"), server.at("session_token")};
  S3Storage{s3_place(server, "errors"), config}.prepare();
  config.credentials->session_token.clear();
  EXPECT_THAT(storage_error([&] {
                S3Storage{s3_place(server, "errors"), config}.prepare();
              }),
              HasSubstr("answered 403"));
}

TEST(S3Refusals, SaysThatTheQuotaIsReached) {
  const auto server = s3_server("ceph");
  auto config = s3_config(server);
  config.credentials = S3Credentials{server.at("other_access_key"), server.at("other_secret_key"), ""};
  auto place = s3_place(server, "quota");
  place.bucket = server.at("other_bucket");
  S3Storage storage{place, config};
  const auto bytes = pattern(12U << 20U);
  const std::array<Bytes, 1> parts{bytes};
  const auto text = storage_error([&] {
    for (int i = 0; i < 4; ++i) storage.write("part-" + std::to_string(i), parts);
  });
  EXPECT_THAT(text, AllOf(HasSubstr("403 QuotaExceeded"), HasSubstr("remove old objects")));
  remove_all(storage);
}

TEST(S3Refusals, SaysSoonThatNoServerListens) {
  auto config = s3_config(s3_server("ceph"));
  config.endpoint = "http://127.0.0.1:9";
  config.retries = 12;
  const auto start = std::chrono::steady_clock::now();
  const auto text = storage_error([&] { S3Storage{S3Place{"bucket", "x/"}, config}.prepare(); });
  EXPECT_THAT(text, AllOf(HasSubstr("cannot reach http://127.0.0.1:9"), HasSubstr("check S3Config::endpoint")));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds{30});
}

TEST(S3Refusals, AsksAgainForANameThatIsNotKnown) {
  auto config = s3_config(s3_server("ceph"));
  config.endpoint = "http://no-such-host.invalid:9000";
  config.retries = 3;
  config.first_pause = std::chrono::milliseconds{20};
  const auto start = std::chrono::steady_clock::now();
  const auto text = storage_error([&] { S3Storage{S3Place{"bucket", "x/"}, config}.list(""); });
  EXPECT_THAT(text, AllOf(HasSubstr("cannot reach http://no-such-host.invalid:9000"), HasSubstr("must name a server")));
  EXPECT_GT(std::chrono::steady_clock::now() - start, std::chrono::seconds{1}) << "the pauses of seven more attempts";
}

TEST(S3Refusals, RefusesToGoOnAfterAFork) {
  const auto server = s3_server("ceph");
  S3Storage storage{s3_place(server, "errors"), s3_config(server)};
  EXPECT_EQ(storage.read_text("absent", 10), std::nullopt);
  EXPECT_EXIT(
      {
        EXPECT_THAT(storage_error([&] { storage.read_text("absent", 10); }), HasSubstr("before a fork"));
        std::_Exit(7);
      },
      testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace ddpxx::s3_errors_test
