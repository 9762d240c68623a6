// ddpxx/comm/store_credentials.hpp — the credentials by which the processes of a job prove to its store that they
// belong to it.
#pragma once

#include <cstddef>
#include <string>

#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// The credentials of a job's clients: they know the token and belong to the run. An empty token admits every client of
/// the run.
struct StoreCredentials {
  std::string token = {};
  std::string run_id = {};
};

/// The maximum size of a token and of a run id, in bytes.
inline constexpr std::size_t kMaxCredentialBytes = 256;

/// Errors  `config` for a token or a run id that is too long.
inline void check(const StoreCredentials& credentials) {
  const auto limit = " is longer than " + std::to_string(kMaxCredentialBytes) + " bytes";
  if (credentials.token.size() > kMaxCredentialBytes) throw Error{Errc::config, "DDPXX_TOKEN" + limit};
  if (credentials.run_id.size() > kMaxCredentialBytes) throw Error{Errc::config, "the run id" + limit};
}

}  // namespace ddpxx
