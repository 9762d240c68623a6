// ddpxx/storage/s3/objects.hpp — requests for the objects of a place in S3, and errors that name the object.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/storage/s3/client.hpp>
#include <ddpxx/storage/s3/reply.hpp>
#include <ddpxx/storage/s3/text.hpp>
#include <ddpxx/storage/s3_config.hpp>
#include <ddpxx/storage/s3_place.hpp>

namespace ddpxx::detail {

/// What a request is for: the first words of an error's message, and the object's name.
struct S3Action {
  std::string_view words;
  const std::string& name;
};

/// A listing: the request for it, and the element of XML that its pages are.
struct S3Listing {
  std::string operation;
  std::string element;
  std::string query;
};

/// Sends the requests for the objects of one place. A function that returns a reply leaves it to the caller to tell a
/// failure from an expected answer, by `expect` if every other answer than a success is a failure.
class S3Objects {
 public:
  S3Objects(S3Place place, S3Config config) : place_{std::move(place)}, client_{place_.bucket, std::move(config)} {}

  const S3Place& place() const noexcept { return place_; }
  const S3Config& config() const noexcept { return client_.config(); }
  const std::string& endpoint() const noexcept { return client_.endpoint(); }

  S3Reply put(const std::string& name, std::span<const Bytes> parts) {
    return client_.send(
        {.operation = "PutObject", .method = "PUT", .key = place_.key(name), .query = "", .body = parts});
  }

  /// Writes an object that does not exist; the server answers 412 if it does. `writer` is kept with the object.
  S3Reply put_new(const std::string& name, Bytes content, const std::string& writer) {
    const std::array parts{content};
    return client_.send({.operation = "PutObject",
                         .method = "PUT",
                         .key = place_.key(name),
                         .query = "",
                         .headers = {{"If-None-Match", "*"}, {std::string{kS3WriterHeader}, writer}},
                         .body = parts,
                         .upload = S3Upload::in_one_piece});
  }

  /// Reads a range of an object; of the given version only, unless `version` is empty.
  S3Reply get(const std::string& name, std::uint64_t offset, std::span<std::byte> buffer, const std::string& version) {
    const auto last = offset + buffer.size() - 1;
    std::vector<std::pair<std::string, std::string>> headers{
        {"Range", "bytes=" + std::to_string(offset) + '-' + std::to_string(last)}};
    if (!version.empty()) headers.emplace_back("If-Match", version);
    return client_.send({.operation = "GetObject",
                         .method = "GET",
                         .key = place_.key(name),
                         .query = "",
                         .headers = std::move(headers),
                         .buffer = buffer});
  }

  S3Reply head(const std::string& name) {
    return client_.send({.operation = "HeadObject", .method = "HEAD", .key = place_.key(name), .query = ""});
  }

  S3Reply remove(const std::string& name) {
    return client_.send({.operation = "DeleteObject", .method = "DELETE", .key = place_.key(name), .query = ""});
  }

  /// Ends an unfinished upload; `key` is the object's key in the bucket.
  S3Reply abort_upload(std::string key, const std::string& id) {
    return client_.send({.operation = "AbortMultipartUpload",
                         .method = "DELETE",
                         .key = std::move(key),
                         .query = "uploadId=" + percent_encode(id)});
  }

  /// Calls `take` for each page of a listing until it returns false. `next` returns what the next page's query adds, or
  /// an empty text if the page does not tell.
  template <class Take, class Next>
  void each_page(const S3Action& action, const S3Listing& listing, Take&& take, Next&& next) {
    for (std::string more;;) {
      const auto page = expect(
          action,
          client_.send({.operation = listing.operation, .method = "GET", .key = "", .query = listing.query + more}));
      if (page.body.find('<' + listing.element) == std::string::npos) throw not_of_s3(action);
      if (!take(page.body) || xml_text(page.body, "IsTruncated") != "true") return;
      auto following = next(page.body);
      if (following.empty() || following == more) throw failure(action, "the server does not say how its list goes on");
      more = std::move(following);
    }
  }

  S3Reply expect(const S3Action& action, S3Reply reply) const {
    if (!reply.ok()) throw failure(action, reply);
    return reply;
  }

  Error failure(const S3Action& action, const std::string& reason) const {
    return Error{Errc::storage, std::string{action.words} + ' ' + place_.text(action.name) + ": " + reason};
  }
  Error failure(const S3Action& action, const S3Reply& reply) const {
    return failure(action, s3_reason(reply, config(), endpoint()));
  }

  /// The error for an answer that no server of S3 gives, such as a web page of a proxy.
  Error not_of_s3(const S3Action& action) const {
    return failure(action, endpoint() + " did not answer as a server of S3; " + s3_server_advice(config()));
  }

 private:
  S3Place place_;
  S3Client client_;
};

}  // namespace ddpxx::detail
