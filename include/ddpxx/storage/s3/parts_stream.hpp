// ddpxx/storage/s3/parts_stream.hpp — several byte spans, one after the other, as the body of a request.
#pragma once

#include <algorithm>
#include <array>
#include <aws/cal/hash.h>
#include <aws/common/encoding.h>
#include <aws/common/error.h>
#include <aws/io/stream.h>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/storage/s3/library.hpp>

namespace ddpxx::detail {

inline std::uint64_t total_bytes(std::span<const Bytes> parts) {
  std::uint64_t total = 0;
  for (const auto part : parts) total += part.size();
  return total;
}

/// The parts as one stream, which can be read again from any position. The caller owns the parts, which must outlive
/// it.
class S3PartsStream {
 public:
  static S3Owned<aws_input_stream, aws_input_stream_release> make(std::span<const Bytes> parts) {
    auto* self = new S3PartsStream{parts};
    return S3Owned<aws_input_stream, aws_input_stream_release>{&self->stream_};
  }
  S3PartsStream(const S3PartsStream&) = delete;
  S3PartsStream& operator=(const S3PartsStream&) = delete;

 private:
  explicit S3PartsStream(std::span<const Bytes> parts) : parts_{parts}, size_{total_bytes(parts)} {
    static const aws_input_stream_vtable kOperations{seek, read, status, length, nullptr, nullptr};
    stream_.vtable = &kOperations;
    stream_.impl = this;
    aws_ref_count_init(&stream_.ref_count, this, [](void* self) { delete static_cast<S3PartsStream*>(self); });
  }
  ~S3PartsStream() = default;

  static S3PartsStream& of(aws_input_stream* stream) { return *static_cast<S3PartsStream*>(stream->impl); }

  static int seek(aws_input_stream* stream, std::int64_t offset, aws_stream_seek_basis basis) {
    auto& self = of(stream);
    const auto size = static_cast<std::int64_t>(self.size_);
    const auto target = basis == AWS_SSB_BEGIN ? offset : size + offset;
    if (target < 0 || target > size) return aws_raise_error(AWS_IO_STREAM_INVALID_SEEK_POSITION);
    self.part_ = 0;
    self.at_ = static_cast<std::size_t>(target);
    self.left_ = self.size_ - static_cast<std::uint64_t>(target);
    while (self.part_ < self.parts_.size() && self.at_ >= self.parts_[self.part_].size())
      self.at_ -= self.parts_[self.part_++].size();
    return AWS_OP_SUCCESS;
  }

  static int read(aws_input_stream* stream, aws_byte_buf* buffer) {
    auto& self = of(stream);
    while (self.left_ > 0 && buffer->len < buffer->capacity) {
      const auto rest = self.parts_[self.part_].subspan(self.at_);
      const auto count = std::min(rest.size(), buffer->capacity - buffer->len);
      std::copy_n(rest.data(), count, reinterpret_cast<std::byte*>(buffer->buffer) + buffer->len);
      buffer->len += count;
      self.left_ -= count;
      self.at_ += count;
      if (self.at_ == self.parts_[self.part_].size()) {
        ++self.part_;
        self.at_ = 0;
      }
    }
    return AWS_OP_SUCCESS;
  }

  static int status(aws_input_stream* stream, aws_stream_status* status) {
    *status = {.is_end_of_stream = of(stream).left_ == 0, .is_valid = true};
    return AWS_OP_SUCCESS;
  }

  static int length(aws_input_stream* stream, std::int64_t* length) {
    *length = static_cast<std::int64_t>(of(stream).size_);
    return AWS_OP_SUCCESS;
  }

  aws_input_stream stream_{};
  std::span<const Bytes> parts_;
  std::uint64_t size_;
  std::uint64_t left_ = size_;
  std::size_t part_ = 0;  // index of the part that holds the next byte
  std::size_t at_ = 0;    // position of that byte in its part
};

/// Returns the MD5 of all parts, as the header Content-MD5 wants it.
/// Errors  `storage` if the system computes no MD5, as one in FIPS mode.
inline std::string content_md5(std::span<const Bytes> parts) {
  const S3Owned<aws_hash, aws_hash_destroy> hash{aws_md5_new(s3_library())};
  bool is_computed = hash != nullptr;
  for (const auto part : parts) {
    const auto bytes = aws_byte_cursor_from_array(part.data(), part.size());
    is_computed = is_computed && aws_hash_update(hash.get(), &bytes) == AWS_OP_SUCCESS;
  }
  std::array<std::uint8_t, AWS_MD5_LEN> digest{};
  auto buffer = aws_byte_buf_from_empty_array(digest.data(), digest.size());
  if (!is_computed || aws_hash_finalize(hash.get(), &buffer, 0) != AWS_OP_SUCCESS)
    throw Error{Errc::storage, "cannot compute the MD5 sum of an object for S3 (" +
                                   std::string{aws_error_str(aws_last_error())} +
                                   "): allow MD5 where the system is in FIPS mode, or save to a folder"};
  std::array<std::uint8_t, 32> letters{};
  auto text = aws_byte_buf_from_empty_array(letters.data(), letters.size());
  const auto raw = aws_byte_cursor_from_buf(&buffer);
  aws_base64_encode(&raw, &text);
  return s3_text(aws_byte_cursor_from_buf(&text));
}

}  // namespace ddpxx::detail
