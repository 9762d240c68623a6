// s3_credentials_test.cpp — keys from the metadata services of containers and of EC2: finding them, renewing them, and
// the errors where none are found.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/storage/s3_storage.hpp>

#include "../temporary_folder.hpp"
#include "s3_servers.hpp"

namespace ddpxx::s3_credentials_test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Runs tests/services/credentials_server.py, which gives out keys of the server.
class MetadataService {
 public:
  MetadataService(const std::string& access_key, const std::string& secret_key, const std::string& token, int seconds)
      : program_{"exec " + environment("DDPXX_PYTHON").value_or("python3") + ' ' + DDPXX_SERVICES +
                 "/credentials_server.py --seconds " + std::to_string(seconds) + " -- " + access_key + ' ' +
                 secret_key + " '" + token + '\''},
        where_(json::parse(program_.line())) {}

  std::string endpoint() const { return where_.at("endpoint"); }
  std::string container_uri() const { return where_.at("container_uri"); }
  std::string container_token() const { return where_.at("container_token"); }

  json counters() const { return json::parse(ask("GET", "/counters")); }
  void fail(int answers) const { ask("PUT", "/failures/" + std::to_string(answers)); }
  void stall(int seconds) const { ask("PUT", "/stall/" + std::to_string(seconds)); }
  void hand_out(const json& keys) const { ask("PUT", "/keys", "-d '" + keys.dump() + '\''); }

 private:
  std::string ask(const std::string& method, const std::string& path, const std::string& more = "") const {
    return Reading{"exec curl --silent --show-error --fail-with-body -X " + method + ' ' + more + ' ' + endpoint() +
                   path}
        .rest();
  }

  Reading program_;
  json where_;
};

/// A machine whose only S3 keys are those that a test provides.
class S3MetadataKeys : public testing::Test {
 protected:
  void SetUp() override {
    for (const auto* name : kNames) ::unsetenv(name);
    ::setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/credentials", 1);
    ::setenv("AWS_CONFIG_FILE", "/nonexistent/config", 1);
    config_.credentials.reset();
  }
  void TearDown() override {
    storage_.reset();
    for (const auto* name : kNames) ::unsetenv(name);
  }

  /// Gives out the keys of a session, which the server refuses without their token.
  void start_service(int seconds = 900) {
    service_.emplace(server_.at("session_access_key"), server_.at("session_secret_key"), server_.at("session_token"),
                     seconds);
  }
  void use_container() {
    ::setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", service_->container_uri().c_str(), 1);
    ::setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", service_->container_token().c_str(), 1);
  }
  void use_ec2() { ::setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service_->endpoint().c_str(), 1); }

  S3Storage& storage() {
    if (!storage_) storage_ = std::make_unique<S3Storage>(place_, config_);
    return *storage_;
  }
  void forget_storage() { storage_.reset(); }
  void write() { storage().write("object", std::array<Bytes, 1>{bytes_of("content")}); }
  void write_read_and_remove() {
    write();
    EXPECT_EQ(storage().read_text("object", 100), "content");
    storage().remove("object");
  }

  template <class Operation>
  static double seconds_of(Operation&& operation) {
    const auto start = std::chrono::steady_clock::now();
    std::forward<Operation>(operation)();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  /// The number of threads of this process.
  static std::ptrdiff_t threads() { return std::distance(std::filesystem::directory_iterator{"/proc/self/task"}, {}); }

  /// The error of prepare(), which must come soon after the time for a search, of 10 s at most.
  std::string refusal() {
    const auto start = std::chrono::steady_clock::now();
    auto text = storage_error([&] { S3Storage{place_, config_}.prepare(); });
    EXPECT_LT(std::chrono::steady_clock::now() - start, 30s) << text;
    EXPECT_THAT(text, AllOf(HasSubstr(place_.text("")), HasSubstr("no credentials were found"),
                            HasSubstr("AWS_ACCESS_KEY_ID"), HasSubstr("profile \"default\"")));
    return text;
  }

  json server_ = s3_server("ceph");
  S3Config config_ = s3_config(server_);
  S3Place place_ = s3_place(server_, "keys");
  std::optional<MetadataService> service_;

 private:
  static constexpr std::array kNames{"AWS_ACCESS_KEY_ID",
                                     "AWS_SECRET_ACCESS_KEY",
                                     "AWS_SESSION_TOKEN",
                                     "AWS_PROFILE",
                                     "AWS_CONFIG_FILE",
                                     "AWS_SHARED_CREDENTIALS_FILE",
                                     "AWS_WEB_IDENTITY_TOKEN_FILE",
                                     "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                     "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                     "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                                     "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                                     "AWS_EC2_METADATA_SERVICE_ENDPOINT",
                                     "AWS_EC2_METADATA_DISABLED"};
  std::unique_ptr<S3Storage> storage_;
};

