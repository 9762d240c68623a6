// ddpxx/storage/s3_config.hpp — how to reach an S3 server, and how long to wait for it.
#pragma once

#include <aws/common/string.h>
#include <aws/sdkutils/aws_profile.h>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/storage/s3/library.hpp>

namespace ddpxx {

/// Where the bucket's name stands in an address: after the server's name (https://server/bucket), or before it
/// (https://bucket.server) if it is valid there.
enum class S3Addressing { path, virtual_host };

struct S3Credentials {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  ///< Empty for credentials that do not expire.
};

/// The defaults are for Amazon's servers.
struct S3Config {
  std::string region = "us-east-1";
  std::string endpoint;  ///< http[s]://host[:port]; empty: Amazon's server of the region.
  S3Addressing addressing = S3Addressing::virtual_host;
  std::string profile = "default";           ///< A profile of ~/.aws/config and ~/.aws/credentials.
  std::string ca_bundle;                     ///< A file of certificates to trust; empty: the system's.
  std::optional<S3Credentials> credentials;  ///< None: environment, profile, web identity, then a container's or EC2's.

  std::uint64_t part_bytes = std::uint64_t{16} << 20U;  ///< Part size of a large object; at least 5 MiB.
  std::uint32_t connections = 16;
  std::int64_t page_keys = 1000;  ///< Keys per page of a listing; servers return at most 1000.
  std::uint32_t retries = 12;     ///< Retries of one request: enough for a server that is down for a minute.
  int attempts = 4;               ///< Attempts at a whole operation, if retrying one request is not enough.
  std::chrono::milliseconds first_pause{500};  ///< Pause before the second attempt, of either kind; doubles up to 20 s.
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::seconds stall_timeout{30};                       ///< How long a connection may transfer nothing.
  std::chrono::milliseconds credentials_timeout{10'000};        ///< How long a search for credentials may take.
  std::chrono::seconds upload_max_age{std::chrono::hours{24}};  ///< Unfinished uploads older than this are aborted.
};

/// Reads the variables that other S3 programs read as well: AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, AWS_REGION or
/// AWS_DEFAULT_REGION, AWS_PROFILE, AWS_CA_BUNDLE; then from `region` and `endpoint_url` of the profile. A server of
/// one's own is addressed by path, Amazon's by virtual host, unless DDPXX_S3_ADDRESSING says path or virtual.
/// Errors  `config` for a DDPXX_S3_ADDRESSING that is neither.
S3Config s3_config_from_environment();

namespace detail {

/// Fills region and endpoint_url from the profile. A missing file or profile changes nothing.
class S3Profile {
 public:
  explicit S3Profile(const std::string& name) {
    auto* allocator = s3_library();
    const S3Owned<aws_string, aws_string_destroy> path{aws_get_config_file_path(allocator, nullptr)};
    if (path) profiles_.reset(aws_profile_collection_new_from_file(allocator, path.get(), AWS_PST_CONFIG));
    const S3Owned<aws_string, aws_string_destroy> key{aws_string_new_from_c_str(allocator, name.c_str())};
    if (profiles_) profile_ = aws_profile_collection_get_profile(profiles_.get(), key.get());
  }

  std::optional<std::string> value(const char* property) const {
    if (profile_ == nullptr) return std::nullopt;
    const S3Owned<aws_string, aws_string_destroy> key{aws_string_new_from_c_str(s3_library(), property)};
    const auto* found = aws_profile_get_property(profile_, key.get());
    if (found == nullptr) return std::nullopt;
    return std::string{aws_string_c_str(aws_profile_property_get_value(found))};
  }

 private:
  S3Owned<aws_profile_collection, aws_profile_collection_release> profiles_;
  const aws_profile* profile_ = nullptr;
};

/// Returns the name of what has given `config.endpoint`, for messages.
inline std::string s3_endpoint_source(const S3Config& config) {
  for (const auto* variable : {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"})
    if (environment(variable) == config.endpoint) return variable;
  if (S3Profile{config.profile}.value("endpoint_url") == config.endpoint)
    return "endpoint_url of profile \"" + config.profile + '"';
  return "S3Config::endpoint";  // the program has set it
}

/// Returns the credentials that need no search: the configuration's, else the environment's.
inline std::optional<S3Credentials> s3_credentials_at_hand(const S3Config& config) {
  if (config.credentials) return config.credentials;
  const auto access_key = environment("AWS_ACCESS_KEY_ID");
  const auto secret_key = environment("AWS_SECRET_ACCESS_KEY");
  if (!access_key || !secret_key) return std::nullopt;
  return S3Credentials{*access_key, *secret_key, environment("AWS_SESSION_TOKEN").value_or("")};
}

}  // namespace detail

inline S3Config s3_config_from_environment() {
  const auto first_of = [](std::optional<std::string> first, std::optional<std::string> second) {
    return first ? std::move(first) : std::move(second);
  };
  S3Config config;
  config.profile = environment("AWS_PROFILE").value_or(config.profile);
  config.ca_bundle = environment("AWS_CA_BUNDLE").value_or("");
  auto region = first_of(environment("AWS_REGION"), environment("AWS_DEFAULT_REGION"));
  auto endpoint = first_of(environment("AWS_ENDPOINT_URL_S3"), environment("AWS_ENDPOINT_URL"));
  if (!region || !endpoint) {
    const detail::S3Profile profile{config.profile};
    region = first_of(std::move(region), profile.value("region"));
    endpoint = first_of(std::move(endpoint), profile.value("endpoint_url"));
  }
  config.region = region.value_or(config.region);
  config.endpoint = endpoint.value_or("");
  const auto addressing = environment("DDPXX_S3_ADDRESSING").value_or(config.endpoint.empty() ? "virtual" : "path");
  if (addressing != "path" && addressing != "virtual")
    throw Error{Errc::config, "DDPXX_S3_ADDRESSING=" + addressing + ": expected path or virtual"};
  config.addressing = addressing == "path" ? S3Addressing::path : S3Addressing::virtual_host;
  return config;
}

}  // namespace ddpxx
