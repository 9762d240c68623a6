// tests/config/filled.hpp — a config from a YAML text and arguments, without a file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <ddpxx/config/files/yaml.hpp>
#include <ddpxx/config/fill/config_builder.hpp>
#include <ddpxx/config/line/arguments.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/config/walk.hpp>

namespace ddpxx {

template <class Config>
struct Filled {
  Config config{};
  std::string problems;
  std::string notices;
};

/// The file is called t.yaml in messages.
template <class Config>
Filled<Config> fill(std::string_view yaml, std::vector<const char*> arguments = {}) {
  using namespace detail;
  Filled<Config> result;
  ConfigBuilder builder{table_of<Config>(), &result.config};
  builder.apply(read_yaml_text(yaml, "t.yaml", 0));
  builder.apply(read_arguments(arguments, table_of<Config>()).entries);
  builder.finish();
  result.problems = problem_report(builder.problems());
  for (const auto& notice : builder.notices())
    result.notices += to_text(notice.place) + ": " + notice.path + ": " + notice.text + '\n';
  return result;
}

}  // namespace ddpxx
