// ddpxx/config/fill/parsing.hpp — one parse of a command line: reads the sources of a config, and shows what an option
// asks for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <ddpxx/config/choose_recorded.hpp>
#include <ddpxx/config/files/yaml.hpp>
#include <ddpxx/config/fill/blame.hpp>
#include <ddpxx/config/fill/config_builder.hpp>
#include <ddpxx/config/fill/recorded_source.hpp>
#include <ddpxx/config/line/arguments.hpp>
#include <ddpxx/config/line/environment_source.hpp>
#include <ddpxx/config/line/search_path.hpp>
#include <ddpxx/config/parse_options.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/print.hpp>
#include <ddpxx/config/show/completion.hpp>
#include <ddpxx/config/show/help.hpp>
#include <ddpxx/config/show/init.hpp>
#include <ddpxx/config/show/print_json.hpp>
#include <ddpxx/config/show/refusal.hpp>
#include <ddpxx/config/show/schema.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/table/secret_key.hpp>
#include <ddpxx/config/table/unknown_key.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/core/config_record.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/program_end.hpp>
#include <ddpxx/core/standard_output.hpp>

namespace ddpxx::detail {

inline void print_notices(const std::vector<ConfigProblem>& notices) {
  if (!is_first_rank()) return;
  for (const auto& notice : std::span{notices}.first(std::min(notices.size(), kMaxProblems)))
    Log{0}.info((notice.place.source ? to_text(notice.place) + ": " : "") +
                (leaves_key_open(notice.place) && !notice.path.empty() ? notice.path + ": " : "") + notice.text);
  if (notices.size() > kMaxProblems) Log{0}.info("and " + std::to_string(notices.size() - kMaxProblems) + " more");
}

/// Prints the problems that would keep the program from running with a configuration that it shows.
inline void print_open_rules(const std::vector<ConfigProblem>& problems) {
  if (!is_first_rank()) return;
  std::cout.flush();
  for (const auto& problem : sorted(problems))
    Log{0}.info("warning: not ready to run: " + (problem.place.source ? to_text(problem.place) + ": " : std::string{}) +
                (leaves_key_open(problem.place) && !problem.path.empty() ? problem.path + ": " : "") + problem.text);
}

/// Prints a text, and ends the program.
/// Errors  `storage` if the text, or one that was printed before, could not be written.
[[noreturn]] inline void show(const std::string& text) {
  if (is_first_rank()) {
    std::cout << text;
    check_standard_output();
  }
  throw ProgramEnd{0};
}

/// One parse of a command line.
class Parsing {
 public:
  /// `config` holds its defaults; `job_folder` is the folder of a sweep's job.
  Parsing(const ConfigTable& table, void* config, std::span<const char* const> arguments, const ParseOptions& options,
          const std::optional<std::filesystem::path>& job_folder, RecordedChoice recorded = {})
      : table_{table},
        config_{config},
        options_{options},
        job_folder_{job_folder},
        recorded_{std::move(recorded)},
        line_{read_arguments(arguments.subspan(arguments.empty() ? 0 : 1), table, options.commands,
                             options.argument_numbers)},
        builder_{table, config, job_folder, options.unused} {
    if (!options.program.empty())
      program_ = options.program;
    else if (!arguments.empty())
      program_ = std::filesystem::path{arguments[0]}.filename().string();
  }

  ConfigRecord run() {
    show_what_needs_no_values();
    read_sources();
    builder_.finish();
    const bool is_run = line_.action == ConfigAction::run && !options_.only_looks;
    if (!builder_.problems().empty() && (is_run || !builder_.has_only_open_rules())) {
      if (line_.errors == ErrorStyle::text) print_notices(builder_.notices());
      refuse_config(builder_.problems(), line_.errors);
    }
    show_values();
    print_notices(builder_.notices());
    print_open_rules(builder_.problems());
    std::string yaml;
    for (const auto& argument : overrides()) yaml += "- " + yaml_quoted(argument) + '\n';
    return {settings_with_origins(table_, config_, builder_), blame_yaml(table_, config_, builder_),
            yaml.empty() ? "[]\n" : yaml};
  }

  /// The problems of the configuration; nothing is shown.
  std::vector<ConfigProblem> problems() {
    read_sources();
    builder_.finish();
    return sorted(builder_.problems());
  }

 private:
  void show_what_needs_no_values() const {
    if (line_.action == ConfigAction::completion)
      show(completion_script(table_, line_.subject.text, program_, options_.commands));
    if (line_.action == ConfigAction::schema) show(json_schema(table_, program_));
    if (line_.action == ConfigAction::init) write_starter();
    if (line_.action != ConfigAction::help) return;
    if (line_.subject.text.empty())
      show(wrapped_help(
          help_text(table_, program_, options_.config_path.string(), options_.commands, options_.more_usage),
          terminal_columns()));
    auto text = help_text(table_, line_.subject.text);
    if (text.empty()) refuse_subject(explain_unknown_path(line_.subject.text));
    show(wrapped_help(text, terminal_columns()));
  }

  /// Reports a problem of the word behind --help or init.
  [[noreturn]] void refuse_subject(std::string why) const {
    refuse_config({{line_.subject.place, "", std::move(why)}}, line_.errors);
  }

  std::string explain_unknown_path(std::string_view path) const {
    return explain_unknown_key(table_, path, first_unknown_segment(table_, path), path_segments(path).size());
  }

