// ddpxx/storage/s3_storage.hpp — a storage in an S3 bucket. Needs the component ddpxx::s3.
#pragma once

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/failpoint.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/storage/s3/objects.hpp>
#include <ddpxx/storage/s3/probe.hpp>
#include <ddpxx/storage/s3/reply.hpp>
#include <ddpxx/storage/s3/text.hpp>
#include <ddpxx/storage/s3/unfinished_uploads.hpp>
#include <ddpxx/storage/s3_config.hpp>
#include <ddpxx/storage/s3_place.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

/// A storage in a bucket of Amazon S3 or of a server with the same interface. Sends nothing before the first operation.
/// Source  Amazon S3 API reference, version 2006-03-01.
class S3Storage final : public Storage {
 public:
  explicit S3Storage(S3Place place) : S3Storage{std::move(place), s3_config_from_environment()} {}
  S3Storage(S3Place place, S3Config config) : objects_{std::move(place), std::move(config)} {}

  // The virtual functions are declared inline: otherwise each file that includes this header would compile all of them.
  std::string full_name(const std::string& name) const override { return objects_.place().text(name); }

  /// Writes and removes a small object, in the way in which `create` writes. Warns if the server does not refuse to
  /// write it a second time. Also aborts unfinished uploads that killed writers left under this prefix.
  inline void prepare() override;

  inline void write(const std::string& name, std::span<const Bytes> parts) override;
  inline bool create(const std::string& name, Bytes content) override;
  inline void read(const std::string& name, std::uint64_t offset, std::span<std::byte> buffer) override;
  inline std::optional<std::string> read_text(const std::string& name, std::uint64_t max_bytes) override;
  inline std::vector<StoredObject> list(const std::string& prefix) override;
  inline void remove(const std::string& name) override;

  /// Aborts the unfinished uploads under this prefix that began longer ago than `age`, and returns their number. No
  /// list of objects shows them, but they cost money.
  std::int64_t abort_uploads_older_than(std::chrono::seconds age) {
    return detail::abort_unfinished_uploads(objects_, age, std::chrono::steady_clock::time_point::max());
  }

 private:
  static constexpr int kMaxTries = 10;
  /// Afterwards prepare(), for which all ranks wait, aborts no more uploads.
  static constexpr std::chrono::seconds kPatience{20};
  static constexpr std::uint64_t kFirstLook = std::uint64_t{64} << 10U;  // a manifest of usual size needs one request

  detail::S3Objects objects_;
  std::atomic<bool> has_warned_ = false;  // `list` warns once of keys that it leaves out
};

inline void S3Storage::prepare() {
  // Do not retry: at the start of a program an unreachable server is reported at once. During a run, requests are
  // repeated for about a minute.
  auto config = objects_.config();
  config.retries = 0;
  detail::S3Objects objects{objects_.place(), std::move(config)};
  detail::probe_s3(objects);
  if (objects.place().prefix.empty()) return;  // uploads in the whole bucket may belong to other programs
  try {
    detail::abort_unfinished_uploads(objects, objects.config().upload_max_age,
                                     std::chrono::steady_clock::now() + kPatience);
  } catch (const Error&) {
    // Some servers cannot list unfinished uploads. They store objects nevertheless.
  }
}

inline void S3Storage::write(const std::string& name, std::span<const Bytes> parts) {
  failpoint("s3.before_write");
  const detail::S3Action action{"cannot write", name};
  const auto reply = objects_.expect(action, objects_.put(name, parts));
  // The AWS library itself looks at the replies to the parts of a larger object.
  if (reply.version.empty() && detail::total_bytes(parts) <= objects_.config().part_bytes)
    throw objects_.not_of_s3(action);
  failpoint("s3.after_write");
}

