// ddpxx/data/text_files.hpp — reads the text of files as one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/data/plain_text.hpp>
#include <ddpxx/data/utf8.hpp>

namespace ddpxx {

/// Whether a file at `place` would be among the texts of the folder `path`: `place` is the folder, or lies below it.
/// False where `path` is no folder.
inline bool is_among_texts(const std::string& place, const std::string& path) {
  std::error_code failure;
  if (!std::filesystem::is_directory(path, failure)) return false;
  // Absolute first: a relative path of which nothing exists yet would stay as it is.
  const auto full = [&](const std::string& name) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(name, failure), failure);
  };
  const auto below = full(place).lexically_relative(full(path));
  return !below.empty() && *below.begin() != "..";
}

/// The joined texts of files or objects: the first `max_bytes` of them (0: all), without a last character that is cut
/// in two. A character may begin in one file and end in the next, as `split -b` cuts texts. `read_front(file, max)`
/// returns the first `max` bytes of a file, `name_of(file)` its name for errors.
/// Errors  `data` for a file that holds no text.
template <class Entry, class NameOf, class ReadFront>
std::string join_texts(const std::vector<Entry>& files, std::size_t max_bytes, NameOf&& name_of,
                       ReadFront&& read_front) {
  const auto most = max_bytes == 0 ? std::numeric_limits<std::size_t>::max() : max_bytes;
  std::string text;
  std::vector<std::size_t> begins;  // offset of each file in the text
  std::size_t checked = 0;
  const auto check_up_to = [&](std::size_t end) {
    const auto offset = find_non_text(std::string_view{text}.substr(checked, end - checked));
    if (offset != std::string_view::npos) {
      const auto bad = checked + offset;
      const auto file = static_cast<std::size_t>(std::ranges::upper_bound(begins, bad) - begins.begin()) - 1;
      throw non_text_error(name_of(files[file]), bad - begins[file], text[bad]);
    }
    checked = end;
  };
  for (const auto& file : files) {
    const auto left = most - text.size();
    auto part = read_front(file, left);
    const bool is_full = part.size() == left;
    begins.push_back(text.size());
    if (text.empty())
      text = std::move(part);  // a single file is not copied
    else
      text += part;
    check_up_to(without_torn_end(text).size());  // the next file may have the rest of a torn character
    if (!is_full) continue;
    text.resize(checked);
    return text;
  }
  check_up_to(text.size());
  return text;
}

/// The joined text of files.
/// Errors  `data` for a file that cannot be read or holds no text.
inline std::string read_text(const std::vector<std::string>& files, std::size_t max_bytes) {
  return join_texts(
      files, max_bytes, [](const std::string& file) { return file; },
      [](const std::string& file, std::size_t most) { return read_file(file, Errc::data, most); });
}

}  // namespace ddpxx