  /// Writes a first configuration and its schema, or neither. Existing files are not overwritten.
  [[noreturn]] void write_starter() const {
    if (!is_first_rank()) show("");
    if (line_.subject.text.empty()) show(starter_yaml(table_, program_ + ".schema.json"));
    const std::filesystem::path file = line_.subject.text;
    if (file.extension() == ".json") refuse_subject("init writes YAML: name the file .yaml");
    auto schema = file;
    schema.replace_extension(".schema.json");
    for (const auto& path : {file, schema}) {
      std::error_code unknown;  // a file that cannot be examined cannot be made either, which is reported below
      if (std::filesystem::exists(std::filesystem::symlink_status(path, unknown))) refuse_taken(path);
    }
    for (const auto& [path, text] : {std::pair{file, starter_yaml(table_, schema.filename().string())},
                                     std::pair{schema, json_schema(table_, program_)}})
      write_new(path, text);
    show("wrote " + file.string() + " and " + schema.string() + '\n');
  }

  void write_new(const std::filesystem::path& path, std::string_view text) const {
    bool is_new = false;
    try {
      is_new = create_file_atomic(path, bytes_of(text));
    } catch (const Error& error) {
      refuse_subject(error.what());
    }
    if (!is_new) refuse_taken(path);
  }

  [[noreturn]] void refuse_taken(const std::filesystem::path& path) const {
    refuse_subject(path.string() + " is there already; choose another name, or remove it");
  }

  void read_sources() {
    const SearchPath search{line_.config_path ? std::filesystem::path{line_.config_path->text} : options_.config_path,
                            line_.config_dirs};
    std::vector<SourceEntries> included, named;  // included files come before all named files
    for (const auto& name : line_.config_names) {
      auto entries = search.read(name, included.size() + named.size());
      named.push_back(std::move(entries.back()));
      entries.pop_back();
      std::ranges::move(entries, std::back_inserter(included));
    }
    auto sources = std::move(included);
    std::ranges::move(named, std::back_inserter(sources));
    for (const auto& source : sources)
      if (source.source && source.source->is_file()) files_.push_back(source.source->name);
    add_python_defaults(sources);
    if (!options_.environment_prefix.empty())
      sources.push_back(read_environment(options_.environment_prefix, environment_variables(), table_));
    sources.push_back(line_.entries);
    if (recorded_.choose) {
      auto [settings, name] = choose_recorded(sources);
      if (!settings.empty()) builder_.apply(read_recorded(settings, std::move(name), table_));
    }
    for (auto& source : sources) builder_.apply(std::move(source));
  }

  /// Chooses the recorded settings by what the sources set.
  RecordedSettings choose_recorded(const std::vector<SourceEntries>& sources) const {
    ConfigBuilder given{table_, recorded_.given, job_folder_};
    for (const auto& source : sources) given.apply(source);
    given.finish();
    GivenPaths given_paths{.unread = {given.unread().begin(), given.unread().end()},
                           .is_run = line_.action == ConfigAction::run};
    for (const auto& row : table_.rows)
      if (!given.history(row).empty() && !given.as_written(row)) given_paths.paths.insert(row.path);
    return recorded_.choose(std::move(given_paths));
  }

  /// Puts the defaults of the Python program before the files, if one of them is a file of Python.
  void add_python_defaults(std::vector<SourceEntries>& files) const {
    const auto& defaults = table_.python_defaults;
    bool is_needed = false;
    for (auto& entries : files) {
      if (defaults.yaml.empty() || !entries.source || !entries.source->name.ends_with(".py")) continue;
      auto& notice = entries.notices.emplace_back();
      notice.place = {entries.source, 1, 1};
      notice.text = defaults.notice;
      is_needed = true;
    }
    if (is_needed) files.insert(files.begin(), read_yaml_text(defaults.yaml, std::string{defaults.name}, files.size()));
  }

  void show_values() const {
    if (line_.action == ConfigAction::blame) show_with_rules(blame_yaml(table_, config_, builder_));
    if (line_.action == ConfigAction::info) show_with_rules(info());
    if (line_.action == ConfigAction::print_json) show_with_rules(print_json(table_, config_) + '\n');
    if (line_.action == ConfigAction::print)
      show_with_rules(print_yaml(table_, config_, [&](const ConfigRow& row) {
        const auto written = builder_.as_written(row);
        return written && !line_.resolve ? *written : table_.print(row, config_);
      }));
  }

  [[noreturn]] void show_with_rules(const std::string& text) const {
    if (is_first_rank()) std::cout << text;
    print_open_rules(builder_.problems());
    show("");
  }

  std::string info() const {
    std::string text = "program: " + program_ + "\nfiles, from the first read to the last:\n";
    for (const auto& file : files_) text += "  " + file + '\n';
    if (files_.empty()) text += "  none\n";
    text += "overrides:\n";
    const auto arguments = overrides();
    for (const auto& argument : arguments) text += "  " + argument + '\n';
    return text + (arguments.empty() ? "  none\n" : "");
  }

  /// The arguments that set something, with `***` for the values of secrets.
  std::vector<std::string> overrides() const {
    std::vector<std::string> result;
    std::set<std::size_t> secret, listed;
    for (const auto& entry : line_.entries.list)
      if (may_be_secret(table_, entry.path)) secret.insert(entry.keys.front().line);
    for (const auto& entry : line_.entries.list) {
      const auto& place = entry.keys.front();
      if (!listed.insert(place.line).second) continue;
      const auto& argument = place.source->lines[place.line - 1];
      result.push_back(secret.contains(place.line) ? entry.path + "=***" : argument);
    }
    return result;
  }

  const ConfigTable& table_;
  void* config_;
  const ParseOptions& options_;
  std::optional<std::filesystem::path> job_folder_;
  RecordedChoice recorded_;
  std::string program_ = "program";
  ConfigArguments line_;
  ConfigBuilder builder_;
  std::vector<std::string> files_;
};

}  // namespace ddpxx::detail
