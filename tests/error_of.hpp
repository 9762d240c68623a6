// error_of.hpp — the text and the code of the error that a test provokes.
#pragma once

#include <functional>
#include <string>

#include <ddpxx/core/error.hpp>

namespace ddpxx {

inline std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// The code of the error that `body` throws; `stopped` if it throws none.
inline Errc code_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.code();
  }
  return Errc::stopped;
}

}  // namespace ddpxx
