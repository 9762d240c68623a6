// ddpxx/config/files/python_file.hpp — reads a nanoGPT configuration: lines `NAME = VALUE` of Python, which are not
// run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <ddpxx/config/files/argument_value.hpp>
#include <ddpxx/config/files/document.hpp>
#include <ddpxx/config/files/document_text.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/core/units.hpp>

namespace ddpxx::detail {

/// The entries of the assignments: numbers, products of whole numbers such as `5 * 8`, texts, True, False, None, tuples
/// and lists, each on one line, with at most 100000 values including the items of lists. Any other Python is a problem
/// at its position. `source` gets the lines.
inline SourceEntries read_python(std::string_view text, std::shared_ptr<ConfigSource> source);

/// Converts an unquoted text by Python's rules; false if it is not a literal.
inline bool read_python_literal(RawValue& value) {
  if (value.kind == RawValue::Kind::list) return std::ranges::all_of(value.items, read_python_literal);
  if (value.quoted || value.text == "True" || value.text == "False") return true;
  if (value.text == "None") {
    value.kind = RawValue::Kind::none;
    return true;
  }
  const auto first = parse_decimal(value.text);
  if (first && first->suffix.empty()) return true;
  if (value.text.empty()) return false;
  std::uint64_t product = 1;
  for (std::string_view rest = value.text; !rest.empty();) {
    const auto end = std::min(rest.find('*'), rest.size());
    auto factor = rest.substr(0, end);
    while (factor.starts_with(' ')) factor.remove_prefix(1);
    const auto number = parse_decimal(factor.substr(0, factor.find(' ')));
    const bool is_number = number && number->suffix.empty() &&
                           factor.find_first_not_of(' ', std::min(factor.find(' '), factor.size())) == factor.npos;
    const auto whole = is_number ? to_whole(*number, product) : WholeNumber{.fit = WholeNumber::Fit::fraction};
    if (whole.fit != WholeNumber::Fit::exact || whole.negative || end + 1 == rest.size()) return false;
    product = whole.magnitude;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  value.text = std::to_string(product);
  return true;
}

class PythonReader {
 public:
  explicit PythonReader(const DocumentText& text) : text_{text}, entries_{.source = text.source()} {}

  SourceEntries read() && {
    const auto& lines = text_.source()->lines;
    for (; line_ < lines.size(); ++line_) {
      read_line(without_comment(lines[line_]));
      if (count_ <= DocumentTree::kMaxNodes) continue;
      complain(0, "", "more than 100000 values");
      break;
    }
    return std::move(entries_);
  }

 private:
  /// The line without its comment, which begins with a `#` outside of quotes.
  static std::string_view without_comment(std::string_view line) {
    char quote = '\0';
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (quote != '\0' && line[i] == '\\')
        ++i;
      else if (quote != '\0')
        quote = line[i] == quote ? '\0' : quote;
      else if (line[i] == '#')
        return line.substr(0, i);
      else if (line[i] == '"' || line[i] == '\'')
        quote = line[i];
    }
    return line;
  }
  static std::string_view without_end(std::string_view text) {
    return text.substr(0, text.find_last_not_of(" \t;") + 1);
  }
  static bool is_name(std::string_view text) {
    const auto is_letter = [](char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    return !text.empty() && is_letter(text[0]) &&
           std::ranges::all_of(text, [&](char c) { return is_letter(c) || is_digit(c); });
  }

  static std::size_t count_of(const RawValue& value) {
    std::size_t count = 1;
    for (const auto& item : value.items) count += count_of(item);
    return count;
  }

  Position place(std::size_t column) const { return text_.place({.line = line_, .column = column}); }
  void complain(std::size_t column, std::string_view name, const std::string& why) {
    entries_.problems.push_back({place(column), std::string{name}, why});
  }

  void read_line(std::string_view line) {
    constexpr const char* kNotRun = "a configuration in Python is read and not run: write what comes out";
    const auto code = without_end(line);
    if (code.empty()) return;
    ++count_;
    const auto equals = code.find('=');
    const auto name = without_end(code.substr(0, equals));
    if (equals == std::string_view::npos || !is_name(name))
      return complain(code.find_first_not_of(" \t"), "", std::string{"is not a line NAME = VALUE; "} + kNotRun);
    const auto start = std::min(code.find_first_not_of(" \t", equals + 1), code.size());
    auto read = read_argument_value(code.substr(start), Brackets::are_python, place(start));
    count_ += count_of(read.value) - 1;
    if (count_ > DocumentTree::kMaxNodes) return;
    if (!read.problem.empty()) return complain(start, name, read.problem);
    if (!read_python_literal(read.value))
      return complain(
          start, name,
          shown(code.substr(start)) + " is not a number, text, True, False, None, tuple or list; " + kNotRun);
    entries_.list.push_back({.path = std::string{name}, .keys = {place(0)}, .value = std::move(read.value)});
  }

  const DocumentText& text_;
  SourceEntries entries_;
  std::size_t line_ = 0;
  std::size_t count_ = 0;  // number of values, with items of lists, and of lines without a value
};

inline SourceEntries read_python(std::string_view text, std::shared_ptr<ConfigSource> source) {
  const DocumentText python{text, std::move(source)};
  if (const auto problem = python.problem_in_bytes()) return {.source = python.source(), .problems = {*problem}};
  return PythonReader{python}.read();
}

}  // namespace ddpxx::detail
