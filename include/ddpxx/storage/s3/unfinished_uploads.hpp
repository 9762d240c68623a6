// ddpxx/storage/s3/unfinished_uploads.hpp — aborts uploads that killed writers left in a place in S3.
#pragma once

#include <aws/common/date_time.h>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/storage/s3/objects.hpp>
#include <ddpxx/storage/s3/reply.hpp>
#include <ddpxx/storage/s3/text.hpp>

namespace ddpxx::detail {

/// Aborts the unfinished uploads of a place that began longer ago than `age`, and returns their number. Sends no more
/// requests after `deadline`; the uploads that are left wait for the next call.
inline std::int64_t abort_unfinished_uploads(S3Objects& objects, std::chrono::seconds age,
                                             std::chrono::steady_clock::time_point deadline) {
  struct Upload {
    std::string key;
    std::string id;
  };
  const std::string everything;
  const auto& prefix = objects.place().prefix;
  const auto oldest = std::chrono::system_clock::now() - age;
  const auto has_time = [deadline] { return std::chrono::steady_clock::now() < deadline; };
  std::vector<Upload> left;
  const auto take = [&](const std::string& page) {
    const bool is_encoded = has_encoded_keys(page);
    for (const auto entry : xml_elements(page, "Upload")) {
      const auto text = xml_text(entry, "Initiated");
      const auto cursor = s3_cursor(text);
      aws_date_time began{};
      if (aws_date_time_init_from_str_cursor(&began, &cursor, AWS_DATE_FORMAT_ISO_8601) != AWS_OP_SUCCESS) continue;
      auto key = listed_key(entry, "Key", is_encoded);
      const std::chrono::milliseconds since{aws_date_time_as_millis(&began)};
      if (key.starts_with(prefix) && since <= oldest.time_since_epoch())
        left.push_back({std::move(key), xml_text(entry, "UploadId")});
    }
    return has_time();
  };
  // No encoding-type here: Ceph 16 would encode the keys of this list without saying so.
  objects.each_page({"cannot list the unfinished uploads of", everything},
                    {.operation = "ListMultipartUploads",
                     .element = "ListMultipartUploadsResult",
                     .query = "uploads=&max-uploads=" + std::to_string(objects.config().page_keys) +
                              "&prefix=" + percent_encode(prefix)},
                    take, [](const std::string& page) {
                      const auto key = listed_key(page, "NextKeyMarker", has_encoded_keys(page));
                      const auto id = xml_text(page, "NextUploadIdMarker");
                      if (key.empty() && id.empty()) return std::string{};  // SeaweedFS uses the id alone
                      return "&key-marker=" + percent_encode(key) + "&upload-id-marker=" + percent_encode(id);
                    });
  std::int64_t aborted = 0;
  for (const auto& upload : left) {
    if (!has_time()) break;
    const auto reply = objects.abort_upload(upload.key, upload.id);
    const auto name = upload.key.substr(prefix.size());
    if (!names_absent_object(reply)) objects.expect({"cannot abort an unfinished upload of", name}, reply);
    ++aborted;
  }
  return aborted;
}

}  // namespace ddpxx::detail
