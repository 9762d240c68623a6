// ddpxx/config/files/problem_json.hpp — problems as JSON, for editors and other programs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <ddpxx/config/text/source.hpp>

namespace ddpxx::detail {

/// A JSON array, in the order of `problem_report`, of objects with the keys source, line, column, path and message. The
/// source is a file, `argument N: "..."`, `environment variable NAME: "..."` or `default`; line and column are numbers
/// for a file, and null otherwise. Malformed UTF-8 becomes U+FFFD.
inline std::string problems_as_json(std::vector<ConfigProblem> problems) {
  auto array = nlohmann::ordered_json::array();
  for (const auto& problem : sorted(std::move(problems))) {
    const auto& [source, line, column] = problem.place;
    const bool in_file = source && source->is_file();
    nlohmann::ordered_json object{{"source", in_file ? source->name : to_text(problem.place)},
                                  {"line", nullptr},
                                  {"column", nullptr},
                                  {"path", problem.path},
                                  {"message", problem.text}};
    if (in_file) {
      object["line"] = line;
      object["column"] = column;
    }
    array.push_back(std::move(object));
  }
  return array.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace ddpxx::detail
