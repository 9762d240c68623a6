// ddpxx/launch/sweep/slurm_array.hpp — writes a sweep as a Slurm job array, with an element for each job.
#pragma once

#include <filesystem>
#include <sstream>
#include <string>

#include <ddpxx/core/sweep.hpp>
#include <ddpxx/launch/sweep/shell_word.hpp>
#include <ddpxx/launch/sweep/sweep_folder.hpp>
#include <ddpxx/launch/sweep_command.hpp>

namespace ddpxx::detail {

/// The script for `sbatch` that runs `command` for each job of a sweep. Each element writes its job's folder as
/// SweepRunner does, so that either can resume the other, and ends with the exit code of its job; 75 means that the job
/// stopped with its work saved.
inline std::string slurm_array_script(const Sweep& sweep, const SweepCommand& command);

/// The script of a sweep with other parts: `head` has the lines up to the first command, `step` is the command to which
/// the arguments of the job are added, and `end` runs when the exit code of the job is in `code` and written to the
/// job's folder.
inline std::string slurm_array_script(const Sweep& sweep, const std::string& head, const std::string& step,
                                      const std::string& end);

/// The part of the script that every element runs. The number of the job is in `job`, its arguments are in `arguments`,
/// and in `shown` without secrets if there are any.
inline constexpr const char* kSlurmFrame =
    R"(for each in "$folder" "$folder"/{overrides.yaml,log,".status.$SLURM_JOB_ID"}; do
  if [[ -L $each ]]; then
    echo "refusing to write to $each: it is a symbolic link; remove it" >&2
    exit 4
  fi
done
mkdir -p "$folder" || exit 4
q="'"
overrides='[]'
if ((${#shown[@]} == 0)); then shown=("${arguments[@]}"); fi
if ((${#shown[@]} > 0)); then overrides=$(printf -- "- '%s'\n" "${shown[@]//$q/$q$q}"); fi
if [[ -e $folder/overrides.yaml && $(<"$folder/overrides.yaml") != "$overrides" ]]; then
  echo "$folder belongs to another sweep; choose another --sweep-dir" >&2
  exit 2
fi
if grep -qsx 'exit_code: 0' "$folder/status"; then exit 0; fi
rm -f "$folder/status"
printf '%s\n' "$overrides" >"$folder/overrides.yaml" || exit 4
export DDPXX_RUN_FOLDER=$folder
if [[ -n $SLURM_CPUS_PER_TASK ]]; then export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK; fi
)";

/// Writes how the job has ended into its folder.
inline constexpr const char* kSlurmStatus = R"(code=$?
printf 'exit_code: %d\nseconds: %d\n' "$code" "$SECONDS" >"$folder/.status.$SLURM_JOB_ID" &&
  mv "$folder/.status.$SLURM_JOB_ID" "$folder/status"
)";

/// The command of a job, as a step: Slurm sends signals to the tasks of a step, not to the script.
inline std::string slurm_step(const SweepCommand& command) {
  if (command.num_nodes == 1) return "srun --ntasks=1 " + shell_line(command.words);
  auto rest = command.words;
  rest.erase(rest.begin());
  return "head=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
         "port=$((20000 + SLURM_JOB_ID % 10000))\n"
         "srun --ntasks-per-node=1 bash -c 'exec \"$0\" --node-rank=\"$SLURM_NODEID\" \"$@\"' " +
         shell_word(command.words.front()) + " \\\n  --master-addr=\"$head\" --master-port=\"$port\" " +
         shell_line(rest);
}

inline std::string slurm_array_script(const Sweep& sweep, const std::string& head, const std::string& step,
                                      const std::string& end) {
  const auto& options = sweep.options;
  const auto folder = std::filesystem::absolute(options.folder.empty() ? new_sweep_name() : options.folder);
  std::ostringstream text;
  text << head << "#SBATCH --array=0-" << sweep.jobs.size() - 1;
  if (options.jobs_at_once) text << '%' << *options.jobs_at_once;
  text << "\n#SBATCH --open-mode=append\n\n"
       << "job=$SLURM_ARRAY_TASK_ID\n"
       << "folder=" << shell_word(folder.lexically_normal().string()) << "/$job\n"
       << "shown=()\ncase $job in\n";
  for (const auto& job : sweep.jobs) {
    text << "  " << job.number << ") arguments=(" << shell_line(job.arguments) << ')';
    if (!job.shown.empty()) text << " shown=(" << shell_line(job.shown) << ')';
    text << " ;;\n";
  }
  text << "  *) echo \"there is no job $job\" >&2; exit 2 ;;\nesac\n\n"
       << kSlurmFrame << '\n'
       << step << " \"${arguments[@]}\" >>\"$folder/log\" 2>&1 </dev/null\n"
       << kSlurmStatus << end;
  return text.str();
}

inline std::string slurm_array_script(const Sweep& sweep, const SweepCommand& command) {
  std::ostringstream head;
  head << "#!/bin/bash\n"
       << "# A sweep of " << sweep.jobs.size()
       << " jobs. Resources go in front: sbatch --gpus-per-node=" << command.ranks_per_node
       << " --time=4:00:00 SCRIPT\n"
       << "#SBATCH --job-name=sweep\n#SBATCH --nodes=" << command.num_nodes
       << "\n#SBATCH --ntasks-per-node=1\n#SBATCH --cpus-per-task=" << command.ranks_per_node << '\n';
  return slurm_array_script(sweep, head.str(), slurm_step(command), "exit \"$code\"\n");
}

}  // namespace ddpxx::detail
