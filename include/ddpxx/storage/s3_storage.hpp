// ddpxx/storage/s3_storage.hpp — a storage in an S3 bucket. Needs the component ddpxx::s3.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <aws/common/date_time.h>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/failpoint.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/storage/s3/client.hpp>
#include <ddpxx/storage/s3/reply.hpp>
#include <ddpxx/storage/s3/text.hpp>
#include <ddpxx/storage/s3_config.hpp>
#include <ddpxx/storage/s3_place.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

/// A storage in a bucket of Amazon S3 or of a server with the same interface. Sends nothing before the first operation.
/// Source  Amazon S3 API reference, version 2006-03-01.
class S3Storage final : public Storage {
 public:
  explicit S3Storage(S3Place place) : S3Storage{std::move(place), s3_config_from_environment()} {}
  S3Storage(S3Place place, S3Config config) : place_{std::move(place)}, client_{place_.bucket, std::move(config)} {}

  // The virtual functions are declared inline: otherwise each file that includes this header would compile all of them.
  std::string full_name(const std::string& name) const override { return place_.text(name); }

  /// Writes and removes a small object, in the way in which `create` writes. Warns if the server does not refuse to
  /// write it a second time. Also aborts unfinished uploads that killed writers left under this prefix.
  inline void prepare() override;

  /// S3 has no locks.
  bool claim(const std::string&) override { return false; }

  inline void write(const std::string& name, std::span<const Bytes> parts) override;
  inline bool create(const std::string& name, Bytes content) override;
  inline void read(const std::string& name, std::uint64_t offset, std::span<std::byte> buffer) override;
  inline std::optional<std::string> read_text(const std::string& name, std::uint64_t max_bytes) override;
  inline std::vector<StoredObject> list(const std::string& prefix) override;
  inline void remove(const std::string& name) override;

  /// Aborts the unfinished uploads under this prefix that began longer ago than `age`, and returns their number. No
  /// list of objects shows them, but they cost money.
  std::int64_t abort_uploads_older_than(std::chrono::seconds age) {
    return abort_uploads(client_, age, std::chrono::steady_clock::time_point::max());
  }

 private:
  /// What the storage does: the first words of an error's message, and the object's name.
  struct Action {
    std::string_view words;
    const std::string& name;
  };

  Error failure(const Action& action, const std::string& reason) const {
    return Error{Errc::storage, std::string{action.words} + ' ' + place_.text(action.name) + ": " + reason};
  }
  Error failure(const Action& action, const detail::S3Reply& reply) const {
    return failure(action, detail::s3_reason(reply, client_.config(), client_.endpoint()));
  }
  detail::S3Reply expect(const Action& action, detail::S3Reply reply) const {
    if (!reply.ok()) throw failure(action, reply);
    return reply;
  }

  /// The error for an answer that no server of S3 gives, such as a web page of a proxy.
  Error not_of_s3(const Action& action) const {
    return failure(action, client_.endpoint() + " did not answer as a server of S3; " +
                               detail::s3_server_advice(client_.config()));
  }

  static constexpr int kMaxTries = 10;
  /// Afterwards prepare(), for which all ranks wait, aborts no more uploads.
  static constexpr std::chrono::seconds kPatience{20};
  static constexpr std::uint64_t kFirstLook = std::uint64_t{64} << 10U;  // a manifest of usual size needs one request

  static std::string draw_number();

  /// Reads a range of an object; of the given version only, unless `version` is empty.
  detail::S3Reply get(const std::string& key, std::uint64_t offset, std::span<std::byte> buffer,
                      const std::string& version);

  /// A listing: the request for it, and the element of XML that its pages are.
  struct Listing {
    std::string operation;
    std::string element;
    std::string query;
  };
  /// Calls `take` for each page of a listing. `next` returns what the next page's query adds, or an empty text at the
  /// end.
  template <class Take, class Next>
  void each_page(detail::S3Client& client, const Action& action, const Listing& listing, Take&& take, Next&& next);

  void put_probe(detail::S3Client& client) const;
  /// Returns the number of aborted uploads. Begins with none after `deadline`.
  std::int64_t abort_uploads(detail::S3Client& client, std::chrono::seconds age,
                             std::chrono::steady_clock::time_point deadline);

