// ddpxx/train/run_folder.hpp — the folder of one run: its configuration, who set it, and what the run writes there.
#pragma once

#include <array>
#include <ctime>
#include <filesystem>
#include <string>
#include <system_error>

#include <c10/util/hash.h>

#include <ddpxx/comm/on_rank_zero.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/core/config_record.hpp>
#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>

namespace ddpxx {

/// A name for the configuration: equal for equal values, whoever set them.
/// Source  SHA-1 of the lines `path=value`.
inline std::string config_hash(const ConfigRecord& record) {
  std::string lines;
  for (const auto& setting : record.settings) lines += setting.path + '=' + setting.value + '\n';
  return c10::sha1(lines).str();
}

/// Makes the folder that `pattern` names, as strftime reads it: `outputs/%Y-%m-%d/%H-%M-%S`. No two runs share one: a
/// folder that is there already gets a number, `-2` and so on, unless this is a restart of the named run that made it.
/// A sweep gives each of its jobs a folder by DDPXX_RUN_FOLDER. Writes config.yaml, overrides.yaml and config.sha1.
/// Returns its path; empty when there is neither a pattern nor a sweep.
/// Ranks   Collective: rank 0 makes it, all are told.
/// Errors  `config` on every rank when it cannot be made.
inline std::filesystem::path make_run_folder(const std::string& pattern, const ConfigRecord& record,
                                             const Group& group);

namespace detail {

inline std::filesystem::path with_time(const std::string& pattern, std::time_t now) {
  std::tm parts{};
  ::localtime_r(&now, &parts);
  std::array<char, 4096> room{};
  const auto size = std::strftime(room.data(), room.size(), pattern.c_str(), &parts);
  if (size == 0) throw Error{Errc::config, "the run folder's name \"" + pattern + "\" is too long"};
  return std::string{room.data(), size};
}

/// Tells the runs of a launcher apart. A run that was started by hand has no name, nor has one that its launcher calls
/// `none`, as it does where nobody named it.
inline std::string run_name() {
  const auto name = environment("TORCHELASTIC_RUN_ID").value_or("");
  return name == "none" ? "" : name;
}

inline bool is_own(const std::filesystem::path& folder) {
  const bool is_restart = environment("TORCHELASTIC_RESTART_COUNT").value_or("0") != "0";
  std::error_code ignored;
  return is_restart && !run_name().empty() && std::filesystem::exists(folder / "run", ignored) &&
         read_file(folder / "run", Errc::config, 4096) == run_name() + '\n';
}

inline std::filesystem::path make_exclusively(const std::filesystem::path& wanted) {
  constexpr int kMostTries = 10'000;
  std::error_code error;
  if (wanted.has_parent_path()) std::filesystem::create_directories(wanted.parent_path(), error);
  auto folder = wanted;
  for (int number = 2; !error && number <= kMostTries; ++number) {
    if (std::filesystem::create_directory(folder, error)) {
      write_file_atomic(folder / "run", run_name() + '\n');
      return folder;
    }
    if (is_own(folder)) return folder;
    folder = wanted;
    folder += '-' + std::to_string(number);
  }
  throw Error{Errc::config, "cannot make the run folder " + folder.string() + ": " +
                                (error ? error.message() : "there are 10000 of that name already")};
}

inline std::filesystem::path make_folder_and_record(const std::string& pattern, const ConfigRecord& record) {
  const auto given = environment("DDPXX_RUN_FOLDER");
  if (!given && pattern.empty()) return {};
  const auto folder = given ? std::filesystem::path{*given} : make_exclusively(with_time(pattern, std::time(nullptr)));
  write_file_atomic(folder / "config.yaml", record.yaml);
  if (!given) write_file_atomic(folder / "overrides.yaml", record.overrides);  // a sweep has written its own
  write_file_atomic(folder / "config.sha1", config_hash(record) + '\n');
  return folder;
}

}  // namespace detail

inline std::filesystem::path make_run_folder(const std::string& pattern, const ConfigRecord& record,
                                             const Group& group) {
  std::filesystem::path folder;
  on_rank_zero(group, Errc::config, [&] { folder = detail::make_folder_and_record(pattern, record); });
  return broadcast_text(folder.string(), group);
}

}  // namespace ddpxx
