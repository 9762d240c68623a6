// ddpxx/config/sweep_inl.hpp — the functions of sweep.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <ddpxx/config/raw_value.hpp>
#include <ddpxx/config/sweep.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/table/secret_key.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/config/text/sweep_value.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/sweep.hpp>

namespace ddpxx {

namespace detail {

class SweepReader {
 public:
  SweepReader(std::span<const std::string> arguments, const ConfigTable* table) : table_{table} {
    source_->kind = ConfigSource::Kind::arguments;
    source_->lines.assign(arguments.begin(), arguments.end());
    for (; at_ < source_->lines.size(); ++at_)
      if (!take_option(source_->lines[at_])) taken_.push_back(at_);
  }

  SweepOptions options() && { return std::move(options_); }

  std::vector<SweepJob> jobs() {
    std::vector<Varied> all;
    std::size_t count = 1;
    for (std::size_t i = 0; i < taken_.size(); ++i) {
      all.push_back(read_argument(i));
      count *= std::max<std::size_t>(1, all.back().values.size());  // `count` is at most 10 000 before this
      if (count <= kMaxSweepJobs) continue;
      complain(taken_[i], "with this the sweep has more than " + std::to_string(kMaxSweepJobs) + " jobs");
      break;
    }
    complain_of_replaced_values(all);
    if (!problems_.empty()) throw Error{Errc::config, problem_report(problems_)};
    std::vector<SweepJob> jobs;
    for (std::size_t number = 0; number < count; ++number) jobs.push_back(job(number, all));
    return jobs;
  }

 private:
  /// An argument as `prefix` and one of `values`. `shown_prefix` also has the option's name if that is the argument
  /// before.
  struct Varied {
    std::string prefix;
    std::string shown_prefix;
    std::vector<std::string> values;
    bool is_secret = false;
  };

  void complain(std::size_t index, std::string why) {
    ConfigProblem problem{.place = {source_, index + 1, 1}, .text = std::move(why)};
    problems_.push_back(std::move(problem));
  }