TEST_F(S3MetadataKeys, OfAContainerAreAskedForOnce) {
  start_service();
  use_container();
  write_read_and_remove();
  EXPECT_EQ(service_->counters().at("container_keys"), 1);
}

TEST_F(S3MetadataKeys, OfAContainerComeForTheTokenInAFile) {
  const TemporaryFolder folder;
  start_service();
  use_container();
  ::unsetenv("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  const auto file = folder.file("token", service_->container_token());
  ::setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file.c_str(), 1);
  write_read_and_remove();
}

TEST_F(S3MetadataKeys, OfEc2ComeForATokenOfVersionTwo) {
  start_service();
  use_ec2();
  write_read_and_remove();
  const auto counters = service_->counters();
  EXPECT_EQ(counters.at("token"), 1);
  EXPECT_EQ(counters.at("ec2_keys"), 1);
}

TEST_F(S3MetadataKeys, AreAskedForAfterEnvironmentAndProfileAndOfAContainerBeforeEc2) {
  const TemporaryFolder folder;
  start_service();
  use_container();
  use_ec2();
  const auto lines = "aws_access_key_id = " + server_.at("access_key").get<std::string>() +
                     "\naws_secret_access_key = " + server_.at("secret_key").get<std::string>() + '\n';
  const auto file = folder.file("credentials", "[default]\n" + lines);
  ::setenv("AWS_SHARED_CREDENTIALS_FILE", file.c_str(), 1);
  S3Storage{place_, config_}.prepare();
  ::setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/credentials", 1);
  ::setenv("AWS_ACCESS_KEY_ID", server_.at("access_key").get<std::string>().c_str(), 1);
  ::setenv("AWS_SECRET_ACCESS_KEY", server_.at("secret_key").get<std::string>().c_str(), 1);
  S3Storage{place_, config_}.prepare();
  EXPECT_EQ(service_->counters().at("container_keys"), 0);
  ::unsetenv("AWS_ACCESS_KEY_ID");
  ::unsetenv("AWS_SECRET_ACCESS_KEY");
  S3Storage{place_, config_}.prepare();
  EXPECT_GE(service_->counters().at("container_keys"), 1);
  EXPECT_EQ(service_->counters().at("ec2_keys"), 0);
}

TEST_F(S3MetadataKeys, AreNotAskedForThroughAProxy) {
  start_service();
  use_ec2();
  ::setenv("HTTP_PROXY", "http://127.0.0.1:9", 1);
  const auto by_name = "http://localhost" + service_->endpoint().substr(service_->endpoint().rfind(':'));
  ::setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", by_name.c_str(), 1);
  write_read_and_remove();  // the server at 127.0.0.1 is listed in NO_PROXY
  ::unsetenv("HTTP_PROXY");
}

TEST_F(S3MetadataKeys, AreRenewedFiveMinutesBeforeTheyExpire) {
  start_service(303);
  use_container();
  service_->hand_out({{"AccessKeyId", server_.at("other_access_key")},
                      {"SecretAccessKey", server_.at("other_secret_key")},
                      {"Token", "of no use beside keys without an end"}});
  EXPECT_THAT(storage_error([&] { write(); }), HasSubstr("403 AccessDenied"));
  EXPECT_EQ(service_->counters().at("container_keys"), 1);
  service_->hand_out({{"AccessKeyId", server_.at("session_access_key")},
                      {"SecretAccessKey", server_.at("session_secret_key")},
                      {"Token", server_.at("session_token")}});
  std::this_thread::sleep_for(4s);
  write_read_and_remove();
}