  S3Place place_;
  detail::S3Client client_;
  std::atomic<bool> has_warned_ = false;  // `list` warns once of keys that it leaves out
};

inline std::string S3Storage::draw_number() {
  std::random_device source;
  std::string text;
  for (int i = 0; i < 4; ++i) text += std::to_string(source());
  return text;
}

inline void S3Storage::prepare() {
  // Do not retry: at the start of a program an unreachable server is reported at once. During a run, requests are
  // repeated for about a minute.
  auto probe_config = client_.config();
  probe_config.retries = 0;
  detail::S3Client client{place_.bucket, std::move(probe_config)};
  put_probe(client);
  if (place_.prefix.empty()) return;  // uploads in the whole bucket may belong to other programs
  try {
    abort_uploads(client, client.config().upload_max_age, std::chrono::steady_clock::now() + kPatience);
  } catch (const Error&) {
    // Some servers cannot list unfinished uploads. They store objects nevertheless.
  }
}

inline void S3Storage::put_probe(detail::S3Client& client) const {
  const auto name = ".probe-" + draw_number();
  const std::array content{bytes_of("objects can be written here\n")};
  const auto fail = [&](std::string_view words, const detail::S3Reply& reply) {
    return failure({words, name}, detail::s3_reason(reply, client.config(), client.endpoint()));
  };
  const auto create = [&] {
    return client.send({.operation = "PutObject",
                        .method = "PUT",
                        .key = place_.key(name),
                        .query = "",
                        .headers = {{"If-None-Match", "*"}},
                        .body = content,
                        .upload = detail::S3Upload::in_one_piece});
  };
  const auto is_there = [](const detail::S3Reply& reply) { return reply.status == 412; };
  const auto first = create();  // 412 if the reply was lost and the request was sent again
  static constexpr std::array<std::string_view, 3> kRefusals{"NotImplemented", "InvalidArgument", "InvalidRequest"};
  if (first.status == 501 ||
      (first.status == 400 && std::ranges::find(kRefusals, std::string_view{first.code}) != kRefusals.end()))
    throw failure({"cannot write", name}, detail::s3_reason(first, client.config(), client.endpoint()) +
                                              "; the server must support the header If-None-Match: *");
  if (!first.ok() && !is_there(first)) throw fail("cannot write", first);
  if (first.ok() && first.version.empty()) throw not_of_s3({"cannot write", name});
  if (const auto second = create(); second.ok())
    Log{0}.warn(client.endpoint() + " ignores the header If-None-Match: *: two runs that save to " + place_.text("") +
                " would overwrite each other's snapshots without an error");
  else if (!is_there(second))
    throw fail("cannot write", second);
  const auto removed =
      client.send({.operation = "DeleteObject", .method = "DELETE", .key = place_.key(name), .query = ""});
  if (!removed.ok() && !detail::names_absent_object(removed)) throw fail("cannot remove", removed);
}

inline void S3Storage::write(const std::string& name, std::span<const Bytes> parts) {
  failpoint("s3.before_write");
  const Action action{"cannot write", name};
  const auto reply = expect(
      action,
      client_.send({.operation = "PutObject", .method = "PUT", .key = place_.key(name), .query = "", .body = parts}));
  // The AWS library itself looks at the replies to the parts of a larger object.
  if (reply.version.empty() && detail::total_bytes(parts) <= client_.config().part_bytes) throw not_of_s3(action);
  failpoint("s3.after_write");
}

inline bool S3Storage::create(const std::string& name, Bytes content) {
  const Action action{"cannot create", name};
  const auto key = place_.key(name);
  const auto writer = draw_number();
  const std::array parts{content};
  for (int tries = 0; tries < kMaxTries; ++tries) {
    const auto reply =
        client_.send({.operation = "PutObject",
                      .method = "PUT",
                      .key = key,
                      .query = "",
                      .headers = {{"If-None-Match", "*"}, {std::string{detail::kS3WriterHeader}, writer}},
                      .body = parts,
                      .upload = detail::S3Upload::in_one_piece});
    if (reply.ok() && reply.version.empty()) throw not_of_s3(action);
    if (reply.ok()) return true;
    // The object exists: another writer made it, or this one did and the reply was lost. After a server error it may
    // not exist at all.
    const bool is_unknown = (reply.status == 0 && !detail::no_credentials(reply)) || reply.status >= 500;
    if (!is_unknown && reply.status != 412) throw failure(action, reply);
    const auto there = client_.send({.operation = "HeadObject", .method = "HEAD", .key = key, .query = ""});
    if (there.ok()) return there.writer == writer;
    if (is_unknown) throw failure(action, reply);
    if (there.status != 404) throw failure(action, there);
  }
  throw failure(action, "other programs create and remove it again and again");
}

