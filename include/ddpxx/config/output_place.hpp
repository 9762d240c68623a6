// ddpxx/config/output_place.hpp — settings that are places of output (Output in core/describe.hpp), in a job of a sweep
// and with a run folder.
//
// The jobs of a sweep have equal arguments except for the values that vary. If they shared a place, job 1 would resume
// from job 0's snapshots. Each job therefore has its own place:
//
//   a relative place               below the job's folder: `runs/a` is `DIR/3/runs/a`
//   a folder elsewhere, s3://      below the given one: `/data/a` is `/data/a/<name of DIR>/3`
//   a file elsewhere               an error: a relative one lies in the job's folder
//
// A relative place that leads out of the job's folder by `..`, such as `../runs/a`, is elsewhere.
#pragma once

#include <filesystem>
#include <string>

#include <ddpxx/config/config_struct.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/describe.hpp>

namespace ddpxx {

/// A place of output, or the problem of the setting.
struct OutputPlace {
  std::string place{};
  std::string problem{};
};

/// The place that belongs to one job of a sweep; `job_folder` is the folder of that job.
OutputPlace output_place_of_job(const std::string& written, Output output, const std::filesystem::path& job_folder);

namespace detail {

/// The reference by which a place of output names the run folder until the run has made it.
std::string run_folder_reference(const ConfigRow& run_folder);

bool is_place_of_output(const ConfigRow& row);

void name_run_folder(const ConfigTable& table, void* config, const std::filesystem::path& folder);

}  // namespace detail

/// Replaces `${run_folder}` in the places of output by `folder`, which the run has made: its name is known only once
/// the run starts.
template <ConfigStruct Config>
void name_run_folder(Config& config, const std::filesystem::path& folder) {
  detail::name_run_folder(table_of<Config>(), &config, folder);
}

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/config/output_place_inl.hpp>
#endif
