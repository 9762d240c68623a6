// s3_place_test.cpp — places in S3, the texts that S3 uses, and the sources of a configuration; no server is needed.
#include <array>
#include <aws/cal/hash.h>
#include <aws/common/error.h>
#include <aws/io/io.h>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/storage/s3/client.hpp>
#include <ddpxx/storage/s3/parts_stream.hpp>
#include <ddpxx/storage/s3/reply.hpp>
#include <ddpxx/storage/s3/text.hpp>
#include <ddpxx/storage/s3_config.hpp>
#include <ddpxx/storage/s3_place.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx::s3_place_test {
namespace {

using detail::content_md5;
using detail::fits_in_host_name;
using detail::has_encoded_keys;
using detail::listed_key;
using detail::percent_decode;
using detail::percent_encode;
using detail::percent_encode_path;
using detail::s3_credentials_at_hand;
using detail::s3_reason;
using detail::S3Client;
using detail::S3PartsStream;
using detail::S3Reply;
using detail::S3Runtime;
using detail::xml_elements;
using detail::xml_text;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// Sets these variables, and unsets all other variables of S3 until the end of the test.
class Environment {
 public:
  explicit Environment(const std::vector<std::pair<const char*, std::string>>& variables) {
    for (const auto* name : kNames) ::unsetenv(name);
    ::setenv("AWS_CONFIG_FILE", "/nonexistent/config", 1);
    for (const auto& [name, value] : variables) ::setenv(name, value.c_str(), 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    for (const auto* name : kNames) ::unsetenv(name);
  }

 private:
  static constexpr std::array kNames{
      "AWS_REGION",        "AWS_DEFAULT_REGION",    "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3",
      "AWS_PROFILE",       "AWS_CA_BUNDLE",         "AWS_CONFIG_FILE",  "DDPXX_S3_ADDRESSING",
      "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"};
};

template <class Operation>
std::string config_error(Operation operation) {
  try {
    operation();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(S3Place, IsABucketAndAPrefix) {
  EXPECT_EQ(parse_s3_place("s3://bucket"), (S3Place{"bucket", ""}));
  EXPECT_EQ(parse_s3_place("s3://bucket/"), (S3Place{"bucket", ""}));
  EXPECT_EQ(parse_s3_place("s3://my.bucket-1/runs/gpt two"), (S3Place{"my.bucket-1", "runs/gpt two/"}));
  EXPECT_EQ(parse_s3_place("s3://bucket/runs//"), (S3Place{"bucket", "runs/"}));
  EXPECT_EQ(parse_s3_place("s3://bucket/runs").key("step-1/a"), "runs/step-1/a");
  EXPECT_EQ(parse_s3_place("s3://bucket/runs").text("step-1/a"), "s3://bucket/runs/step-1/a");
}

TEST(S3Place, SaysWhatIsWrongWithOne) {
  EXPECT_THAT(config_error([] { parse_s3_place("s3:///runs"); }), HasSubstr("names no bucket"));
  EXPECT_THAT(config_error([] { parse_s3_place("s3://buc?ket/runs"); }),
              HasSubstr("\"buc?ket\" cannot be the name of a bucket"));
  EXPECT_THAT(config_error([] { parse_s3_place("http://bucket"); }), HasSubstr("does not begin with s3://"));
  EXPECT_THAT(config_error([] { parse_s3_place("s3://bucket/a//b"); }), HasSubstr("s3://bucket/prefix"));
  EXPECT_THAT(config_error([] { parse_s3_place("s3://bucket/../b"); }), HasSubstr("s3://bucket/prefix"));
}

TEST(S3Text, EncodesAllButPlainCharacters) {
  EXPECT_EQ(percent_encode_path("a/b c+%\xc3\xbc~"), "a/b%20c%2B%25%C3%BC~");
  EXPECT_EQ(percent_encode("a/b"), "a%2Fb");
  EXPECT_EQ(percent_decode("a%2Fb+c%20d%C3%BC"), "a/b c d\xc3\xbc");
  EXPECT_EQ(percent_decode("50%"), "50%");
  EXPECT_EQ(percent_decode("%zz%4"), "%zz%4");
}

TEST(S3Text, FindsElementsAndTheirTexts) {
  const std::string xml =
      "<List><Key>a&amp;b&#x3c;&#39;&unknown;&</Key><Item><Key>1</Key></Item><Item/><Item>2</Item></List>";
  EXPECT_EQ(xml_text(xml, "Key"), "a&b<'&unknown;&");
  EXPECT_THAT(xml_elements(xml, "Item"), ElementsAre("<Key>1</Key>", "2"));
  EXPECT_EQ(xml_text(xml, "Absent"), "");
  EXPECT_EQ(xml_text("<Key>unfinished", "Key"), "");
}

TEST(S3Text, DecodesKeysOnlyWhereThePageSaysThatTheyAreEncoded) {
  const std::string entry = "<Key>a+b%2Fc&amp;d</Key>";
  EXPECT_EQ(listed_key(entry, "Key", has_encoded_keys("<EncodingType>url</EncodingType>" + entry)), "a b/c&d");
  EXPECT_EQ(listed_key(entry, "Key", has_encoded_keys(entry)), "a+b%2Fc&d");
}

TEST(S3Place, TellsWhichBucketsFitIntoAServersName) {
  EXPECT_TRUE(fits_in_host_name("my-bucket-1", true));
  EXPECT_TRUE(fits_in_host_name("my.bucket", false));
  for (const auto* bucket : {"my.bucket", "MyBucket", "my_bucket"}) EXPECT_FALSE(fits_in_host_name(bucket, true));
  for (const auto* bucket : {"MyBucket", "my_bucket"}) EXPECT_FALSE(fits_in_host_name(bucket, false));
}

TEST(S3PartsStream, ReadsFromAnyPlaceAcrossItsParts) {
  const std::array parts{bytes_of("ab"), bytes_of(""), bytes_of("cde")};
  const auto stream = S3PartsStream::make(parts);
  for (const auto& [offset, basis, expected] : {std::tuple{0, AWS_SSB_BEGIN, "abcde"},
                                                {1, AWS_SSB_BEGIN, "bcde"},
                                                {2, AWS_SSB_BEGIN, "cde"},
                                                {5, AWS_SSB_BEGIN, ""},
                                                {-1, AWS_SSB_END, "e"}}) {
    ASSERT_EQ(aws_input_stream_seek(stream.get(), offset, basis), AWS_OP_SUCCESS);
    std::string text(8, '?');
    auto buffer = aws_byte_buf_from_empty_array(text.data(), text.size());
    ASSERT_EQ(aws_input_stream_read(stream.get(), &buffer), AWS_OP_SUCCESS);
    EXPECT_EQ(text.substr(0, buffer.len), expected);
    aws_stream_status status{};
    aws_input_stream_get_status(stream.get(), &status);
    EXPECT_TRUE(status.is_end_of_stream);
  }
  EXPECT_NE(aws_input_stream_seek(stream.get(), 6, AWS_SSB_BEGIN), AWS_OP_SUCCESS);
  EXPECT_EQ(content_md5(parts), "q1a02StAcTrMWviZhdS3hg==") << "expected the MD5 sum of abcde";
}

TEST(S3PartsStream, SaysWhereTheSystemHasNoMd5) {
  const auto upload = [] {
    aws_set_md5_new_fn([](aws_allocator*) -> aws_hash* {
      aws_raise_error(AWS_ERROR_UNSUPPORTED_OPERATION);
      return nullptr;
    });
    try {
      content_md5(std::array{bytes_of("abcde")});
    } catch (const Error& error) {
      std::fputs(error.what(), stderr);
      std::_Exit(static_cast<int>(error.code()));
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(upload(), testing::ExitedWithCode(static_cast<int>(Errc::storage)), "cannot compute the MD5 sum.*FIPS");
}

TEST(S3Config, UsesAmazonByDefault) {
  const Environment environment{{}};
  const auto config = s3_config_from_environment();
  EXPECT_EQ(config.region, "us-east-1");
  EXPECT_EQ(config.addressing, S3Addressing::virtual_host);
  EXPECT_EQ((S3Client{"bucket", config}.endpoint()), "https://s3.us-east-1.amazonaws.com");
}

TEST(S3Config, ReadsTheVariablesOfOtherPrograms) {
  const Environment environment{{{"AWS_DEFAULT_REGION", "eu-west-1"},
                                 {"AWS_ENDPOINT_URL", "http://all:1"},
                                 {"AWS_PROFILE", "lab"},
                                 {"AWS_CA_BUNDLE", "/etc/ca.pem"}}};
  auto config = s3_config_from_environment();
  EXPECT_EQ(config.region, "eu-west-1");
  EXPECT_EQ(config.endpoint, "http://all:1");
  EXPECT_EQ(config.addressing, S3Addressing::path);
  EXPECT_EQ(config.profile, "lab");
  EXPECT_EQ(config.ca_bundle, "/etc/ca.pem");
  ::setenv("AWS_REGION", "eu-west-2", 1);
  ::setenv("AWS_ENDPOINT_URL_S3", "http://s3:2", 1);
  ::setenv("DDPXX_S3_ADDRESSING", "virtual", 1);
  config = s3_config_from_environment();
  EXPECT_EQ(config.region, "eu-west-2");
  EXPECT_EQ(config.endpoint, "http://s3:2");
  EXPECT_EQ(config.addressing, S3Addressing::virtual_host);
  ::setenv("DDPXX_S3_ADDRESSING", "auto", 1);
  EXPECT_THAT(config_error([] { s3_config_from_environment(); }), HasSubstr("expected path or virtual"));
}

TEST(S3Config, ReadsTheProfile) {
  const TemporaryFolder folder;
  const auto file = folder.file("config",
                                "[default]\nregion = ap-south-1\n"
                                "[profile lab]\nregion = eu-north-1\nendpoint_url = https://store.lab:8080\n");
  const Environment environment{{{"AWS_CONFIG_FILE", file}}};
  EXPECT_EQ(s3_config_from_environment().region, "ap-south-1");
  EXPECT_EQ(s3_config_from_environment().endpoint, "");
  ::setenv("AWS_PROFILE", "lab", 1);
  EXPECT_EQ(s3_config_from_environment().region, "eu-north-1");
  EXPECT_EQ(s3_config_from_environment().endpoint, "https://store.lab:8080");
  ::setenv("AWS_REGION", "us-east-2", 1);
  EXPECT_EQ(s3_config_from_environment().region, "us-east-2");
}

TEST(S3Config, RefusesWhatIsNoEndpoint) {
  for (const auto* endpoint : {"localhost:9000", "ftp://host", "http://", "http://host/path"}) {
    S3Config config;
    config.endpoint = endpoint;
    EXPECT_THAT(config_error([&] { S3Client("bucket", config); }), HasSubstr(endpoint));
  }
}

TEST(S3Config, NamesWhatGaveAnEndpoint) {
  const TemporaryFolder folder;
  const auto file = folder.file("config", "[profile lab]\nendpoint_url = store.lab\n");
  const Environment environment{{{"AWS_CONFIG_FILE", file}, {"AWS_PROFILE", "lab"}}};
  const auto told = [] { return config_error([] { S3Client("bucket", s3_config_from_environment()); }); };
  EXPECT_THAT(told(), HasSubstr("endpoint_url of profile \"lab\": store.lab: expected http[s]://host[:port]"));
  ::setenv("AWS_ENDPOINT_URL", "all.lab", 1);
  EXPECT_THAT(told(), HasSubstr("AWS_ENDPOINT_URL: all.lab: expected"));
  ::setenv("AWS_ENDPOINT_URL_S3", "s3.lab", 1);
  EXPECT_THAT(told(), HasSubstr("AWS_ENDPOINT_URL_S3: s3.lab: expected"));
  S3Config config;
  config.endpoint = "program.lab";
  EXPECT_THAT(config_error([&] { S3Client("bucket", config); }),
              HasSubstr("S3Config::endpoint: program.lab: expected"));

  const S3Reply refused{.error = AWS_IO_SOCKET_CONNECTION_REFUSED};
  const auto advice = [&](const S3Config& tried) { return s3_reason(refused, tried, "http://server"); };
  EXPECT_THAT(advice(config), HasSubstr("check S3Config::endpoint"));
  EXPECT_THAT(advice(s3_config_from_environment()), HasSubstr("check AWS_ENDPOINT_URL_S3"));
  EXPECT_THAT(advice({}), AllOf(HasSubstr("check AWS_REGION"), HasSubstr("set AWS_ENDPOINT_URL")));
}

TEST(S3Config, NeverShowsASecretInAnAddress) {
  S3Config config;
  config.endpoint = "https://KEY:SECRET@host:9000";
  const auto endpoint = config_error([&] { S3Client("bucket", config); });
  EXPECT_THAT(endpoint, AllOf(HasSubstr("https://***@host:9000"), Not(HasSubstr("SECRET"))));
  const auto place = config_error([] { parse_s3_place("s3://KEY:SEC/RET@bucket/prefix"); });
  EXPECT_THAT(place, AllOf(HasSubstr("s3://***@bucket/prefix"), Not(HasSubstr("RET@"))));
}

TEST(S3Runtime, OfCertificatesThatAreNotThereIsAnErrorEachTime) {
  S3Config config;
  config.ca_bundle = "/no/such/file.pem";
  for (int again = 0; again < 3; ++again) EXPECT_THROW(S3Runtime{config}, Error);
}

TEST(S3Runtime, ReadsCertificatesOnlyWhereTlsMayBeSpoken) {
  const Environment none{{}};
  S3Config config;
  config.ca_bundle = "/no/such/file.pem";
  config.endpoint = "http://127.0.0.1:1";
  EXPECT_THROW(S3Runtime{config}, Error) << "keys must be found without a metadata service";
  config.credentials = S3Credentials{"key", "secret", ""};
  EXPECT_NO_THROW(S3Runtime{config});
  config.endpoint = "https://127.0.0.1:1";
  EXPECT_THROW(S3Runtime{config}, Error);
}

TEST(S3Config, HasKeysAtHandThatStandInTheEnvironment) {
  S3Config config;
  {
    const Environment half{{{"AWS_ACCESS_KEY_ID", "key"}}};
    EXPECT_FALSE(s3_credentials_at_hand(config));
  }
  const Environment whole{
      {{"AWS_ACCESS_KEY_ID", "key"}, {"AWS_SECRET_ACCESS_KEY", "secret"}, {"AWS_SESSION_TOKEN", "token"}}};
  const auto found = s3_credentials_at_hand(config);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->access_key, "key");
  EXPECT_EQ(found->secret_key, "secret");
  EXPECT_EQ(found->session_token, "token");
  config.credentials = S3Credentials{"given", "secret", ""};
  EXPECT_EQ(s3_credentials_at_hand(config)->access_key, "given");
}

}  // namespace
}  // namespace ddpxx::s3_place_test
