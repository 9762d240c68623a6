// tests/storage/s3_servers.hpp — the S3 servers that CTest has started, and a proxy that causes faults in requests to
// them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/storage/s3_storage.hpp>

namespace ddpxx {

/// The description of the server with this name; tests/services/README.md lists its keys.
inline nlohmann::json s3_server(const std::string& name) {
  const auto file = environment("DDPXX_S3_SERVERS");
  if (!file) throw std::runtime_error{"DDPXX_S3_SERVERS names no file: run the tests by ctest"};
  const auto content = nlohmann::json::parse(std::ifstream{*file});
  for (const auto& server : content.at("servers"))
    if (server.at("name") == name) return server;
  throw std::runtime_error{"no server " + name + " in " + *file};
}

/// The configuration for the server, with short timeouts and few retries.
inline S3Config s3_config(const nlohmann::json& server) {
  S3Config config;
  config.region = server.at("region");
  config.endpoint = server.at("endpoint");
  config.addressing = S3Addressing::path;
  config.credentials = S3Credentials{server.at("access_key"), server.at("secret_key"), ""};
  config.part_bytes = std::uint64_t{5} << 20U;
  config.retries = 4;
  config.first_pause = std::chrono::milliseconds{50};
  config.stall_timeout = std::chrono::seconds{2};
  return config;
}

/// A place in the server's bucket that no other test uses.
inline S3Place s3_place(const nlohmann::json& server, const std::string& label) {
  std::random_device source;
  return {server.at("bucket"), label + '-' + std::to_string(source()) + '/'};
}

/// A program whose output this process reads, and which the destructor ends.
class Reading {
 public:
  explicit Reading(const std::string& command) : pipe_{::popen(command.c_str(), "r")} {
    if (!pipe_) throw std::runtime_error{"cannot run " + command};
  }

  std::string line() {
    std::array<char, 4096> buffer{};
    return std::fgets(buffer.data(), static_cast<int>(buffer.size()), pipe_.get()) == nullptr ? std::string{}
                                                                                              : buffer.data();
  }
  /// The rest of the output; expects that the program succeeds.
  std::string rest() {
    std::string text;
    for (auto next = line(); !next.empty(); next = line()) text += next;
    if (::pclose(pipe_.release()) != 0) throw std::runtime_error{"a program failed: " + text};
    return text;
  }

 private:
  struct Closes {
    void operator()(std::FILE* pipe) const { ::pclose(pipe); }
  };
  std::unique_ptr<std::FILE, Closes> pipe_;
};

/// Runs tests/services/fault_proxy.py in front of a server.
class FaultProxy {
 public:
  explicit FaultProxy(const nlohmann::json& server)
      : program_{"exec " + environment("DDPXX_PYTHON").value_or("python3") + ' ' + DDPXX_SERVICES + "/fault_proxy.py " +
                 server.at("endpoint").get<std::string>()},
        where_(nlohmann::json::parse(program_.line())) {}

  std::string endpoint() const { return where_.at("endpoint"); }

  /// Replaces all rules by this one, and empties the list of requests.
  void rule(const nlohmann::json& rule) const { set(nlohmann::json::array({rule})); }
  void no_rule() const { set(nlohmann::json::array()); }

  /// The requests since the last change of rules, each with method, path, action, status.
  nlohmann::json requests() const { return nlohmann::json::parse(ask("GET", "/requests", "")); }

  std::int64_t hits() const {
    std::int64_t count = 0;
    const auto rules = nlohmann::json::parse(ask("GET", "/rules", ""));
    for (const auto& rule : rules) count += rule.at("hits").get<int>();
    return count;
  }

 private:
  void set(const nlohmann::json& rules) const { ask("PUT", "/rules", "-d '" + rules.dump() + '\''); }
  std::string ask(const std::string& method, const std::string& path, const std::string& arguments) const {
    return Reading{"exec curl --silent --show-error --fail-with-body -X " + method + ' ' + arguments + ' ' +
                   where_.at("control").get<std::string>() + path}
        .rest();
  }

  Reading program_;
  nlohmann::json where_;
};

/// Bytes that differ from offset to offset; made eight at a time, because tests are not optimised.
inline std::vector<std::byte> pattern(std::size_t size, std::uint64_t seed = 1) {
  std::vector<std::byte> bytes(size);
  for (std::size_t at = 0; at < size; at += sizeof seed) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    const auto word = seed ^ (seed >> 32U);
    std::memcpy(bytes.data() + at, &word, std::min(sizeof word, size - at));
  }
  return bytes;
}

inline bool same_bytes(Bytes a, Bytes b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

template <class Operation>
std::string storage_error(Operation operation) {
  try {
    operation();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::storage) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

inline void remove_all(Storage& storage) {
  for (const auto& object : storage.list("")) storage.remove(object.name);
}

}  // namespace ddpxx