inline bool S3Storage::create(const std::string& name, Bytes content) {
  const detail::S3Action action{"cannot create", name};
  const auto writer = detail::draw_s3_number();
  for (int tries = 0; tries < kMaxTries; ++tries) {
    const auto reply = objects_.put_new(name, content, writer);
    if (reply.ok() && reply.version.empty()) throw objects_.not_of_s3(action);
    if (reply.ok()) return true;
    // The object exists: another writer made it, or this one did and the reply was lost. After a server error it may
    // not exist at all.
    const bool is_unknown = (reply.status == 0 && !detail::no_credentials(reply)) || reply.status >= 500;
    if (!is_unknown && reply.status != 412) throw objects_.failure(action, reply);
    const auto there = objects_.head(name);
    if (there.ok() && there.version.empty()) throw objects_.not_of_s3(action);
    if (there.ok()) return there.writer == writer;
    if (is_unknown) throw objects_.failure(action, reply);
    if (there.status != 404) throw objects_.failure(action, there);
  }
  throw objects_.failure(action, "other programs create and remove it again and again");
}

inline void S3Storage::read(const std::string& name, std::uint64_t offset, std::span<std::byte> buffer) {
  const detail::S3Action action{"cannot read", name};
  if (buffer.empty()) {
    objects_.expect(action, objects_.head(name));
    return;
  }
  const auto reply = objects_.get(name, offset, buffer, "");
  if (reply.status == 416 || (reply.ok() && reply.filled < buffer.size()))
    throw objects_.failure(action, "it ends before " + std::to_string(offset + buffer.size()) + " bytes");
  objects_.expect(action, reply);
}

inline std::optional<std::string> S3Storage::read_text(const std::string& name, std::uint64_t max_bytes) {
  const detail::S3Action action{"cannot read", name};
  const auto buffer_in = [](std::string& text, std::size_t from) {
    return std::as_writable_bytes(std::span{text}).subspan(from);
  };
  for (int tries = 0; tries < kMaxTries; ++tries) {
    std::string text(std::min(std::max<std::uint64_t>(max_bytes, 1), kFirstLook), '\0');
    const auto head = objects_.get(name, 0, buffer_in(text, 0), "");
    if (detail::names_absent_object(head)) return std::nullopt;
    if (head.status == 416) return std::string{};  // the reply of an empty object to any range
    objects_.expect(action, head);
    const auto size = std::max<std::uint64_t>(head.size, head.filled);
    if (size > max_bytes)
      throw UnreadableObject{
          objects_.failure(action, "it has more than " + std::to_string(max_bytes) + " bytes").what(),
          {.name = name, .max_bytes = max_bytes}};
    text.resize(size);
    if (head.filled == size) return text;
    const auto rest = objects_.get(name, head.filled, buffer_in(text, head.filled), head.version);
    if (rest.status == 412 || detail::names_absent_object(rest)) continue;  // replaced or removed between the two
    if (objects_.expect(action, rest).filled == size - head.filled) return text;
    throw objects_.failure(action, "it ends before " + std::to_string(size) + " bytes");
  }
  throw objects_.failure(action, "another program replaces it again and again");
}

inline std::vector<StoredObject> S3Storage::list(const std::string& prefix) {
  std::vector<StoredObject> found;
  std::optional<std::string> left_out;
  const auto& place = objects_.place();
  const auto take = [&](const std::string& page) {
    const bool is_encoded = detail::has_encoded_keys(page);
    for (const auto entry : detail::xml_elements(page, "Contents")) {
      const auto key = detail::listed_key(entry, "Key", is_encoded);
      if (!key.starts_with(place.prefix)) continue;
      auto name = key.substr(place.prefix.size());
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
    return true;
  };
  objects_.each_page({"cannot list", prefix},
                     {.operation = "ListObjectsV2",
                      .element = "ListBucketResult",
                      .query = "list-type=2&encoding-type=url&max-keys=" + std::to_string(objects_.config().page_keys) +
                               "&prefix=" + detail::percent_encode(place.prefix + prefix)},
                     take, [](const std::string& page) {
                       const auto token = detail::xml_text(page, "NextContinuationToken");
                       return token.empty() ? token : "&continuation-token=" + detail::percent_encode(token);
                     });
  if (left_out && !has_warned_.exchange(true))
    Log{0}.warn("objects whose keys have an empty part, . or .. between slashes are left out, such as " +
                place.text(*left_out) + ": copy them to other keys to use them");
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return found;
}

inline void S3Storage::remove(const std::string& name) {
  failpoint("s3.before_remove");
  const auto reply = objects_.remove(name);
  if (!detail::names_absent_object(reply)) objects_.expect({"cannot remove", name}, reply);
  failpoint("s3.after_remove");
}

}  // namespace ddpxx
