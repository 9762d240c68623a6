// ddpxx/launch/error_file_inl.hpp — the definitions of error_file.hpp.
#pragma once

#include <cstddef>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>

#include <nlohmann/json.hpp>

#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/launch/error_file.hpp>

namespace ddpxx::detail {

/// The content of an error file; a null value if there is no such file or it is no JSON.
inline nlohmann::json error_file_content(const std::filesystem::path& path) {
  static constexpr std::size_t kMaxBytes = 1U << 20U;
  std::error_code failure;
  if (!std::filesystem::is_regular_file(path, failure)) return {};
  try {
    auto content =
        nlohmann::json::parse(read_file(path, Errc::storage, kMaxBytes), nullptr, /*allow_exceptions=*/false);
    return content.is_discarded() ? nlohmann::json{} : content;
  } catch (const Error&) {
    return {};
  }
}

/// Writes `content` to the file that TORCHELASTIC_ERROR_FILE names.
inline void dump_to_error_file(const nlohmann::json& content) {
  const auto path = environment("TORCHELASTIC_ERROR_FILE");
  if (!path) return;
  std::ofstream{*path} << content.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

DDPXX_INLINE void write_error_file(const std::string& message, int code) noexcept {
  try {
    if (!environment("TORCHELASTIC_ERROR_FILE")) return;
    // torchrun prints the call stack instead of the message, and programs of ddpxx have no call stack to show.
    const nlohmann::json extra = {{"py_callstack", message}, {"timestamp", std::to_string(std::time(nullptr))}};
    dump_to_error_file({{"message", {{"message", "Error: " + message}, {"extraInfo", extra}, {"errorCode", code}}}});
  } catch (const std::exception&) {
    return;  // the message is also printed
  }
}

DDPXX_INLINE std::optional<std::string> read_error_file(const std::filesystem::path& path) {
  const auto content = error_file_content(path);
  if (!content.is_object() || !content.contains("message")) return std::nullopt;
  const auto& message = content["message"];
  if (message.is_string()) return message.get<std::string>();
  if (!message.is_object() || !message.contains("message") || !message["message"].is_string()) return std::nullopt;
  return message["message"].get<std::string>();
}

DDPXX_INLINE void pass_on_error_file(const std::filesystem::path& path, int code) noexcept {
  try {
    auto content = error_file_content(path);
    if (!content.is_object()) return;
    if (content.contains("message") && content["message"].is_object()) content["message"]["errorCode"] = code;
    dump_to_error_file(content);
  } catch (const std::exception&) {
    return;  // the report names the rank's own file
  }
}

}  // namespace ddpxx::detail
