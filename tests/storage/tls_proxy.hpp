// tests/storage/tls_proxy.hpp — a server behind TLS whose certificate is signed by a private authority.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include <ddpxx/core/environment.hpp>

#include "../temporary_folder.hpp"
#include "s3_servers.hpp"

namespace ddpxx {

/// Runs tests/services/tls_proxy.py in front of a server, with new certificates.
class TlsProxy {
 public:
  explicit TlsProxy(const std::string& endpoint)
      : program_{"exec " + environment("DDPXX_PYTHON").value_or("python3") + ' ' + DDPXX_SERVICES + "/tls_proxy.py " +
                 endpoint + ' ' + folder_.path().string()},
        where_(nlohmann::json::parse(program_.line())) {}

  std::string endpoint() const { return where_.at("endpoint"); }
  std::string ca_bundle() const { return where_.at("ca_bundle"); }

 private:
  TemporaryFolder folder_;
  Reading program_;
  nlohmann::json where_;
};

}  // namespace ddpxx
