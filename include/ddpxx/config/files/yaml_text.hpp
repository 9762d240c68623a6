// ddpxx/config/files/yaml_text.hpp — explains problems of a YAML text, for people who write it by hand.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <ddpxx/config/files/document.hpp>
#include <ddpxx/config/files/document_text.hpp>
#include <ddpxx/config/text/source.hpp>

namespace ddpxx::detail {

/// Finds problems that yaml-cpp accepts in front of a token, and a quote that runs to the end of the file.
inline std::optional<ConfigProblem> yaml_problem_at(const DocumentText& text, const DocumentNode& node,
                                                    const TextMark& at);

/// Turns an error of yaml-cpp, or a refusal of the tree, into a problem.
inline ConfigProblem yaml_problem_of(const DocumentText& text, const TextMark& mark, std::string_view message,
                                     const DocumentNode* open_bracket);

inline std::optional<ConfigProblem> tab_in_indentation(const DocumentText& text, const TextMark& mark) {
  const auto line = text.line(mark);
  const auto tab = line.find('\t');
  if (tab == std::string_view::npos || line.find_first_not_of(" \t") < tab) return std::nullopt;
  const auto number = text.place(mark).line;
  return ConfigProblem{{text.source(), number, tab + 1}, "", "a tab in the indentation; YAML wants spaces"};
}

inline bool is_unclosed_quote(std::string_view text, std::size_t at) {
  const char quote = at < text.size() ? text[at] : '\0';
  if (quote != '"' && quote != '\'') return false;  // a tag makes it a text
  for (++at; at < text.size(); ++at) {
    const bool doubled = quote == '\'' && at + 1 < text.size() && text[at + 1] == quote;
    if ((quote == '"' && text[at] == '\\') || (text[at] == quote && doubled))
      ++at;
    else if (text[at] == quote)
      return false;
  }
  return true;
}

inline std::optional<ConfigProblem> yaml_problem_at(const DocumentText& text, const DocumentNode& node,
                                                    const TextMark& at) {
  const bool first_on_line = text.line(at).find_first_not_of(" \t-") == at.column;
  if (first_on_line)
    if (auto tab = tab_in_indentation(text, at)) return tab;
  if (node.quoted && is_unclosed_quote(text.text(), node.mark.offset))
    return ConfigProblem{text.place(node.mark), "", "this quote is never closed"};
  return std::nullopt;
}

inline ConfigProblem yaml_problem_of(const DocumentText& text, const TextMark& mark, std::string_view message,
                                     const DocumentNode* open_bracket) {
  if (auto tab = tab_in_indentation(text, mark)) return *tab;
  if (message.find("flow not found") != std::string_view::npos && open_bracket != nullptr) {
    const bool list = open_bracket->kind == RawValue::Kind::list;
    return {text.place(open_bracket->mark), "", list ? "this [ is never closed" : "this { is never closed"};
  }
  if (message == "illegal map value")
    message = "a value is not expected here (is the indentation right? a text with a colon in it needs quotes)";
  if (message == "end of map not found" || message == "end of sequence not found")
    message = "this does not belong here (is the indentation right? is a quote closed too early?)";
  if (message == "illegal block entry") message = "a list item is not expected here; start it on a line of its own";
  if (message == "unknown token") message = "a text that starts with this character needs quotes";
  if (message == "illegal flow end") message = "this bracket was never opened";
  return {text.place(mark), "", std::string{message}};
}

}  // namespace ddpxx::detail
