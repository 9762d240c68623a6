// s3_tls_test.cpp — a server behind TLS whose certificate is signed by a private authority.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/storage/open_storage.hpp>

#include "s3_servers.hpp"
#include "tls_proxy.hpp"

namespace ddpxx::s3_tls_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class S3Tls : public testing::TestWithParam<std::string> {
 protected:
  nlohmann::json server_ = s3_server(GetParam());
  TlsProxy proxy_{server_.at("endpoint")};
  S3Place place_ = s3_place(server_, "tls");
};

INSTANTIATE_TEST_SUITE_P(, S3Tls, testing::Values("ceph", "seaweedfs"),
                         [](const auto& server) { return server.param; });

TEST_P(S3Tls, CarriesObjectsWhereAwsCaBundleNamesTheAuthority) {
  ::setenv("AWS_CA_BUNDLE", proxy_.ca_bundle().c_str(), 1);
  ::setenv("AWS_ENDPOINT_URL", proxy_.endpoint().c_str(), 1);
  ::setenv("AWS_ACCESS_KEY_ID", server_.at("access_key").get<std::string>().c_str(), 1);
  ::setenv("AWS_SECRET_ACCESS_KEY", server_.at("secret_key").get<std::string>().c_str(), 1);
  const auto storage = open_storage(place_.text(""));
  for (const auto* name : {"AWS_CA_BUNDLE", "AWS_ENDPOINT_URL"}) ::unsetenv(name);
  storage->prepare();
  const auto large = pattern(40'000'000);  // uploaded in three parts
  storage->write("large", std::array<Bytes, 1>{large});
  EXPECT_TRUE(storage->create("manifest.json", bytes_of("{}")));
  std::vector<std::byte> back(large.size());
  storage->read("large", 0, back);
  EXPECT_TRUE(back == large);
  EXPECT_EQ(storage->list("").size(), 2U);
  remove_all(*storage);
  for (const auto* name : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}) ::unsetenv(name);
}

TEST(S3TlsRefusal, OfAnUntrustedCertificateIsOneError) {
  const auto server = s3_server("ceph");
  const TlsProxy proxy{server.at("endpoint")};
  auto config = s3_config(server);
  config.endpoint = proxy.endpoint();
  config.retries = 12;
  config.stall_timeout = std::chrono::seconds{30};
  const auto start = std::chrono::steady_clock::now();
  const auto text = storage_error([&] { S3Storage{s3_place(server, "tls"), config}.prepare(); });
  EXPECT_THAT(text, AllOf(HasSubstr("no trusted connection to " + proxy.endpoint()), HasSubstr("AWS_CA_BUNDLE")));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 0);
  // The library delays its answer to a failed handshake by 10 to 30 s, so that the time reveals nothing.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds{45});
}

}  // namespace
}  // namespace ddpxx::s3_tls_test