inline detail::S3Reply S3Storage::get(const std::string& key, std::uint64_t offset, std::span<std::byte> buffer,
                                      const std::string& version) {
  const auto last = offset + buffer.size() - 1;
  std::vector<std::pair<std::string, std::string>> headers{
      {"Range", "bytes=" + std::to_string(offset) + '-' + std::to_string(last)}};
  if (!version.empty()) headers.emplace_back("If-Match", version);
  return client_.send({.operation = "GetObject",
                       .method = "GET",
                       .key = key,
                       .query = "",
                       .headers = std::move(headers),
                       .buffer = buffer});
}

inline void S3Storage::read(const std::string& name, std::uint64_t offset, std::span<std::byte> buffer) {
  const Action action{"cannot read", name};
  const auto key = place_.key(name);
  if (buffer.empty()) {
    expect(action, client_.send({.operation = "HeadObject", .method = "HEAD", .key = key, .query = ""}));
    return;
  }
  const auto reply = get(key, offset, buffer, "");
  if (reply.status == 416 || (reply.ok() && reply.filled < buffer.size()))
    throw failure(action, "it ends before " + std::to_string(offset + buffer.size()) + " bytes");
  expect(action, reply);
}

inline std::optional<std::string> S3Storage::read_text(const std::string& name, std::uint64_t max_bytes) {
  const Action action{"cannot read", name};
  const auto key = place_.key(name);
  const auto buffer_in = [](std::string& text, std::size_t from) {
    return std::as_writable_bytes(std::span{text}).subspan(from);
  };
  for (int tries = 0; tries < kMaxTries; ++tries) {
    std::string text(std::min(std::max<std::uint64_t>(max_bytes, 1), kFirstLook), '\0');
    const auto head = get(key, 0, buffer_in(text, 0), "");
    if (detail::names_absent_object(head)) return std::nullopt;
    if (head.status == 416) return std::string{};  // the reply of an empty object to any range
    expect(action, head);
    const auto size = std::max<std::uint64_t>(head.size, head.filled);
    if (size > max_bytes)
      throw UnreadableObject{failure(action, "it has more than " + std::to_string(max_bytes) + " bytes").what(),
                             {.name = name, .max_bytes = max_bytes}};
    text.resize(size);
    if (head.filled == size) return text;
    const auto rest = get(key, head.filled, buffer_in(text, head.filled), head.version);
    if (rest.status == 412 || detail::names_absent_object(rest)) continue;  // replaced or removed between the two
    if (expect(action, rest).filled == size - head.filled) return text;
    throw failure(action, "it ends before " + std::to_string(size) + " bytes");
  }
  throw failure(action, "another program replaces it again and again");
}

template <class Take, class Next>
void S3Storage::each_page(detail::S3Client& client, const Action& action, const Listing& listing, Take&& take,
                          Next&& next) {
  for (std::string more;;) {
    const auto page = expect(
        action,
        client.send({.operation = listing.operation, .method = "GET", .key = "", .query = listing.query + more}));
    if (page.body.find('<' + listing.element) == std::string::npos) throw not_of_s3(action);
    take(page.body);
    if (detail::xml_text(page.body, "IsTruncated") != "true") return;
    auto following = next(page.body);
    if (following.empty() || following == more) throw failure(action, "the server does not say how its list goes on");
    more = std::move(following);
  }
}

