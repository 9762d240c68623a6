// ddpxx/train/run_folder.hpp — the folder of one run: its configuration, who set it, and what the run writes there.
#pragma once

#include <filesystem>
#include <string>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/config_record.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx {

/// Makes the folder that `pattern` names, as strftime reads it: `outputs/%Y-%m-%d/%H-%M-%S`. No two runs share one: a
/// folder that is there already gets a number, `-2` and so on. A restart of a run with a name (its launcher's
/// TORCHELASTIC_RUN_ID) goes on in the newest folder of that name that the pattern may have made, whatever the time is.
/// A sweep gives each of its jobs a folder by DDPXX_RUN_FOLDER. Writes config.yaml, overrides.yaml and config.sha1 (see
/// config_hash). Returns its path; empty when there is neither a pattern nor a sweep, or when the pattern is the
/// working directory, which does not belong to one run.
/// Ranks   Collective: rank 0 makes it, all are told.
/// Errors  On every rank: `config` when it cannot be made, or is an address such as s3://; `storage` when a file in it
///         cannot be written.
std::filesystem::path make_run_folder(const std::string& pattern, const ConfigRecord& record, const Group& group);

/// The file of a run's metrics: `metrics`, or metrics.jsonl in the run's folder where that is empty. A file elsewhere
/// gets a link metrics.jsonl in the folder, where the table of a sweep looks for it.
/// Ranks   Rank 0 makes the link.
std::string metrics_file(const std::filesystem::path& folder, const std::string& metrics, const Group& group);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/train/run_folder_inl.hpp>
#endif
