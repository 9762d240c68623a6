// ddpxx/launch/sweep/sweep_folder.hpp — the folder of a sweep: DIR/N/{log,overrides.yaml,status}, and the files of job
// N.
#pragma once

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <iomanip>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/sweep.hpp>

namespace ddpxx::detail {

/// How a job has ended.
struct JobStatus {
  int code = 0;  ///< Exit code; 128+n for signal n.
  double seconds = 0;
};

/// The name `multirun/<date>_<time>`, in local time.
inline std::filesystem::path new_sweep_name();

/// The job's arguments as a list in YAML: a folder with another list belongs to another sweep. The list has no secrets,
/// so that a sweep can resume with another password.
inline std::string overrides_text(std::span<const std::string> arguments);

/// The folder of a running sweep. During its lifetime no other sweep runs in the folder.
class SweepFolder {
 public:
  /// Uses the folder `wanted`, or makes a new one if that is empty.
  /// Errors  `config` if the folder holds another sweep or a running one; `storage` if it cannot be made.
  SweepFolder(const std::filesystem::path& wanted, std::span<const SweepJob> jobs);

  const std::filesystem::path& path() const noexcept { return path_; }
  std::filesystem::path path(const SweepJob& job) const { return path_ / std::to_string(job.number); }

  /// How the job ended in its last run; none if that run did not end.
  std::optional<JobStatus> status(const SweepJob& job) const;

  /// Prepares the job's folder for a run, and returns its open log.
  /// Errors  `storage` if a file cannot be written.
  File begin(const SweepJob& job) const;

  /// Writes the job's status.
  /// Errors  `storage` if the file cannot be written.
  void end(const SweepJob& job, const JobStatus& status) const;

 private:
  std::filesystem::path path_;
  std::optional<File> lock_;
};

/// Makes a folder and those above it.
/// Errors  `storage`, naming the folder and the reason.
inline void make_sweep_folder(const std::filesystem::path& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure)
    throw Error{Errc::storage, "cannot make the sweep's folder " + folder.string() + ": " + failure.message()};
}

inline std::filesystem::path make_new_sweep_folder() {
  const auto name = new_sweep_name();
  make_sweep_folder(name.parent_path());
  for (int number = 1;; ++number) {
    auto path = name;
    if (number > 1) path += '_' + std::to_string(number);
    if (::mkdir(path.c_str(), 0777) == 0) return path;
    if (errno != EEXIST) throw file_error(Errc::storage, "cannot make the sweep's folder", path);
  }
}

/// Reads the number behind `key`, such as `seconds: `, in a status file; false if there is none.
template <class Number>
bool read_entry(std::string_view text, std::string_view key, Number& value) {
  const auto at = text.find(key);
  if (at == std::string_view::npos) return false;
  const char* from = text.data() + at + key.size();
  return std::from_chars(from, text.data() + text.size(), value).ec == std::errc{};
}

inline std::filesystem::path new_sweep_name() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  return (std::ostringstream{} << "multirun/" << std::put_time(&parts, "%Y-%m-%d_%H-%M-%S")).str();
}

inline std::string overrides_text(std::span<const std::string> arguments) {
  if (arguments.empty()) return "[]\n";
  std::string text;
  for (const auto& argument : arguments) {
    text += "- '";
    for (const char c : argument) text.append(c == '\'' ? 2 : 1, c);
    text += "'\n";
  }
  return text;
}

inline SweepFolder::SweepFolder(const std::filesystem::path& wanted, std::span<const SweepJob> jobs) {
  if (!wanted.empty()) make_sweep_folder(wanted);
  path_ = std::filesystem::absolute(wanted.empty() ? make_new_sweep_folder() : wanted).lexically_normal();
  lock_ = File::open_to_append(path_ / ".lock", Errc::storage);
  if (::flock(lock_->descriptor(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw Error{Errc::config, "a sweep runs in " + path_.string() + " already; choose another --sweep-dir"};
  for (const auto& job : jobs) {
    const auto overrides = path(job) / "overrides.yaml";
    std::error_code absent;
    if (!std::filesystem::exists(overrides, absent)) continue;
    if (read_file(overrides, Errc::storage) == overrides_text(job.for_the_record())) continue;
    throw Error{Errc::config, path(job).string() + " belongs to another sweep: the arguments in its overrides.yaml " +
                                  "are not those of job " + std::to_string(job.number) +
                                  "; choose another --sweep-dir, or remove the folder"};
  }
}

inline std::optional<JobStatus> SweepFolder::status(const SweepJob& job) const {
  std::error_code ignored;
  const auto file = path(job) / "status";
  if (!std::filesystem::exists(path(job) / "overrides.yaml", ignored) || !std::filesystem::exists(file, ignored))
    return std::nullopt;
  const auto text = read_file(file, Errc::storage);
  JobStatus status;
  const bool is_status = read_entry(text, "exit_code: ", status.code) && read_entry(text, "seconds: ", status.seconds);
  return is_status ? std::optional{status} : std::nullopt;
}

inline File SweepFolder::begin(const SweepJob& job) const {
  const auto folder = path(job);
  make_subfolder(folder);
  std::error_code failure;
  std::filesystem::remove(folder / "status", failure);
  if (failure) throw Error{Errc::storage, "cannot remove " + (folder / "status").string() + ": " + failure.message()};
  write_file_atomic(folder / "overrides.yaml", overrides_text(job.for_the_record()));
  return File::open_to_append(folder / "log", Errc::storage);
}

inline void SweepFolder::end(const SweepJob& job, const JobStatus& status) const {
  std::ostringstream text;
  text << "exit_code: " << status.code << "\nseconds: " << std::fixed << std::setprecision(3) << status.seconds << '\n';
  write_file_atomic(path(job) / "status", text.str());
}

}  // namespace ddpxx::detail
