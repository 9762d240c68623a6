// ddpxx/core/error.hpp — the one exception type: a code to branch on, a text to read, facts added where they are known.
#pragma once

#include <exception>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace ddpxx {

/// What went wrong; the values are the exit codes of every program built on ddpxx.
enum class Errc { config = 2, data = 3, storage = 4, peer = 5, numerics = 6, memory = 7, stopped = 75 };

/// An error whose text says what, where and what to do.
/// Facts are appended by whoever knows them: the collective adds op and bytes, the trainer adds the step.
class Error : public std::exception {
 public:
  Error(Errc code, std::string text) : code_{code}, text_{std::move(text)} {}

  Error& with(std::string_view fact, const auto& value) {
    text_ += (std::ostringstream{} << "; " << fact << '=' << value).str();
    return *this;
  }

  /// Marks the error as a copy of an error on another rank, which reports it there.
  Error& copied_from(int rank) noexcept {
    origin_ = rank;
    return *this;
  }
  /// The rank that the error was copied from; none when it is no copy.
  std::optional<int> origin() const noexcept { return origin_; }

  Errc code() const noexcept { return code_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  Errc code_;
  std::string text_;
  std::optional<int> origin_;
};

/// The first line of what a foreign exception says; LibTorch appends a stack of addresses.
inline std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace ddpxx
