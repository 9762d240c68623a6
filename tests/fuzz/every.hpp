// tests/fuzz/every.hpp — a config with fields of all types, and a check of whatever a source sets in it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <ddpxx/config/alias.hpp>
#include <ddpxx/config/files/problem_json.hpp>
#include <ddpxx/config/files/yaml.hpp>
#include <ddpxx/config/fill/config_builder.hpp>
#include <ddpxx/config/print.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/utf8.hpp>

namespace ddpxx {

enum class Layout { gpt2, mingpt_ddp };
constexpr auto enum_names(Layout) {
  return std::array{Named{Layout::gpt2, "gpt2"}, Named{Layout::mingpt_ddp, "mingpt_ddp"}};
}

struct Fast {
  double rate = 0.1;
  std::int64_t steps = 5;
};
struct Slow {
  double rate = 0.2;
  std::vector<std::string> names{"a"};
};

struct Group {
  std::int64_t size = 8;
  std::int64_t parts = 2;
  std::string secret_word = "none";

  static constexpr auto describe() {
    return fields(field<&Group::size>("", Unit::bytes, at_least(1)),
                  field<&Group::parts>("", at_least(1), resets<&Group::size>()));
  }
  std::vector<FieldError> check() const {
    if (size % parts != 0) return {{"size", "must be a multiple of parts"}};
    return {};
  }
};

struct Every {
  bool flag = false;
  std::optional<bool> maybe;
  std::int64_t i64 = 7;
  std::uint64_t u64 = 7;
  std::uint8_t u8 = 7;
  int i32 = 7;
  double real = 7;
  float single = 7;
  double pause = 7;
  std::string text = "seven";
  std::string model = "gpt2";
  std::filesystem::path path = "seven";
  Layout layout = Layout::gpt2;
  std::optional<std::int64_t> layers;
  std::vector<double> numbers{7};
  std::vector<bool> flags;
  std::array<double, 2> betas{0.9, 0.95};
  std::vector<std::vector<int>> table;
  std::map<std::string, double> steps;
  std::chrono::milliseconds wait{5};
  std::variant<Fast, Slow> way;
  Group group;

  static constexpr auto describe() {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return fields(field<&Every::i32>("", at_least(1), was("int")),
                  field<&Every::real>("", above(0.0), at_most(kInfinity)), field<&Every::pause>("", Unit::seconds),
                  field<&Every::model>("", choices("gpt2", "gpt-mini")), field<&Every::betas>("", between(0.0, 1.0)),
                  field<&Every::way>("", choices("fast", "slow")));
  }
  static constexpr auto aliases() { return std::array{Alias{"g", "group"}, Alias{"group.word", "text"}}; }
  static constexpr auto ignored() { return std::array{Ignored{"hydra", "the folder is never changed"}}; }
};

/// Demands that all problems can be printed as UTF-8, and that settings without problems survive printing and reading
/// back.
inline void fill_and_check(const detail::SourceEntries& entries) {
  using namespace detail;
  const auto fill = [](const SourceEntries& source, Every& config) {
    ConfigBuilder builder{table_of<Every>(), &config};
    builder.apply(source);
    builder.finish();
    for (const auto& notice : builder.notices()) to_text(notice);
    return builder.problems();
  };
  Every config;
  const auto problems = fill(entries, config);
  if (find_malformed_utf8(problem_report(problems)) != std::string::npos) std::abort();
  problems_as_json(problems);
  if (!problems.empty()) return;
  const auto printed = print_yaml(config);
  Every again;
  if (!fill(read_yaml_text(printed, "printed.yaml", 0), again).empty() || print_yaml(again) != printed) std::abort();
}

}  // namespace ddpxx
