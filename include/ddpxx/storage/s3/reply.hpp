// ddpxx/storage/s3/reply.hpp — a request to S3, its reply, and what an error means for the user.
#pragma once

#include <algorithm>
#include <array>
#include <aws/auth/auth.h>
#include <aws/common/error.h>
#include <aws/http/http.h>
#include <aws/io/io.h>
#include <aws/s3/s3.h>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/storage/s3_config.hpp>
#include <ddpxx/storage/s3_place.hpp>

namespace ddpxx::detail {

/// How a body is sent: a large one in several parts, or in one piece (up to 5 GiB), which a condition needs.
enum class S3Upload { in_parts, in_one_piece };

/// A request to S3.
struct S3Request {
  std::string operation;  ///< Such as "GetObject". The AWS library needs it.
  std::string method;
  std::string key;    ///< Empty for a request about the bucket itself.
  std::string query;  ///< Percent-encoded.
  std::vector<std::pair<std::string, std::string>> headers{};
  std::optional<std::span<const Bytes>> body{};  ///< The content that a PUT sends.
  S3Upload upload = S3Upload::in_parts;
  std::optional<std::span<std::byte>> buffer{};  ///< Receives the content of a GET; without it, the reply does.
};

struct S3Reply {
  int status = 0;             ///< HTTP status; 0 if no valid reply arrived.
  int error = 0;              ///< The AWS library's error number; 0 for a success.
  int credentials_error = 0;  ///< The AWS library's error number of the search for credentials, if that failed.
  std::string code{};         ///< The server's name for the error, such as NoSuchBucket.
  std::string operation{};    ///< The request that failed, if the operation took several.
  std::string body{};         ///< The content, if the request had no `buffer`.
  std::size_t filled = 0;     ///< Bytes written to `buffer`.
  std::uint64_t size = 0;     ///< Size of the whole object, if a range was requested.
  std::string version{};      ///< The header ETag.
  std::string writer{};       ///< The header kS3WriterHeader.

