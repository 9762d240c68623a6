// ddpxx/data/data_files.hpp — lists the files at a path: a file, the files below a folder, or those that match a
// pattern.
#pragma once

#include <algorithm>
#include <filesystem>
#include <glob.h>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <ddpxx/core/each_entry.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/unreplaced_tilde.hpp>

namespace ddpxx {

namespace detail {

/// Adds the files below `folder` whose names end with `ending`. Follows links to files, but not to folders. A link to
/// nothing is added too: the file that it named is missing, and opening it says so. Hidden ones are left out, since
/// editors lock a file by such a link beside it.
inline void add_files_below(const std::filesystem::path& folder, std::string_view ending,
                            std::vector<std::string>& files) {
  const auto failure = each_entry(folder, [&](const auto& entry) {
    std::error_code gone;
    const bool is_link = entry.is_symlink(gone), is_hidden = entry.path().filename().native().starts_with('.');
    if (entry.is_directory(gone) && !is_link)
      add_files_below(entry.path(), ending, files);
    else if ((entry.is_regular_file(gone) || (is_link && !is_hidden && !entry.exists(gone))) &&
             entry.path().native().ends_with(ending))
      files.push_back(entry.path().string());
  });
  if (failure) throw Error{Errc::data, "cannot read the folder " + folder.string() + ": " + failure.message()};
}

/// Refuses `**`, which glob(3) and fnmatch(3) read as `*`: it would match in one folder only, where Python and shells
/// take all folders below.
/// Errors  `data`.
inline void refuse_double_star(const std::string& pattern) {
  if (pattern.find("**") == std::string::npos) return;
  throw Error{Errc::data, pattern +
                              ": ** is not supported, and * matches names of one folder: name the folder alone to "
                              "read all files below it, or write a pattern with one * for each level"};
}

/// Errors  `data` for a pattern that matches nothing, and for `**`.
inline std::vector<std::string> paths_that_match(const std::string& pattern) {
  refuse_double_star(pattern);
  ::glob_t found{};
  const int status = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  const std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (status == GLOB_NOMATCH) throw Error{Errc::data, "no file matches " + pattern};
  if (status != 0) throw Error{Errc::data, "cannot look for files that match " + pattern};
  return paths;
}

}  // namespace detail

/// The regular files that a path names, sorted by the bytes of their paths, so that all machines have one order. A
/// folder stands for all files below it whose names end with `ending`; a path that does not exist and contains one of
/// `*?[` is a pattern for glob(3).
/// Errors  `data` if a folder has no such file or no file matches a pattern, for a pattern with `**`, and for a path
///         with a `~` that no shell has replaced. Any other path is returned without a check.
inline std::vector<std::string> find_data_files(const std::string& path, std::string_view ending = {}) {
  const auto is_folder = [](const std::string& name) {
    std::error_code ignored;
    return std::filesystem::is_directory(name, ignored);
  };
  std::error_code ignored;
  if (const auto problem = detail::problem_of_tilde(path); !problem.empty()) throw Error{Errc::data, problem};
  const bool is_pattern = path.find_first_of("*?[") != std::string::npos && !std::filesystem::exists(path, ignored);
  std::vector<std::string> files;
  for (const auto& name : is_pattern ? detail::paths_that_match(path) : std::vector{path}) {
    if (is_folder(name))
      detail::add_files_below(name, ending, files);
    else
      files.push_back(name);
  }
  if (files.empty())
    throw Error{Errc::data,
                "no file " + (ending.empty() ? "" : "with the ending " + std::string{ending} + ' ') + "below " + path};
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace ddpxx
