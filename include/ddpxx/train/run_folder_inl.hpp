// ddpxx/train/run_folder_inl.hpp — definitions of run_folder.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/on_rank_zero.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/core/config_record.hpp>
#include <ddpxx/core/each_entry.hpp>
#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/sweep.hpp>
#include <ddpxx/core/unreplaced_tilde.hpp>
#include <ddpxx/train/config_hash.hpp>
#include <ddpxx/train/run_folder.hpp>

namespace ddpxx {

namespace detail {

inline std::filesystem::path with_time(const std::string& pattern, std::time_t now) {
  std::tm parts{};
  ::localtime_r(&now, &parts);
  std::array<char, 4096> buffer{};
  const auto size = std::strftime(buffer.data(), buffer.size(), pattern.c_str(), &parts);
  if (size == 0) throw Error{Errc::config, "the run folder's name \"" + pattern + "\" is too long"};
  return std::string{buffer.data(), size};
}

/// Tells the runs of a launcher apart. A run that was started by hand has no name, nor has one that its launcher calls
/// `none`, as it does where it was given no name.
inline std::string run_name() {
  const auto name = environment("TORCHELASTIC_RUN_ID").value_or("");
  return name == "none" ? "" : name;
}

/// When this run has made the folder; none if another run has, or if that cannot be found out.
inline std::optional<std::filesystem::file_time_type> time_of_own(const std::filesystem::path& folder) {
  std::error_code failure;
  // No run makes a link, which may lead what is written here to another folder.
  if (std::filesystem::is_symlink(folder, failure)) return std::nullopt;
  if (!std::filesystem::is_regular_file(folder / "run", failure)) return std::nullopt;
  const auto time = std::filesystem::last_write_time(folder / "run", failure);
  if (failure) return std::nullopt;
  try {
    if (read_file(folder / "run", Errc::config, 4096) != run_name() + '\n') return std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
  return time;
}

/// What strftime may make of a part of the pattern between two slashes: figures, words, and what stands there.
inline std::string regex_of(std::string_view part) {
  std::string text;
  for (std::size_t i = 0; i < part.size(); ++i) {
    if (part[i] == '%') {
      i = std::min(part.find_first_not_of("_-0^#123456789EO", i + 1), part.size() - 1);
      if (part[i] != '%') {
        text += std::string_view{"CdeFgGHIjklmMRsSTuUVwWyYz"}.find(part[i]) == part.npos ? ".*" : "[-+:0-9 ]+";
        continue;
      }
    }
    if (std::string_view{"^$\\.*+?()[]{}|"}.find(part[i]) != part.npos) text += '\\';
    text += part[i];
  }
  return text;
}

/// The folders in those of `level` whose whole name is like that. What cannot be listed has none.
inline std::vector<std::filesystem::path> folders_in(const std::vector<std::filesystem::path>& level,
                                                     const std::regex& like) {
  std::vector<std::filesystem::path> found;
  for (const auto& folder : level)
    each_entry(folder.empty() ? "." : folder, [&](const auto& entry) {
      std::error_code gone;
      if (auto path = folder / entry.path().filename();
          std::regex_match(path.filename().string(), like) && entry.is_directory(gone))
        found.push_back(std::move(path));
    });
  return found;
}

/// All folders that the pattern may have made, at any time and with any number.
inline std::vector<std::filesystem::path> folders_like(std::string pattern) {
  for (auto at = pattern.find('%'); at < pattern.size(); at = pattern.find('%', at + 2))
    if (at + 1 < pattern.size() && (pattern[at + 1] == 'D' || pattern[at + 1] == 'x'))
      pattern.replace(at, 2, "%m/%d/%y");  // they have slashes
  const std::filesystem::path parts{pattern};
  std::vector<std::filesystem::path> level{{}};
  for (auto part = parts.begin(); part != parts.end(); ++part) {
    const auto text = part->string();
    if (std::next(part) == parts.end())
      level = folders_in(level, std::regex{regex_of(text) + "(-[0-9]+)?"});
    else if (text.find('%') != std::string::npos)
      level = folders_in(level, std::regex{regex_of(text)});
    else
      for (auto& folder : level) folder /= *part;
  }
  return level;
}

/// The folder in which an earlier start of this run has worked; none for the first start.
inline std::optional<std::filesystem::path> folder_before_restart(const std::string& pattern) {
  // ddpxx-run also starts the ranks again when machines come or go, which does not count as a restart.
  const auto is_first = [](const char* count) { return environment(count).value_or("0") == "0"; };
  if ((is_first("TORCHELASTIC_RESTART_COUNT") && is_first("DDPXX_ROUND")) || run_name().empty()) return std::nullopt;
  std::optional<std::pair<std::filesystem::file_time_type, std::filesystem::path>> newest;
  for (const auto& folder : folders_like(pattern))
    if (const auto time = time_of_own(folder)) newest = std::max(newest, std::optional{std::pair{*time, folder}});
  return newest ? std::optional{newest->second} : std::nullopt;
}

inline std::filesystem::path make_exclusively(const std::filesystem::path& wanted) {
  constexpr int kMaxTries = 10'000;
  std::error_code error;
  if (wanted.has_parent_path()) std::filesystem::create_directories(wanted.parent_path(), error);
  auto folder = wanted;
  for (int number = 2; !error && number <= kMaxTries; ++number) {
    if (std::filesystem::create_directory(folder, error)) {
      write_file_atomic(folder / "run", run_name() + '\n');
      return folder;
    }
    if (error) break;
    folder = wanted;
    folder += '-' + std::to_string(number);
  }
  throw Error{Errc::config, "cannot make the run folder " + folder.string() + ": " +
                                (error ? error.message() : "there are 10000 of that name already")};
}

inline std::filesystem::path own_folder(const std::string& pattern) {
  const auto before = folder_before_restart(pattern);
  return before ? *before : make_exclusively(with_time(pattern, std::time(nullptr)));
}

inline std::filesystem::path make_folder_and_record(const std::string& pattern, const ConfigRecord& record) {
  const auto given = environment(kRunFolderVariable);
  if (pattern.find("://") != std::string::npos)
    throw Error{Errc::config, "run_folder=" + pattern +
                                  ": a run's folder is one of a disk, since files grow there line by line; "
                                  "training.save_dir may lie behind s3://"};
  if (const auto problem = problem_of_tilde(pattern); !problem.empty())
    throw Error{Errc::config, "run_folder=" + problem};
  auto own = std::filesystem::path{pattern}.lexically_normal();
  if (!own.has_filename()) own = own.parent_path();  // of outputs/%F/
  if (!given && (own.empty() || own == ".")) return {};
  const auto folder = given ? std::filesystem::path{*given} : own_folder(own.string());
  write_file_atomic(folder / "config.yaml", record.yaml);
  if (!given) write_file_atomic(folder / "overrides.yaml", record.overrides);  // a sweep has written its own
  write_file_atomic(folder / "config.sha1", config_hash(record.settings) + '\n');
  return folder;
}

}  // namespace detail

DDPXX_INLINE std::filesystem::path make_run_folder(const std::string& pattern, const ConfigRecord& record,
                                                   const Group& group) {
  std::filesystem::path folder;
  on_rank_zero(group, Errc::config, [&] { folder = detail::make_folder_and_record(pattern, record); });
  return broadcast_text(folder.string(), group);
}

DDPXX_INLINE std::string metrics_file(const std::filesystem::path& folder, const std::string& metrics,
                                      const Group& group) {
  if (folder.empty()) return metrics;
  const auto usual = folder / "metrics.jsonl";
  if (metrics.empty()) return usual.string();
  const auto target = std::filesystem::absolute(metrics).lexically_normal();
  std::error_code exists;  // or it cannot be made: then the table of a sweep says that the rows are missing
  if (group.rank() == 0 && target != std::filesystem::absolute(usual).lexically_normal())
    std::filesystem::create_symlink(target, usual, exists);
  return metrics;
}

}  // namespace ddpxx