  bool ok() const noexcept { return error == 0; }
};

/// The header that holds a random number of the object's writer, stored in the object's metadata.
inline constexpr std::string_view kS3WriterHeader = "x-amz-meta-ddpxx-writer";

/// True if the server says that the object is missing. It names the error then, except in the reply to HEAD, which has
/// no body: another program between here and the server, such as a load balancer, answers 404 without a name.
inline bool names_absent_object(const S3Reply& reply) {
  return reply.status == 404 && !reply.code.empty() && reply.code != "NoSuchBucket";
}

/// Returns what to check if an answer is not one of S3.
inline std::string s3_server_advice(const S3Config& config) {
  return "check " + (config.endpoint.empty()
                         ? "AWS_REGION, or set AWS_ENDPOINT_URL to reach a server other than Amazon's"
                         : s3_endpoint_source(config) +
                               ": it must name a server of S3, with http:// or https:// as the server has it");
}

/// Returns a sentence that says why the request failed and what to do. It contains no secret.
std::string s3_reason(const S3Reply& reply, const S3Config& config, const std::string& endpoint);

/// True if the error number belongs to the given AWS library.
inline bool is_aws_error_of(unsigned package, int error) {
  return error > 0 && static_cast<unsigned>(error) / AWS_ERROR_ENUM_STRIDE == package;
}

/// True if the request was not sent because no credentials were found.
inline bool no_credentials(const S3Reply& reply) { return is_aws_error_of(AWS_C_AUTH_PACKAGE_ID, reply.error); }

/// True if the server, or a proxy, ignored the range of the request.
inline bool gives_no_ranges(const S3Reply& reply) {
  return reply.error == AWS_ERROR_S3_MISSING_CONTENT_RANGE_HEADER ||
         reply.error == AWS_ERROR_S3_INVALID_CONTENT_RANGE_HEADER;
}

inline std::string credentials_source(const S3Config& config) {
  if (config.credentials) return "the credentials that the program gave";
  return "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or else profile \"" + config.profile +
         "\" of ~/.aws/credentials";
}

/// Returns what to do about an error that a server names `code`; empty if there is no advice.
inline std::string s3_advice(std::string_view code, const S3Config& config) {
  if (code == "SignatureDoesNotMatch")
    return "the secret key does not fit the access key; check " + credentials_source(config);
  if (code == "InvalidAccessKeyId")
    return "the server does not know the access key; check " + credentials_source(config);
  if (code == "ExpiredToken") return "the session has expired; renew the credentials";
  if (code == "InvalidToken")
    return "the session token is not valid; renew the credentials and check AWS_SESSION_TOKEN";
  if (code == "NoSuchBucket") return "make the bucket, or correct the place";
  if (code == "AccessDenied")
    return "these credentials may not do this; let the bucket's owner grant reading, writing, removing and listing";
  if (code == "RequestTimeTooSkewed") return "the clocks of this machine and of the server differ; correct them";
  if (code == "QuotaExceeded") return "remove old objects, or have the quota raised";
  if (code == "SlowDown") return "the server is overloaded; try again later";
  if (code == "PermanentRedirect" || code == "AuthorizationHeaderMalformed" ||
      code == "IllegalLocationConstraintException")
    return "the bucket is in another region than \"" + config.region + "\"; set AWS_REGION";
  return {};
}

/// Returns the service that gives credentials to this machine or container, as the AWS library chooses it; none if the
/// user has turned it off.
inline std::optional<std::string> metadata_service() {
  // Without the path: it is a secret that gives access to the credentials.
  if (environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"))
    return "http://169.254.170.2 (AWS_CONTAINER_CREDENTIALS_RELATIVE_URI)";
  if (const auto address = environment("AWS_CONTAINER_CREDENTIALS_FULL_URI")) {
    const auto host = std::min(address->find("://"), address->size());
    return without_secrets(address->substr(0, address->find('/', std::min(host + 3, address->size())))) +
           " (AWS_CONTAINER_CREDENTIALS_FULL_URI)";
  }
  const auto disabled = environment("AWS_EC2_METADATA_DISABLED").value_or("false");
  if (disabled != "false" && disabled != "False" && disabled != "FALSE") return std::nullopt;
  const auto own = environment("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  return (own ? without_secrets(*own) : "http://169.254.169.254") + " (EC2)";
}

inline std::string where_credentials_are_not(const S3Reply& reply, const S3Config& config) {
  const auto file = [](const char* variable, const char* otherwise) {
    return environment(variable).value_or(otherwise);
  };
  auto text = "no credentials were found: looked for AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, for profile \"" +
              config.profile + "\" in " + file("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials") + " and " +
              file("AWS_CONFIG_FILE", "~/.aws/config");
  const auto service = metadata_service();
  if (!service) return text + ", and asked no metadata service, since AWS_EC2_METADATA_DISABLED is set";
  text += ", and asked the metadata service " + *service;
  // The library's other error numbers say what it tried last, which is often not the cause.
  if (reply.credentials_error == AWS_ERROR_HTTP_RESPONSE_FIRST_BYTE_TIMEOUT)
    text += ", which did not answer in time";
  else if (reply.credentials_error == AWS_AUTH_CREDENTIALS_PROVIDER_ECS_INVALID_HOST)
    text += ", which is neither https nor on this machine, as it must be";
  else
    text += ", which gave none";
  const auto token = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  if (token && !std::ifstream{*token}) text += "; AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=" + *token + " cannot be read";
  return text;
}

inline std::string s3_reason(const S3Reply& reply, const S3Config& config, const std::string& endpoint) {
  // Show the server's name for the error only if it looks like a name.
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  const bool named =
      !reply.code.empty() && reply.code.size() < 64 && std::all_of(reply.code.begin(), reply.code.end(), is_letter);
  if (reply.status >= 300 || named) {
    auto text = endpoint + " answered " + std::to_string(reply.status);
    if (named) text += ' ' + reply.code;
    if (!reply.operation.empty()) text += " to " + reply.operation;
    if (const auto advice = s3_advice(reply.code, config); !advice.empty()) text += ": " + advice;
    if (reply.code.empty() && (reply.status == 400 || reply.status == 405)) text += "; " + s3_server_advice(config);
    return text;
  }
  const std::string words = aws_error_str(reply.error);
  if (no_credentials(reply)) return where_credentials_are_not(reply, config);
  if (reply.error == AWS_IO_TLS_ERROR_NEGOTIATION_FAILURE)
    return "no trusted connection to " + endpoint + " came about (" + words +
           "); if its certificate is signed by an authority of your own, name that in AWS_CA_BUNDLE; if it takes no "
           "TLS, write http:// before its name";
  if (gives_no_ranges(reply))
    return endpoint + " does not say which part of the object it sends (" + words +
           "); a server of S3 answers a request with Range by Content-Range";
  if (reply.error == AWS_ERROR_HTTP_CHANNEL_THROUGHPUT_FAILURE)
    return endpoint + " stopped sending and taking bytes for " + std::to_string(config.stall_timeout.count()) + " s";
  if (is_aws_error_of(AWS_C_IO_PACKAGE_ID, reply.error))
    return "cannot reach " + endpoint + " (" + words + "); " + s3_server_advice(config);
  if (reply.error == AWS_ERROR_S3_INVALID_RESPONSE_STATUS || reply.error == AWS_ERROR_HTTP_PROTOCOL_ERROR)
    return endpoint + " did not answer as a server of S3 (" + words + "); " + s3_server_advice(config);
  return endpoint + ": " + words;
}

}  // namespace ddpxx::detail
