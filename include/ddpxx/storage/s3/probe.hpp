// ddpxx/storage/s3/probe.hpp — finds out whether objects can be written to a place in S3.
#pragma once

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <string_view>

#include <ddpxx/core/file.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/storage/s3/objects.hpp>
#include <ddpxx/storage/s3/reply.hpp>

namespace ddpxx::detail {

/// Returns a number that no other writer draws.
inline std::string draw_s3_number() {
  std::random_device source;
  std::string text;
  for (int i = 0; i < 4; ++i) text += std::to_string(source());
  return text;
}

/// Writes and removes a small object, in the way in which S3Storage::create() writes. Warns if the server does not
/// refuse to write it a second time.
/// Errors  `storage`, with the server's answer and advice.
inline void probe_s3(S3Objects& objects) {
  const auto name = ".probe-" + draw_s3_number();
  const S3Action writing{"cannot write", name};
  const auto create = [&] { return objects.put_new(name, bytes_of("objects can be written here\n"), "probe"); };
  const auto is_there = [](const S3Reply& reply) { return reply.status == 412; };
  const auto first = create();  // 412 if the reply was lost and the request was sent again
  static constexpr std::array<std::string_view, 3> kRefusals{"NotImplemented", "InvalidArgument", "InvalidRequest"};
  if (first.status == 501 ||
      (first.status == 400 && std::ranges::find(kRefusals, std::string_view{first.code}) != kRefusals.end()))
    throw objects.failure(writing, s3_reason(first, objects.config(), objects.endpoint()) +
                                       "; the server must support the header If-None-Match: *");
  if (!first.ok() && !is_there(first)) throw objects.failure(writing, first);
  if (first.ok() && first.version.empty()) throw objects.not_of_s3(writing);
  if (const auto second = create(); second.ok())
    Log{0}.warn(objects.endpoint() + " ignores the header If-None-Match: *: two runs that save to " +
                objects.place().text("") + " would overwrite each other's snapshots without an error");
  else if (!is_there(second))
    throw objects.failure(writing, second);
  if (const auto removed = objects.remove(name); !names_absent_object(removed))
    objects.expect({"cannot remove", name}, removed);
}

}  // namespace ddpxx::detail
