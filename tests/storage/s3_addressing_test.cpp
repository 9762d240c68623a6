// s3_addressing_test.cpp — buckets in the server's name, as Amazon requires them, and buckets whose names cannot be
// part of a server's name.
#include <array>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/storage/s3_storage.hpp>

#include "s3_servers.hpp"
#include "tls_proxy.hpp"

namespace ddpxx::s3_addressing_test {
namespace {

class S3Addresses : public testing::TestWithParam<std::string> {
 protected:
  nlohmann::json server_ = s3_server(GetParam());
  S3Config config_ = s3_config(server_);
  S3Place place_ = s3_place(server_, "addressing");
};

INSTANTIATE_TEST_SUITE_P(, S3Addresses, testing::Values("ceph", "seaweedfs"),
                         [](const auto& server) { return server.param; });

/// The bucket 127 of the server 0.0.1 is at 127.0.0.1, so that no DNS names are needed. The test's server has no bucket
/// 127 and takes the first part of the key for the bucket, so that all operations but lists work as on Amazon's
/// servers.
TEST_P(S3Addresses, CarriesObjectsOfABucketInTheServersName) {
  const FaultProxy proxy{server_};  // records the host of each request
  proxy.no_rule();
  const std::string scheme = "http://", front = "127.";
  const auto host = proxy.endpoint().substr(scheme.size());
  ASSERT_TRUE(host.starts_with(front));
  auto config = config_;
  config.addressing = S3Addressing::virtual_host;
  config.endpoint = scheme + host.substr(front.size());
  S3Storage storage{{"127", place_.bucket + '/' + place_.prefix}, config};
  storage.prepare();
  const auto large = pattern(12'000'000);  // uploaded in three parts
  storage.write("a large+one", std::array<Bytes, 1>{large});
  EXPECT_TRUE(storage.create("step-1/manifest.json", bytes_of("{}")));
  EXPECT_FALSE(storage.create("step-1/manifest.json", bytes_of("{}")));
  std::vector<std::byte> back(large.size());
  storage.read("a large+one", 0, back);
  EXPECT_TRUE(back == large);
  EXPECT_EQ(storage.read_text("step-1/manifest.json", 10), "{}");
  EXPECT_EQ(storage.read_text("absent", 10), std::nullopt);

  for (const auto& request : proxy.requests()) EXPECT_EQ(request.at("host"), host) << request.at("path");

  S3Storage by_path{place_, config_};
  EXPECT_EQ(by_path.list(""), (std::vector<StoredObject>{{"a large+one", large.size()}, {"step-1/manifest.json", 2}}));
  for (const auto* name : {"a large+one", "step-1/manifest.json"}) storage.remove(name);
  EXPECT_THAT(by_path.list(""), testing::IsEmpty());
}

TEST_P(S3Addresses, NamesABucketByPathThatFitsIntoNoServersName) {
  const FaultProxy proxy{server_};
  proxy.no_rule();
  const TlsProxy with_tls{proxy.endpoint()};
  config_.addressing = S3Addressing::virtual_host;
  config_.ca_bundle = with_tls.ca_bundle();
  for (const auto& [bucket, endpoint] : {std::pair{"Capital", proxy.endpoint()},
                                         {"under_score", proxy.endpoint()},
                                         {"dot.and.tls", with_tls.endpoint()}}) {
    proxy.no_rule();
    config_.endpoint = endpoint;
    S3Storage storage{{bucket, "prefix/"}, config_};
    storage_error([&] { storage.read_text("x", 10); });
    const auto requests = proxy.requests();
    ASSERT_FALSE(requests.empty()) << bucket;
    EXPECT_EQ(requests[0].at("path"), '/' + std::string{bucket} + "/prefix/x");
  }
}

}  // namespace
}  // namespace ddpxx::s3_addressing_test
