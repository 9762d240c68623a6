// failing_calls.cpp — see failing_calls.hpp. The functions below replace those of libc with the same names, and call
// them.
#include "failing_calls.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fcntl.h>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

constexpr const char* kVariable = "DDPXX_FAILING_CALLS";

FailingCalls* order = nullptr;
std::atomic<long>* counter = nullptr;  // in memory that forked processes share

/// The function of this name in libc.
template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

bool is_meant(const char* path) {
  return path != nullptr && std::string_view{path}.substr(0, order->path.size()) == order->path;
}
bool is_meant(int descriptor) {
  char link[64], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const auto size = ::readlink(link, path, sizeof path - 1);
  if (size <= 0) return false;
  path[size] = '\0';
  return is_meant(path);
}

/// Whether the call must fail. If the process is to be killed before the call, the function does not return.
bool fails_now(const char* call, bool& is_killed_after) {
  if (!order->calls.empty() && (' ' + order->calls + ' ').find(' ' + std::string{call} + ' ') == std::string::npos)
    return false;
  const long number = ++*counter;
  if (number < order->first || number > order->last) return false;
  if (order->end == FailingCalls::End::killed_before) ::kill(::getpid(), SIGKILL);
  is_killed_after = order->end == FailingCalls::End::killed_after;
  return order->end == FailingCalls::End::error;
}

/// Makes the call, or fails if the order says so.
template <class Result, class Path, class Call>
Result make(const char* name, Path path, Result failure, Call&& call) {
  bool is_killed_after = false;
  if (order != nullptr && is_meant(path) && fails_now(name, is_killed_after)) {
    errno = order->error;
    return failure;
  }
  const auto result = call();
  if (is_killed_after) ::kill(::getpid(), SIGKILL);
  return result;
}

void share_counter() {
  if (counter == nullptr)
    counter = new (::mmap(nullptr, sizeof *counter, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
        std::atomic<long>{0};
  *counter = 0;
}

/// Reads the order from the environment variable of failing_calls_variable.
[[gnu::constructor]] void obey_environment() {
  const char* text = std::getenv(kVariable);
  if (text == nullptr) return;
  std::istringstream words{text};
  FailingCalls read;
  int end = 0;
  words >> read.path >> read.first >> read.last >> end >> read.error >> std::ws;
  std::getline(words, read.calls);
  read.end = static_cast<FailingCalls::End>(end);
  fail_calls(read);
}

}  // namespace

void fail_calls(const FailingCalls& wanted) {
  share_counter();
  delete order;
  order = new FailingCalls{wanted};
}
std::string failing_calls_variable(const FailingCalls& wanted) {
  std::ostringstream text;
  text << kVariable << '=' << wanted.path << ' ' << wanted.first << ' ' << wanted.last << ' '
       << static_cast<int>(wanted.end) << ' ' << wanted.error << ' ' << wanted.calls;
  return text.str();
}
long count_calls() { return counter == nullptr ? 0 : counter->load(); }
void let_calls_succeed() {
  delete order;
  order = nullptr;
}

extern "C" {

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const auto mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return make("open", path, -1, [&] { return next<int(const char*, int, ...)>("open")(path, flags, mode); });
}
int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const auto mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return make("open", path, -1, [&] { return next<int(const char*, int, ...)>("open64")(path, flags, mode); });
}
ssize_t read(int descriptor, void* room, size_t size) {
  return make("read", descriptor, ssize_t{-1},
              [&] { return next<ssize_t(int, void*, size_t)>("read")(descriptor, room, size); });
}
ssize_t pread(int descriptor, void* room, size_t size, off_t offset) {
  return make("pread", descriptor, ssize_t{-1},
              [&] { return next<ssize_t(int, void*, size_t, off_t)>("pread")(descriptor, room, size, offset); });
}
ssize_t write(int descriptor, const void* bytes, size_t size) {
  return make("write", descriptor, ssize_t{-1},
              [&] { return next<ssize_t(int, const void*, size_t)>("write")(descriptor, bytes, size); });
}
ssize_t pwrite(int descriptor, const void* bytes, size_t size, off_t offset) {
  return make("pwrite", descriptor, ssize_t{-1}, [&] {
    return next<ssize_t(int, const void*, size_t, off_t)>("pwrite")(descriptor, bytes, size, offset);
  });
}
int ftruncate(int descriptor, off_t size) noexcept {
  return make("ftruncate", descriptor, -1, [&] { return next<int(int, off_t)>("ftruncate")(descriptor, size); });
}
int fsync(int descriptor) {
  return make("fsync", descriptor, -1, [&] { return next<int(int)>("fsync")(descriptor); });
}
int flock(int descriptor, int operation) noexcept {
  return make("flock", descriptor, -1, [&] { return next<int(int, int)>("flock")(descriptor, operation); });
}
int close(int descriptor) {
  bool is_killed_after = false;
  const bool fails = order != nullptr && is_meant(descriptor) && fails_now("close", is_killed_after);
  // Closes the descriptor in any case, as the kernel does when close() fails.
  const int result = next<int(int)>("close")(descriptor);
  if (is_killed_after) ::kill(::getpid(), SIGKILL);
  if (fails) errno = order->error;
  return fails ? -1 : result;
}
int rename(const char* from, const char* to) noexcept {
  return make("rename", to, -1, [&] { return next<int(const char*, const char*)>("rename")(from, to); });
}
int link(const char* from, const char* to) noexcept {
  return make("link", to, -1, [&] { return next<int(const char*, const char*)>("link")(from, to); });
}
int unlink(const char* path) noexcept {
  return make("unlink", path, -1, [&] { return next<int(const char*)>("unlink")(path); });
}
int remove(const char* path) noexcept {
  return make("unlink", path, -1, [&] { return next<int(const char*)>("remove")(path); });
}
int mkdir(const char* path, mode_t mode) noexcept {
  return make("mkdir", path, -1, [&] { return next<int(const char*, mode_t)>("mkdir")(path, mode); });
}
int rmdir(const char* path) noexcept {
  return make("rmdir", path, -1, [&] { return next<int(const char*)>("rmdir")(path); });
}

}  // extern "C"
