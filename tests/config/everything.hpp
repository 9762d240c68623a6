// tests/config/everything.hpp — a config with fields of all types and with every kind of description.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <ddpxx/config/alias.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/core/describe.hpp>

namespace ddpxx {

enum class Format { fp32, bf16, off };
constexpr auto enum_names(Format) {
  return std::array{Named{Format::fp32, "fp32"}, Named{Format::bf16, "bf16"}, Named{Format::off, "off"}};
}

struct Numbers {
  std::int64_t whole = -3;
  std::int64_t count = 8;
  std::int8_t tiny = 1;
  std::uint64_t huge = 18'446'744'073'709'551'615U;
  std::optional<std::int32_t> maybe;
  double real = 1e-10;
  double share = 0.5;
  float single = 0.1F;
  double limit = std::numeric_limits<double>::infinity();
  std::int64_t bytes = 1 << 20;
  std::int64_t seconds = 600;
  double wait = 0.5;

  static constexpr auto describe() {
    return fields(
        field<&Numbers::count>("How many", at_least(1), Unit::steps),
        field<&Numbers::share>("A part of it", above(0.0), below(1.0)),
        field<&Numbers::limit>("No limit but a low one", above(0.0), at_most(std::numeric_limits<double>::infinity())),
        field<&Numbers::bytes>("Memory", at_least(0), Unit::bytes),
        field<&Numbers::seconds>("A long while", at_least(1), Unit::seconds),
        field<&Numbers::wait>("A short while", between(0.0, 60.0), Unit::seconds));
  }
};

struct Texts {
  bool truth = true;
  std::optional<bool> doubt;
  std::string text = "a \"b\"\nc";
  std::optional<std::string> nothing;
  std::filesystem::path path = "/tmp";
  std::string choice = "true";
  Format format = Format::fp32;
  std::optional<Format> other = Format::off;
  std::chrono::milliseconds pause{90'000};
  std::optional<std::chrono::seconds> timeout;
  std::string token;

  static constexpr auto describe() {
    return fields(field<&Texts::text>("Whatever you like; this help is so long that it has to be broken into several "
                                      "lines where a column ends, which is after 120 characters of it"),
                  field<&Texts::choice>("One of a few", choices("true", "false", "3", "some")),
                  field<&Texts::token>("Opens doors", secret()));
  }
};

struct Lists {
  std::vector<std::int64_t> wholes = {1, 2};
  std::array<double, 2> betas = {0.9, 0.95};
  std::vector<std::string> texts;
  std::optional<std::vector<bool>> truths;
  std::vector<std::vector<std::int64_t>> rows;
  std::vector<Format> formats = {Format::bf16};
  std::map<std::string, double> weights = {{"a.b", 1}, {"", 2}};
  std::map<std::string, std::optional<std::string>> names;

  static constexpr auto describe() {
    return fields(field<&Lists::wholes>("Some numbers", at_least(0)),
                  field<&Lists::weights>("A weight by name", at_least(0.0)));
  }
};

struct Momentum {
  double value = 0.9;
  bool nesterov = false;
};
struct AdamRule {
  double learning_rate = 3e-4;
  std::array<double, 2> betas = {0.9, 0.95};
  static constexpr auto describe() { return fields(field<&AdamRule::learning_rate>("Step size", above(0.0))); }
};
struct SgdRule {
  double learning_rate = 0.1;
  Momentum momentum;
  static constexpr auto describe() { return fields(field<&SgdRule::momentum>("What is left of the last step")); }
};
struct NoRule {};

struct Strategy {
  std::string name = "ddp";
  std::int64_t bucket_bytes = 25 << 20;
  static constexpr auto describe() {
    return fields(field<&Strategy::name>("Which", choices("ddp", "fsdp")),
                  field<&Strategy::bucket_bytes>("Size", Unit::bytes));
  }
};

struct Inner {
  std::int64_t depth = 2;
};
struct Outer {
  Inner inner;
  std::int64_t width = 3;
};

/// A switch of another program: bf16 or fp32.
inline Translation format_of_switch(std::string_view value) {
  const auto is_on = read_bool(value);
  if (!is_on) return {.problem = "is neither true nor false"};
  return {.value = *is_on ? "bf16" : "fp32"};
}

struct Everything {
  std::int64_t seed = 1;
  Numbers numbers;
  Texts texts;
  Lists lists;
  Outer outer;
  std::variant<AdamRule, SgdRule, NoRule> optimizer;
  Strategy strategy;

  static constexpr auto describe() {
    return fields(field<&Everything::numbers>("Numbers of all kinds"),
                  field<&Everything::optimizer>("How weights are stepped", choices("adam", "sgd", "none")));
  }
  static constexpr auto aliases() {
    return std::array{Alias{"ddp", "strategy"},
                      Alias{"lr", "optimizer.learning_rate"},
                      Alias{"numbers.many", "numbers.count"},
                      Alias{"legacy.depth", "outer.inner.depth"},
                      Alias{"outer_config", "outer"},
                      Alias{"outer_config.wide", "outer.width"},
                      Alias{"shell", "outer_config"},
                      Alias{"half", "texts.format", format_of_switch},
                      Alias{"opt", "optimizer"},
                      Alias{"sizes[0]", "outer.width"},
                      Alias{"sizes[1]", "outer.inner.depth"}};
  }
  static constexpr auto ignored() {
    return std::array{Ignored{"hydra", "the working directory stays"}, Ignored{"outer_config.old", "is no more"},
                      Ignored{"bias", "all have one", choices("true")},
                      Ignored{"init_from", "there is nothing to begin from", choices("scratch", "resume")}};
  }
};

}  // namespace ddpxx
