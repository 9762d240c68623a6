// ddpxx/comm/verdict.hpp — an error as a text that is sent to the other ranks.
#pragma once

#include <exception>
#include <string>

#include <ddpxx/core/error.hpp>

namespace ddpxx::detail {

/// The code of `cause` as one character, and its text; never empty.
inline std::string to_verdict(const std::exception& cause, Errc otherwise) {
  const auto error = as_error(cause, otherwise);
  return static_cast<char>(error.code()) + std::string{error.what()};
}

inline Error from_verdict(const std::string& verdict) {
  return Error{static_cast<Errc>(verdict.front()), verdict.substr(1)};
}

}  // namespace ddpxx::detail