  /// Several values of a key that a later argument sets again would be equal jobs under different names. An option that
  /// begins with a dash may mean something else where it is repeated.
  void complain_of_replaced_values(const std::vector<Varied>& all) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].values.size() < 2 || all[i].prefix.empty() || all[i].prefix.starts_with('-')) continue;
      for (std::size_t later = i + 1; later < all.size(); ++later)
        if (all[later].prefix == all[i].prefix)
          complain(taken_[later],
                   "is given before with several values, which this would replace: give all values once");
    }
  }

  /// True for an option of the sweep itself.
  bool take_option(const std::string& argument) {
    const auto equals = std::min(argument.find('='), argument.size());
    std::string name = argument.substr(0, equals);
    if (name.starts_with("--")) std::ranges::replace(name, '_', '-');
    if (name == "jobs") name = "--jobs";
    static constexpr std::array<std::string_view, 4> kFlags{"-m", "--multirun", "--dry-run", "--slurm-array"};
    static constexpr std::array<std::string_view, 3> kWithValue{"--sweep-dir", "--jobs", "--metric"};
    const auto start = at_;
    if (std::ranges::find(kFlags, name) != kFlags.end()) {
      if (equals < argument.size()) complain(start, "takes no value");
      if (name == "--slurm-array") options_.action = SweepAction::write_slurm_array;
      if (name == "--dry-run") options_.action = SweepAction::print;
      return true;
    }
    if (std::ranges::find(kWithValue, name) == kWithValue.end()) return false;
    std::string value;
    if (equals < argument.size())
      value = argument.substr(equals + 1);
    else if (at_ + 1 < source_->lines.size())
      value = source_->lines[++at_];
    if (value.empty())
      complain(start, "needs a value");
    else
      set(start, name, value);
    return true;
  }

  void set(std::size_t index, std::string_view name, const std::string& value) {
    if (name == "--sweep-dir") options_.folder = value;
    if (name == "--metric") options_.metric = value;
    if (name != "--jobs") return;
    constexpr int kMax = 1024;
    int number = 0;
    const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (status != std::errc{} || end != value.data() + value.size() || number < 1 || number > kMax)
      complain(index, shown(value) + " is not a whole number from 1 to " + std::to_string(kMax));
    options_.jobs_at_once = number;
  }

  /// True if the whole argument is the value of the argument before it, `--key`, although it looks like a setting.
  bool belongs_to(const std::string& key, const std::string& argument) const {
    const auto* row = table_ == nullptr ? nullptr : table_->meaning_of(key_of_argument(key, table_)).row;
    if (row != nullptr) return !row->type->is_switch;
    // Only the name of `--key` is known: it might be a switch in front of a setting.
    return secrecy_of(key, table_) != Secrecy::none && !looks_like_sweep(argument.substr(argument.find('=') + 1));
  }

  /// Reads `key=value`, `--key=value`, or `value` behind `--key`; other arguments are passed on unchanged. If only its
  /// name suggests that a key is a secret, a sweep over its values is not hidden, or its jobs would look alike.
  Varied read_argument(std::size_t index) {
    const std::string argument = source_->lines[taken_[index]];
    const auto equals = argument.find('=');
    if (argument.find('\n') != std::string::npos) complain(taken_[index], "has a line break; a sweep cannot note it");
    const std::string before = index > 0 ? source_->lines[taken_[index - 1]] : "";
    const bool is_behind_key =
        before.starts_with('-') && before.find('=') == std::string::npos && !argument.starts_with("--");
    const bool is_value = is_behind_key && (equals == std::string::npos || belongs_to(before, argument));
    if (!is_value && equals == std::string::npos) return {"", "", {argument}};
    const auto prefix = argument.substr(0, is_value ? 0 : equals + 1);
    auto read = read_sweep_value(std::string_view{argument}.substr(prefix.size()));
    const auto secrecy = secrecy_of(is_value ? before : prefix, table_);
    const bool is_secret = secrecy == Secrecy::by_config || (secrecy == Secrecy::by_name && read.values.size() <= 1);
    if (is_secret) source_->lines[taken_[index]] = prefix + "***";  // shown in problems
    if (!read.problem.empty())
      complain(taken_[index], is_secret ? without_quotes(read.problem) : std::move(read.problem));
    return {prefix, is_value ? before + ' ' : prefix, std::move(read.values), is_secret};
  }

  static SweepJob job(std::size_t number, const std::vector<Varied>& all) {
    SweepJob job{.number = number};
    job.arguments.resize(all.size());
    for (std::size_t left = number, i = all.size(); i-- > 0; left /= all[i].values.size())
      job.arguments[i] = all[i].prefix + all[i].values[left % all[i].values.size()];
    const bool has_secrets = std::ranges::any_of(all, &Varied::is_secret);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto value = all[i].is_secret ? "***" : job.arguments[i].substr(all[i].prefix.size());
      if (all[i].values.size() > 1) job.varied.push_back(all[i].shown_prefix + value);
      if (has_secrets) job.shown.push_back(all[i].prefix + value);
    }
    return job;
  }

  const ConfigTable* table_;
  std::shared_ptr<ConfigSource> source_ = std::make_shared<ConfigSource>();
  std::vector<std::size_t> taken_;  // indices of the arguments for the program
  std::size_t at_ = 0;
  SweepOptions options_;
  std::vector<ConfigProblem> problems_;
};

}  // namespace detail

DDPXX_INLINE bool asks_for_sweep(std::span<const std::string> arguments) {
  const auto has = [&](std::string_view text) { return std::ranges::find(arguments, text) != arguments.end(); };
  const auto is_setting = [](const std::string& argument) { return argument.find('=') != std::string::npos; };
  return has("--multirun") || (has("-m") && std::ranges::any_of(arguments, is_setting));
}

DDPXX_INLINE std::optional<Sweep> read_sweep(std::span<const std::string> arguments, const ConfigTable* table) {
  if (!asks_for_sweep(arguments)) return std::nullopt;
  detail::SweepReader reader{arguments, table};
  auto jobs = reader.jobs();
  return Sweep{std::move(reader).options(), std::move(jobs)};
}

DDPXX_INLINE std::optional<Sweep> read_sweep(std::string_view program, std::span<const std::string> arguments) {
  const bool is_python = std::filesystem::path{program}.filename().string().starts_with("python");
  const bool says_so = std::ranges::find(arguments, "--multirun") != arguments.end();
  return is_python && !says_so ? std::nullopt : read_sweep(arguments);
}

DDPXX_INLINE std::optional<Sweep> read_sweep(int argc, const char* const* argv, const ConfigTable& table) {
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  std::ranges::replace(arguments, "-m", "--multirun");
  return read_sweep(arguments, &table);
}

}  // namespace ddpxx