inline std::vector<StoredObject> S3Storage::list(const std::string& prefix) {
  std::vector<StoredObject> found;
  std::optional<std::string> left_out;
  const auto take = [&](const std::string& page) {
    const bool is_encoded = detail::has_encoded_keys(page);
    for (const auto entry : detail::xml_elements(page, "Contents")) {
      const auto key = detail::listed_key(entry, "Key", is_encoded);
      if (!key.starts_with(place_.prefix)) continue;
      auto name = key.substr(place_.prefix.size());
      // A name that ends with '/' is a folder made by a bucket browser. A leading dot marks a probe.
      if (name.empty() || name.ends_with('/') || name[name.rfind('/') + 1] == '.') continue;
      if (!detail::is_plain_path(name)) {  // no other function takes such a name
        if (!left_out) left_out = std::move(name);
        continue;
      }
      std::uint64_t size = 0;
      const auto digits = detail::xml_text(entry, "Size");
      std::from_chars(digits.data(), digits.data() + digits.size(), size);
      found.push_back({std::move(name), size});
    }
  };
  each_page(client_, {"cannot list", prefix},
            {.operation = "ListObjectsV2",
             .element = "ListBucketResult",
             .query = "list-type=2&encoding-type=url&max-keys=" + std::to_string(client_.config().page_keys) +
                      "&prefix=" + detail::percent_encode(place_.prefix + prefix)},
            take, [](const std::string& page) {
              const auto token = detail::xml_text(page, "NextContinuationToken");
              return token.empty() ? token : "&continuation-token=" + detail::percent_encode(token);
            });
  if (left_out && !has_warned_.exchange(true))
    Log{0}.warn("objects whose keys have an empty part, . or .. between slashes are left out, such as " +
                place_.text(*left_out) + ": copy them to other keys to use them");
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return found;
}

inline void S3Storage::remove(const std::string& name) {
  failpoint("s3.before_remove");
  const auto reply =
      client_.send({.operation = "DeleteObject", .method = "DELETE", .key = place_.key(name), .query = ""});
  if (!detail::names_absent_object(reply)) expect({"cannot remove", name}, reply);
  failpoint("s3.after_remove");
}

inline std::int64_t S3Storage::abort_uploads(detail::S3Client& client, std::chrono::seconds age,
                                             std::chrono::steady_clock::time_point deadline) {
  struct Upload {
    std::string key;
    std::string id;
  };
  const std::string everything;
  const Action action{"cannot list the unfinished uploads of", everything};
  const auto oldest = std::chrono::system_clock::now() - age;
  std::vector<Upload> left;
  const auto take = [&](const std::string& page) {
    const bool is_encoded = detail::has_encoded_keys(page);
    for (const auto entry : detail::xml_elements(page, "Upload")) {
      const auto text = detail::xml_text(entry, "Initiated");
      const auto cursor = detail::s3_cursor(text);
      aws_date_time began{};
      if (aws_date_time_init_from_str_cursor(&began, &cursor, AWS_DATE_FORMAT_ISO_8601) != AWS_OP_SUCCESS) continue;
      auto key = detail::listed_key(entry, "Key", is_encoded);
      const std::chrono::milliseconds since{aws_date_time_as_millis(&began)};
      if (key.starts_with(place_.prefix) && since <= oldest.time_since_epoch())
        left.push_back({std::move(key), detail::xml_text(entry, "UploadId")});
    }
  };
  // No encoding-type here: Ceph 16 would encode the keys of this list without saying so.
  each_page(client, action,
            {.operation = "ListMultipartUploads",
             .element = "ListMultipartUploadsResult",
             .query = "uploads=&max-uploads=" + std::to_string(client.config().page_keys) +
                      "&prefix=" + detail::percent_encode(place_.prefix)},
            take, [](const std::string& page) {
              const auto key = detail::listed_key(page, "NextKeyMarker", detail::has_encoded_keys(page));
              const auto id = detail::xml_text(page, "NextUploadIdMarker");
              if (key.empty() && id.empty()) return std::string{};  // SeaweedFS uses the id alone
              return "&key-marker=" + detail::percent_encode(key) + "&upload-id-marker=" + detail::percent_encode(id);
            });
  std::int64_t aborted = 0;
  for (const auto& upload : left) {
    if (std::chrono::steady_clock::now() > deadline) break;
    const auto reply = client.send({.operation = "AbortMultipartUpload",
                                    .method = "DELETE",
                                    .key = upload.key,
                                    .query = "uploadId=" + detail::percent_encode(upload.id)});
    const auto name = upload.key.substr(place_.prefix.size());
    if (!detail::names_absent_object(reply)) expect({"cannot abort an unfinished upload of", name}, reply);
    ++aborted;
  }
  return aborted;
}

}  // namespace ddpxx
