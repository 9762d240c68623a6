// ddpxx/config/parse_config_inl.hpp — the functions of parse_config.hpp that are not templates.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>

#include <ddpxx/config/fill/parsing.hpp>
#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/config/parse_options.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/core/config_record.hpp>
#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/sweep.hpp>

namespace ddpxx::detail {

/// The folder of this process's job in a sweep; none outside of a sweep.
inline std::optional<std::filesystem::path> folder_of_this_job() {
  const auto folder = environment(kRunFolderVariable).value_or("");
  return folder.empty() ? std::nullopt : std::optional<std::filesystem::path>{folder};
}

DDPXX_INLINE ConfigRecord parse_into(void* config, const ConfigTable& table, int argc, const char* const* argv,
                                     const ParseOptions& options, const RecordedChoice& recorded) {
  const std::span<const char* const> arguments{argv, static_cast<std::size_t>(argc)};
  return Parsing{table, config, arguments, options, folder_of_this_job(), recorded}.run();
}

}  // namespace ddpxx::detail
