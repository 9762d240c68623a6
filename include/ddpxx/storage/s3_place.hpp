// ddpxx/storage/s3_place.hpp — a bucket and a prefix, as s3://bucket/prefix names them.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// A bucket and the prefix of the keys of a storage's objects.
struct S3Place {
  std::string bucket;
  std::string prefix;  ///< Ends with '/', or is empty.

  bool operator==(const S3Place&) const = default;

  /// Returns the key of an object.
  /// Errors  `storage` for a name that a file in a folder could not have either.
  std::string key(const std::string& name) const;

  /// Returns s3://bucket/key, as a user would type it.
  std::string text(const std::string& name) const { return "s3://" + bucket + '/' + prefix + name; }
};

/// Reads s3://bucket/prefix.
/// Errors  `config`, with what is wrong with the text.
S3Place parse_s3_place(std::string_view text);

namespace detail {

inline constexpr std::string_view kS3Scheme = "s3://";

/// True if the text consists of parts between single slashes, and no part is "." or "..".
inline bool is_plain_path(std::string_view text) {
  for (;;) {
    const auto end = text.find('/');
    const auto part = text.substr(0, end);
    if (part.empty() || part == "." || part == "..") return false;
    if (end == std::string_view::npos) return true;
    text.remove_prefix(end + 1);
  }
}

/// True if the bucket's name may stand before the server's name. Host names contain no capitals and no '_', and a
/// certificate for *.server does not cover a name with one more dot.
inline bool fits_in_host_name(std::string_view bucket, bool with_tls) {
  return std::none_of(bucket.begin(), bucket.end(), [with_tls](char c) {
    return std::isupper(static_cast<unsigned char>(c)) != 0 || c == '_' || (with_tls && c == '.');
  });
}

/// Returns the address as messages show it, without the part before an @, which may hold a key and its secret.
inline std::string without_secrets(std::string_view text) {
  const auto at = text.rfind('@');
  if (at == std::string_view::npos) return std::string{text};
  const auto scheme = text.find("://");
  const auto front = scheme == std::string_view::npos || scheme > at ? std::string_view{} : text.substr(0, scheme + 3);
  return std::string{front} + "***" + std::string{text.substr(at)};
}

}  // namespace detail

inline std::string S3Place::key(const std::string& name) const {
  if (!detail::is_plain_path(name))
    throw Error{Errc::storage, '"' + name + "\" is not a valid name of an object in " + text("")};
  return prefix + name;
}

inline S3Place parse_s3_place(std::string_view text) {
  const auto refuse = [text](const std::string& why) {
    return Error{Errc::config,
                 '"' + detail::without_secrets(text) + "\": " + why + "; a place in S3 is s3://bucket/prefix"};
  };
  if (text.find('@') != std::string_view::npos)
    throw refuse("it holds an @; credentials come from the environment or the shared files");
  if (!text.starts_with(detail::kS3Scheme)) throw refuse("it does not begin with s3://");
  const auto rest = text.substr(detail::kS3Scheme.size());
  const auto slash = std::min(rest.find('/'), rest.size());
  S3Place place{std::string{rest.substr(0, slash)}, std::string{rest.substr(std::min(slash + 1, rest.size()))}};
  const auto fits = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_';
  };
  if (place.bucket.empty()) throw refuse("it names no bucket");
  if (!std::all_of(place.bucket.begin(), place.bucket.end(), fits))
    throw refuse('"' + place.bucket + "\" cannot be the name of a bucket");
  while (place.prefix.ends_with('/')) place.prefix.pop_back();
  if (place.prefix.empty()) return place;
  if (!detail::is_plain_path(place.prefix)) throw refuse('"' + place.prefix + "\" cannot be a prefix of names");
  place.prefix += '/';
  return place;
}

}  // namespace ddpxx
