// ddpxx/storage/s3/library.hpp — initializes the AWS library, and owns its handles. Needs ddpxx::s3.
#pragma once

#include <aws/common/byte_buf.h>
#include <aws/common/error.h>
#include <aws/s3/s3.h>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace ddpxx::detail {

/// Initializes the library and returns its allocator. It is never shut down: another part of the program may use it,
/// and the library does not count its users.
inline aws_allocator* s3_library() {
  static aws_allocator* const kAllocator = [] {
    auto* allocator = aws_default_allocator();
    aws_s3_library_init(allocator);
    return allocator;
  }();
  return kAllocator;
}

/// Owns a handle, which `Release(handle)` frees.
template <class Handle, auto Release>
struct S3Releases {
  void operator()(Handle* handle) const noexcept { Release(handle); }
};
template <class Handle, auto Release>
using S3Owned = std::unique_ptr<Handle, S3Releases<Handle, Release>>;

/// An event that one thread waits for and another thread signals once.
class S3Event {
 public:
  void set() {
    const std::lock_guard lock{mutex_};
    is_set_ = true;
    condition_.notify_all();  // under the lock: the waiter may destroy this object as soon as it has the lock
  }
  void wait() {
    std::unique_lock lock{mutex_};
    condition_.wait(lock, [this] { return is_set_; });
  }
  /// For C: `event` points to an S3Event.
  static void set_from_c(void* event) { static_cast<S3Event*>(event)->set(); }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  bool is_set_ = false;
};

inline aws_byte_cursor s3_cursor(std::string_view text) { return aws_byte_cursor_from_array(text.data(), text.size()); }

inline std::string s3_text(const aws_byte_cursor& cursor) {
  return {reinterpret_cast<const char*>(cursor.ptr), cursor.len};
}

}  // namespace ddpxx::detail
