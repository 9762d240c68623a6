// ddpxx/config/yaml_text.hpp — the text of a YAML file: its places, and what is wrong with it before it means anything.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>

#include <ddpxx/config/source.hpp>
#include <ddpxx/config/yaml_tree.hpp>
#include <ddpxx/core/utf8.hpp>

namespace ddpxx {

class YamlText {
 public:
  /// Takes a byte order mark away and ends all lines in `\n`.
  YamlText(std::string_view text, std::string name, std::size_t order) : text_{normalized(text)} {
    source_ = std::make_shared<const ConfigSource>(ConfigSource{order, std::move(name), lines_of(text_)});
  }

  const std::string& text() const noexcept { return text_; }
  const std::shared_ptr<const ConfigSource>& source() const noexcept { return source_; }

  /// yaml-cpp counts from 0, and bytes.
  Position place(const YAML::Mark& mark) const {
    const auto bytes = from_zero(mark.column);
    return {source_, line_of(mark) + 1, count_characters(line(mark).substr(0, bytes)) + 1};
  }

  /// What no YAML parser should see.
  std::optional<ConfigProblem> problem_in_bytes() const {
    if (const auto bad = find_malformed_utf8(text_); bad != std::string::npos)
      return ConfigProblem{place_of_byte(bad), "", "byte " + std::to_string(bad) + " is not UTF-8"};
    if (const auto zero = text_.find('\0'); zero != std::string::npos)
      return ConfigProblem{place_of_byte(zero), "", "a NUL byte; this is no text file"};
    return std::nullopt;
  }

  /// What yaml-cpp lets pass in front of a token, and a quote that runs to the end of the file.
  std::optional<ConfigProblem> problem_at(const YamlNode& node, const YAML::Mark& at) const {
    const bool first_on_line = line(at).find_first_not_of(" \t-") == from_zero(at.column);
    if (const auto tab = tab_in_indentation(at); tab && first_on_line) return tab;
    if (node.quoted && is_unclosed(from_zero(node.mark.pos)))
      return ConfigProblem{place(node.mark), "", "this quote is never closed"};
    return std::nullopt;
  }

  /// yaml-cpp's refusal, in words for people who write YAML by hand.
  ConfigProblem problem_of(const YAML::ParserException& refusal, const YamlNode* open_bracket) const {
    if (auto tab = tab_in_indentation(refusal.mark)) return *tab;
    const std::string_view message = refusal.msg;
    if (message.find("flow not found") != std::string_view::npos && open_bracket != nullptr) {
      const bool list = open_bracket->kind == GivenValue::Kind::list;
      return {place(open_bracket->mark), "", list ? "this [ is never closed" : "this { is never closed"};
    }
    std::string text{message};
    if (message == "illegal map value")
      text = "a value is not expected here (is the indentation right? a text with a colon in it needs quotes)";
    if (message == "end of map not found" || message == "end of sequence not found")
      text = "this does not belong here (is the indentation right? is a quote closed too early?)";
    if (message == "illegal block entry") text = "a list item is not expected here; start it on a line of its own";
    if (message == "unknown token") text = "a text that starts with this character needs quotes";
    if (message == "illegal flow end") text = "this bracket was never opened";
    return {place(refusal.mark), "", text};
  }

 private:
  static std::size_t from_zero(int position) { return static_cast<std::size_t>(std::max(position, 0)); }
  std::size_t line_of(const YAML::Mark& mark) const {
    return std::min(from_zero(mark.line), source_->lines.size() - 1);
  }
  std::string_view line(const YAML::Mark& mark) const { return source_->lines[line_of(mark)]; }

  Position place_of_byte(std::size_t offset) const {
    const auto before = std::string_view{text_}.substr(0, offset);
    const auto lines = static_cast<std::size_t>(std::ranges::count(before, '\n'));
    return {source_, lines + 1, count_characters(before.substr(before.rfind('\n') + 1)) + 1};
  }

  std::optional<ConfigProblem> tab_in_indentation(const YAML::Mark& mark) const {
    const auto text = line(mark);
    const auto tab = text.find('\t');
    if (tab == std::string_view::npos || text.find_first_not_of(" \t") < tab) return std::nullopt;
    return ConfigProblem{{source_, line_of(mark) + 1, tab + 1}, "", "a tab in the indentation; YAML wants spaces"};
  }

  bool is_unclosed(std::size_t at) const {
    const char quote = at < text_.size() ? text_[at] : '\0';
    if (quote != '"' && quote != '\'') return false;  // a text by its tag
    for (++at; at < text_.size(); ++at) {
      const bool doubled = quote == '\'' && at + 1 < text_.size() && text_[at + 1] == quote;
      if ((quote == '"' && text_[at] == '\\') || (text_[at] == quote && doubled))
        ++at;
      else if (text_[at] == quote)
        return false;
    }
    return true;
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
  std::shared_ptr<const ConfigSource> source_;
};

}  // namespace ddpxx
