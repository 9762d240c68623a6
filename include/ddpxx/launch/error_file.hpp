// ddpxx/launch/error_file.hpp — the file by which a rank tells its launcher why it has failed.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace ddpxx::detail {

/// Writes the message of a failed rank to the file that TORCHELASTIC_ERROR_FILE names, in the form that torchelastic
/// reads, in addition to the exit code. Does nothing if the variable is not set or the file cannot be written.
void write_error_file(const std::string& message, int code) noexcept;

/// The message in an error file, as `RuntimeError: no data`; none if there is no such file or it has another form.
std::optional<std::string> read_error_file(const std::filesystem::path& path);

/// Copies the error file of a rank to the one of this launcher, which TORCHELASTIC_ERROR_FILE names if another launcher
/// has started it. Adds the exit code of the rank.
void pass_on_error_file(const std::filesystem::path& path, int code) noexcept;

}  // namespace ddpxx::detail

#ifndef DDPXX_CORE
#include <ddpxx/launch/error_file_inl.hpp>
#endif
