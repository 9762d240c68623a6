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
#include <string_view>
#include <utility>

#include <ddpxx/config/table/table.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/describe.hpp>

namespace ddpxx {

/// A place of output, or the problem of the setting.
struct OutputPlace {
  std::string place{};
  std::string problem{};
};

/// The place that belongs to one job of a sweep; `job_folder` is the folder of that job.
inline OutputPlace output_place_of_job(const std::string& written, Output output,
                                       const std::filesystem::path& job_folder);

/// Replaces `${run_folder}` in the places of output by `folder`, which the run has made: its name is known only once
/// the run starts.
template <ConfigStruct Config>
void name_run_folder(Config& config, const std::filesystem::path& folder);

namespace detail {

/// The reference by which a place of output names the run folder until the run has made it.
inline std::string run_folder_reference(const ConfigRow& run_folder) { return "${" + run_folder.path + '}'; }

inline bool is_place_of_output(const ConfigRow& row) {
  return row.facts.output == Output::folder || row.facts.output == Output::file;
}

inline void name_run_folder(const ConfigTable& table, void* config, const std::filesystem::path& folder) {
  const ConfigRow* run_folder = table.run_folder();
  if (run_folder == nullptr) return;
  const auto reference = run_folder_reference(*run_folder);
  for (const auto& row : table.rows) {
    if (!is_place_of_output(row) || !table.is_active(row, config)) continue;
    auto text = row.type->text(table.field(row, std::as_const(config)));
    const auto at = text.find(reference);
    if (at == std::string::npos) continue;
    text.replace(at, reference.size(), folder.string());
    row.type->decode(table.field(row, config), {.kind = RawValue::Kind::text, .text = text, .quoted = true}, row.facts);
  }
}

}  // namespace detail

inline OutputPlace output_place_of_job(const std::string& written, Output output,
                                       const std::filesystem::path& job_folder) {
  if (written.find("://") == std::string::npos) {
    const auto folder = job_folder.lexically_normal();
    const auto place = (folder / written).lexically_normal();  // an absolute place stays as it is
    const auto below = place.lexically_relative(folder);
    if (!below.empty() && *below.begin() != "..") return {.place = place.string()};
  }
  if (output == Output::file)
    return {.problem = "a job of a sweep writes no file outside of its own folder: write " +
                       shown(std::filesystem::path{written}.filename().string()) +
                       ", which is a file in the folder of each job"};
  auto place = written;
  while (place.size() > 1 && place.ends_with('/') && !place.ends_with("://")) place.pop_back();
  const auto sweep = job_folder.parent_path().filename().string(), job = job_folder.filename().string();
  return {.place = place + '/' + sweep + '/' + job};
}

template <ConfigStruct Config>
void name_run_folder(Config& config, const std::filesystem::path& folder) {
  detail::name_run_folder(table_of<Config>(), &config, folder);
}

}  // namespace ddpxx