TEST_F(S3MetadataKeys, AreAskedForOnceMoreIfTheServerSaysThatTheyHaveExpired) {
  start_service();
  use_container();
  const FaultProxy proxy{server_};
  config_.endpoint = proxy.endpoint();
  write();
  EXPECT_EQ(service_->counters().at("container_keys"), 1);
  for (const auto* code : {"ExpiredToken", "InvalidToken"}) {
    proxy.rule({{"action", "status"}, {"status", 403}, {"code", code}, {"times", 1}});
    write();
    EXPECT_EQ(proxy.requests().size(), 2U) << code;
  }
  EXPECT_EQ(service_->counters().at("container_keys"), 3);
  proxy.rule({{"action", "status"}, {"status", 403}, {"code", "ExpiredToken"}});
  EXPECT_THAT(storage_error([&] { write(); }), HasSubstr("403 ExpiredToken"));
  EXPECT_EQ(proxy.requests().size(), 2U) << "the keys were renewed more than once";
  service_->fail(1'000'000);
  proxy.rule({{"action", "status"}, {"status", 403}, {"code", "ExpiredToken"}, {"times", 1}});
  write();  // with the keys at hand, which the real server accepts
}

TEST_F(S3MetadataKeys, AtHandAreUsedUntilTheyExpireWhileTheServiceIsAway) {
  start_service(14);  // long enough for a busy machine to run the next lines
  use_container();
  write();
  service_->fail(1'000'000);
  write_read_and_remove();
  EXPECT_GE(service_->counters().at("failed"), 1);
  std::this_thread::sleep_for(15s);
  EXPECT_THAT(storage_error([&] { write(); }), HasSubstr("no credentials were found"));
}

TEST_F(S3MetadataKeys, OfAServiceThatFailsAreReportedMissingInOneSentence) {
  start_service();
  service_->fail(1'000'000);
  use_ec2();
  EXPECT_THAT(refusal(), HasSubstr("asked the metadata service " + service_->endpoint() + " (EC2)"));
  EXPECT_GE(service_->counters().at("failed"), 1);
  use_container();
  EXPECT_THAT(refusal(), HasSubstr("asked the metadata service " + service_->endpoint() +
                                   " (AWS_CONTAINER_CREDENTIALS_FULL_URI)"));
  ::setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "wrong", 1);
  service_->fail(0);
  EXPECT_THAT(refusal(), HasSubstr("AWS_CONTAINER_CREDENTIALS_FULL_URI"));
}

TEST_F(S3MetadataKeys, OfAServiceThatHangsAreNotWaitedFor) {
  config_.credentials_timeout = 2s;
  start_service();
  service_->stall(60);
  use_ec2();
  EXPECT_THAT(refusal(), AllOf(HasSubstr(service_->endpoint()), HasSubstr("(EC2)")));
  use_container();
  EXPECT_THAT(refusal(), AllOf(HasSubstr(service_->endpoint()), HasSubstr("did not answer in time")));
}

TEST_F(S3MetadataKeys, AreFoundWhenTheServiceAnswersAgain) {
  config_.credentials_timeout = 1s;
  start_service();
  service_->stall(60);
  use_container();
  EXPECT_THAT(storage_error([&] { write(); }), HasSubstr("did not answer in time"));
  service_->stall(0);
  std::this_thread::sleep_for(1100ms);  // the pause after a failed search is as long as the search
  write_read_and_remove();
}

TEST_F(S3MetadataKeys, OfAServiceThatHangsAreNotAskedForByEveryRequest) {
  config_.credentials_timeout = 2s;
  start_service();
  service_->stall(60);
  use_container();
  EXPECT_GE(seconds_of([&] { storage_error([&] { write(); }); }), 1.9);
  const auto later = seconds_of([&] {
    for (int request = 0; request < 5; ++request)
      EXPECT_THAT(storage_error([&] { write(); }), HasSubstr("did not answer in time"));
  });
  EXPECT_LT(later, 1.5);
  std::this_thread::sleep_for(2s);
  EXPECT_GE(seconds_of([&] { storage_error([&] { write(); }); }), 1.9)
      << "the service must be asked again after the pause";
  std::this_thread::sleep_for(2200ms);
  EXPECT_LT(seconds_of([&] { storage_error([&] { write(); }); }), 1.5) << "the second pause must be twice as long";
}

