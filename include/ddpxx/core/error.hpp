// ddpxx/core/error.hpp — the one exception type: a code to branch on, a text to read, facts added where they are known.
#pragma once

#include <exception>
#include <locale>
#include <memory>
#include <new>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace ddpxx {

/// What went wrong; the values are the exit codes of every program built on ddpxx.
enum class Errc { config = 2, data = 3, storage = 4, peer = 5, numerics = 6, memory = 7, stopped = 75 };

/// An error whose text says what, where and what to do.
/// Each caller appends the facts that it knows: the collective adds op and bytes, the trainer adds the step.
class Error : public std::exception {
 public:
  Error(Errc code, std::string text) : code_{code}, text_{std::move(text)} {}

  Error& with(std::string_view fact, const auto& value) {
    std::ostringstream text;
    text.imbue(std::locale::classic());  // a program's own locale may group digits
    text << "; " << fact << '=' << value;
    text_ += text.str();
    return *this;
  }

  /// Marks the error as a copy of an error on another rank, which reports it there.
  Error& copied_from(int rank) noexcept {
    origin_ = rank;
    return *this;
  }
  /// The rank that the error was copied from; none if it is not a copy.
  std::optional<int> origin() const noexcept { return origin_; }

  /// Keeps `object` until the error and its copies are gone, such as a setting of the process that has to outlive the
  /// objects that the error destroys on its way.
  Error& keep(std::shared_ptr<const void> object) noexcept {
    kept_ = std::move(object);
    return *this;
  }

  Errc code() const noexcept { return code_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  Errc code_;
  std::string text_;
  std::optional<int> origin_;
  std::shared_ptr<const void> kept_;
};

/// The first line of what a foreign exception says; LibTorch appends a stack of addresses.
inline std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

namespace detail {

/// Whether the text of an exception says that memory ran out, as that of LibTorch's allocator does. The text is cut off
/// if there is no memory for it.
inline bool tells_of_memory(std::string_view text) {
  constexpr std::string_view kAllocator = "[enforce fail at alloc_cpu.cpp", kShortest = "[enforce fail";
  return text.find("out of memory") != text.npos || text.find("allocate memory") != text.npos ||
         text.starts_with(kAllocator) || (text.starts_with(kShortest) && kAllocator.starts_with(text));
}

}  // namespace detail

/// An exception as an error: `memory` where no memory was left, whatever the program was doing, `peer` where no thread
/// was left; of another foreign exception `otherwise`, and its first line.
inline Error as_error(const std::exception& cause, Errc otherwise) {
  if (const auto* error = dynamic_cast<const Error*>(&cause)) return *error;
  const auto text = first_line(cause);
  if (dynamic_cast<const std::bad_alloc*>(&cause) != nullptr || detail::tells_of_memory(text))
    return Error{Errc::memory, "out of memory: use a smaller batch, model or text, or more memory; the cause: " + text};
  const auto* refused = dynamic_cast<const std::system_error*>(&cause);
  if (refused != nullptr && refused->code() == std::errc::resource_unavailable_try_again)
    return Error{Errc::peer, text + ": the system has no more threads (limit: ulimit -u)"};
  return Error{otherwise, text};
}

}  // namespace ddpxx
