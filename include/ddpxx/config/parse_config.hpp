// ddpxx/config/parse_config.hpp — reads a config from its defaults, files, the environment and the command line.
#pragma once

#include <exception>

#include <ddpxx/config/choose_recorded.hpp>
#include <ddpxx/config/config_struct.hpp>
#include <ddpxx/config/parse_options.hpp>
#include <ddpxx/config/parsed_config.hpp>
#include <ddpxx/config/print.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/config_record.hpp>

namespace ddpxx {

/// Reads a config from its defaults, then the settings that `recorded` returns, if it is given, then the config files,
/// then the environment, then the other arguments. An option that shows something (--help, --cfg, --blame, --info,
/// --schema, --completion, init) ends the program by `ProgramEnd`, which run_program handles; a configuration that
/// breaks rules between settings is shown, with warnings. Only rank 0 prints notices, and problems are reported as
/// show/refusal.hpp says.
/// Errors  `config`, with every problem and its position; `storage` if what is shown could not be written; what
///         `recorded` throws, before any problem is reported.
template <class Config>
Config parse_config(int argc, const char* const* argv, const ParseOptions& options = {},
                    const ChooseRecorded<Config>& recorded = {});

/// Reads a config as parse_config does, and returns it with the record that a run folder and snapshots keep.
template <class Config>
ParsedConfig<Config> parse_recorded(int argc, const char* const* argv, const ParseOptions& options = {},
                                    const ChooseRecorded<Config>& recorded = {});

namespace detail {

/// Parses into `config`, which holds its defaults and has the type that `table` describes.
ConfigRecord parse_into(void* config, const ConfigTable& table, int argc, const char* const* argv,
                        const ParseOptions& options, const RecordedChoice& recorded);

}  // namespace detail

template <class Config>
ParsedConfig<Config> parse_recorded(int argc, const char* const* argv, const ParseOptions& options,
                                    const ChooseRecorded<Config>& recorded) {
  if constexpr (detail::explain_config_struct<Config>()) {
    ParsedConfig<Config> parsed;
    GivenConfig<Config> given;
    parsed.record = detail::parse_into(&parsed.config, table_of<Config>(), argc, argv, options,
                                       detail::recorded_choice(given, recorded));
    return parsed;
  } else {
    std::terminate();  // never reached: explain_config_struct has failed to compile
  }
}

template <class Config>
Config parse_config(int argc, const char* const* argv, const ParseOptions& options,
                    const ChooseRecorded<Config>& recorded) {
  if constexpr (detail::explain_config_struct<Config>())
    return parse_recorded<Config>(argc, argv, options, recorded).config;
  else
    std::terminate();  // never reached: explain_config_struct has failed to compile
}

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/config/parse_config_inl.hpp>
#endif
