// ddpxx/config/files/document_text.hpp — the text of a config file: its bytes, its lines and positions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <ddpxx/config/files/document.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/utf8.hpp>

namespace ddpxx::detail {

inline constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;

/// The file's bytes.
/// Errors  `config`, naming the path and the reason, if the file cannot be read or has more than 16 MiB.
inline std::string read_config_bytes(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    throw Error{Errc::config, "cannot read " + path.string() + ": Is a directory"};
  auto text = read_file(path, Errc::config, kMaxConfigBytes + 1);
  if (text.size() > kMaxConfigBytes)
    throw Error{Errc::config,
                "cannot read " + path.string() + ": it has more than 16 MiB, which is too much for a configuration"};
  return text;
}

class DocumentText {
 public:
  /// Removes a byte order mark, turns all line ends into `\n`, and gives the lines to `source`.
  DocumentText(std::string_view text, std::shared_ptr<ConfigSource> source)
      : text_{normalized(text)}, source_{std::move(source)} {
    source_->lines = lines_of(text_);
    std::size_t start = 0, count = 0;
    for (const auto& line : source_->lines) {
      line_starts_.push_back(start);
      start += line.size() + 1;
    }
    for (std::size_t i = 0; i < text_.size(); ++i) {
      if (i % kBlock == 0) characters_before_.push_back(count);
      if (starts_character(text_[i])) ++count;
    }
  }

  const std::string& text() const noexcept { return text_; }
  std::shared_ptr<const ConfigSource> source() const noexcept { return source_; }

  /// The position of the mark, with its column in characters. The cost does not depend on the length of the line.
  Position place(const TextMark& mark) const {
    const auto number = line_number(mark);
    const auto start = line_starts_[number];
    const auto end = start + std::min(mark.column, source_->lines[number].size());
    return {source_, number + 1, characters_to(end) - characters_to(start) + 1};
  }

  /// The line that contains the mark.
  std::string_view line(const TextMark& mark) const { return source_->lines[line_number(mark)]; }

  /// A problem such as malformed UTF-8, which no parser should get; none for a good text.
  std::optional<ConfigProblem> problem_in_bytes() const {
    if (const auto bad = find_malformed_utf8(text_); bad != std::string::npos)
      return ConfigProblem{place_of_byte(bad), "", "byte " + std::to_string(bad) + " is not UTF-8"};
    if (const auto zero = text_.find('\0'); zero != std::string::npos)
      return ConfigProblem{place_of_byte(zero), "", "a NUL byte; this is not a text file"};
    return std::nullopt;
  }

 private:
  static constexpr std::size_t kBlock = 4096;

  static bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

  std::size_t line_number(const TextMark& mark) const { return std::min(mark.line, source_->lines.size() - 1); }

  /// The number of characters in the first `offset` bytes of well-formed text.
  std::size_t characters_to(std::size_t offset) const {
    if (offset == 0) return 0;
    const auto block = (offset - 1) / kBlock;
    const auto rest = std::string_view{text_}.substr(block * kBlock, offset - block * kBlock);
    return characters_before_[block] + static_cast<std::size_t>(std::ranges::count_if(rest, starts_character));
  }

  Position place_of_byte(std::size_t offset) const {
    const auto before = std::string_view{text_}.substr(0, offset);
    const auto lines = static_cast<std::size_t>(std::ranges::count(before, '\n'));
    return {source_, lines + 1, count_characters(before.substr(before.rfind('\n') + 1)) + 1};
  }

  static std::string normalized(std::string_view text) {
    std::string result;
    result.reserve(text.size());
    for (std::size_t i = text.starts_with("\xEF\xBB\xBF") ? 3 : 0; i < text.size(); ++i)
      if (text[i] != '\r' || i + 1 == text.size() || text[i + 1] != '\n') result += text[i];
    return result;
  }

  static std::vector<std::string> lines_of(std::string_view text) {
    std::vector<std::string> lines;
    for (std::size_t end = 0; end != std::string_view::npos; text.remove_prefix(std::min(end + 1, text.size()))) {
      end = text.find('\n');
      lines.emplace_back(text.substr(0, end));
      if (end == std::string_view::npos) break;
    }
    return lines;
  }

  std::string text_;
  std::shared_ptr<ConfigSource> source_;
  std::vector<std::size_t> line_starts_;        // offset of each line, in bytes
  std::vector<std::size_t> characters_before_;  // number of characters before each block of the text
};

}  // namespace ddpxx::detail
