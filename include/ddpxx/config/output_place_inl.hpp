// ddpxx/config/output_place_inl.hpp — the functions of output_place.hpp that are not templates.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include <ddpxx/config/output_place.hpp>
#include <ddpxx/config/raw_value.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx {

DDPXX_INLINE OutputPlace output_place_of_job(const std::string& written, Output output,
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

namespace detail {

DDPXX_INLINE std::string run_folder_reference(const ConfigRow& run_folder) { return "${" + run_folder.path + '}'; }

DDPXX_INLINE bool is_place_of_output(const ConfigRow& row) {
  return row.facts.output == Output::folder || row.facts.output == Output::file;
}

DDPXX_INLINE void name_run_folder(const ConfigTable& table, void* config, const std::filesystem::path& folder) {
  const ConfigRow* run_folder = table.run_folder();
  if (run_folder == nullptr) return;
  const auto reference = run_folder_reference(*run_folder);
  for (const auto& row : table.rows) {
    if (!is_place_of_output(row) || !table.is_active(row, config)) continue;
    auto text = row.type->text(table.field(row, std::as_const(config)));
    auto at = text.find(reference);
    if (at == std::string::npos) continue;
    for (; at != std::string::npos; at = text.find(reference, at + folder.string().size()))
      text.replace(at, reference.size(), folder.string());
    row.type->decode(table.field(row, config), {.kind = RawValue::Kind::text, .text = text, .quoted = true}, row.facts);
  }
}

}  // namespace detail

}  // namespace ddpxx
