// error_of.hpp — the text of the error that a test provokes.
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

}  // namespace ddpxx