TEST_F(S3MetadataKeys, AreAskedForSoonAgainWhileNoneAreAtHand) {
  config_.credentials_timeout = 1s;
  start_service();
  service_->stall(60);
  use_container();
  for (int search = 0; search < 4; ++search) {  // a pause that doubled each time would be eight seconds by now
    EXPECT_GE(seconds_of([&] { storage_error([&] { write(); }); }), 0.9) << search;
    std::this_thread::sleep_for(2100ms);
  }
  service_->stall(0);
  write();
}

TEST_F(S3MetadataKeys, AreAskedForWhenThoseAtHandExpireHoweverLongThePauseIs) {
  config_.credentials_timeout = 1s;
  start_service(14);
  use_container();
  write();
  service_->stall(60);
  const auto start = std::chrono::steady_clock::now();
  const auto until = [&](double seconds) {
    std::this_thread::sleep_until(start + std::chrono::duration<double>{seconds});
    write();
  };
  // Each search fails after a second. After the one that fails at 6.6 s the service is not asked until 10.6 s, after
  // the one that fails at 11.9 s not until 19.9 s.
  for (const double seconds : {0.0, 2.3, 5.6}) until(seconds);
  until(10.9);
  service_->stall(0);
  until(15.5);
}

TEST_F(S3MetadataKeys, AtHandAreUsedAtOnceWhileTheServiceHangs) {
  config_.credentials_timeout = 2s;
  start_service(303);  // the library renews keys five minutes before they expire
  use_container();
  write();
  service_->stall(60);
  std::this_thread::sleep_for(4s);
  // Reads, since the server writes to a disk that other tests use too.
  const auto read_object = [&] { EXPECT_EQ(storage().read_text("object", 100), "content"); };
  EXPECT_GE(seconds_of(read_object), 1.9);
  EXPECT_LT(seconds_of(read_object), 1.5);
}

TEST_F(S3MetadataKeys, OfALateAnswerAreUsedAndItsThreadsEnd) {
  config_.credentials_timeout = 1s;
  start_service();
  const auto before = threads();
  service_->stall(3);
  use_container();
  EXPECT_THAT(storage_error([&] { write(); }), HasSubstr("did not answer in time"));
  std::this_thread::sleep_for(3s);
  service_->stall(0);
  EXPECT_LT(seconds_of([&] { storage().list(""); }), 0.9);
  EXPECT_GT(threads(), before);
  forget_storage();
  EXPECT_LE(threads(), before) << "the threads of the late search must have ended";
}

TEST_F(S3MetadataKeys, NameTheTokenFileThatCannotBeRead) {
  config_.credentials_timeout = 1s;
  start_service();
  use_container();
  ::setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/nonexistent/token", 1);
  EXPECT_THAT(refusal(), HasSubstr("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=/nonexistent/token cannot be read"));
}

TEST_F(S3MetadataKeys, NameTheFixedAddressesAndWhatForbidsToAsk) {
  config_.credentials_timeout = 2s;
  EXPECT_THAT(refusal(), HasSubstr("http://169.254.169.254 (EC2)"));
  ::setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("AWS_EC2_METADATA_DISABLED is set"), Not(HasSubstr("169.254"))));
  ::setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://192.0.2.1/keys?secret", 1);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("http://192.0.2.1 (AWS_CONTAINER_CREDENTIALS_FULL_URI), which is neither"),
                               Not(HasSubstr("?secret"))));
  ::setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/credentials/one", 1);
  EXPECT_THAT(refusal(), HasSubstr("http://169.254.170.2 (AWS_CONTAINER_CREDENTIALS_RELATIVE_URI)"));
}

}  // namespace
}  // namespace ddpxx::s3_credentials_test
