// ddpxx/launch/adopt_launcher.hpp — lets programs that mpirun, srun or Kubernetes have started find torchrun's
// variables.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include <ddpxx/comm/socket_address.hpp>
#include <ddpxx/core/crc32c.hpp>
#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>

namespace ddpxx::detail {

/// The variables that torchrun would set for this rank, and the launcher from whose variables they follow. No variables
/// mean that there is nothing to set.
struct AdoptedLaunch {
  std::string launcher = {};
  std::map<std::string, std::string> variables = {};
  bool is_alone = false;  ///< The launcher has started this rank only.
};

/// The names of the variables that say where the ranks meet.
inline constexpr std::array kMeetingVariables = {"MASTER_ADDR", "MASTER_PORT"};

/// The number of tasks on node `node` by SLURM_STEP_TASKS_PER_NODE, which is written as `2(x3),1`.
inline std::optional<std::int64_t> tasks_on_node(std::string_view text, std::int64_t node) {
  while (!text.empty()) {
    const auto part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    std::int64_t tasks = 0, nodes = 1;
    const char *const begin = part.data(), *const end = begin + part.size();
    const auto [after, status] = std::from_chars(begin, end, tasks);
    if (status != std::errc{}) return std::nullopt;
    if (after != end) {
      if (end - after < 4 || std::string_view{after, 2} != "(x" || end[-1] != ')') return std::nullopt;
      if (const auto times = std::from_chars(after + 2, end - 1, nodes); times.ptr != end - 1) return std::nullopt;
    }
    if (node < nodes) return tasks;
    node -= nodes;
  }
  return std::nullopt;
}

/// The first host of a list of Slurm, such as `node[01-04,7],login`.
inline std::string first_host(std::string_view list) {
  const auto bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string_view::npos || comma < bracket) return std::string{list.substr(0, comma)};
  const auto numbers = list.substr(bracket + 1);
  const auto close = numbers.find(']');
  if (close == std::string_view::npos) return std::string{list};
  const auto rest = numbers.substr(close + 1);
  return std::string{list.substr(0, bracket)} + std::string{numbers.substr(0, numbers.find_first_of("-,]"))} +
         std::string{rest.substr(0, rest.find(','))};
}

/// A port for the ranks of a job, equal on all of them and seldom that of another job.
inline std::string port_of_job(const std::string& job) {
  constexpr std::uint32_t kFirst = 20000, kPorts = 10000;  // below the ports that systems give to connections
  return std::to_string(kFirst + crc32c(std::as_bytes(std::span{job})) % kPorts);
}

/// The value of a variable that the launcher always sets.
inline std::string variable_of(const char* launcher, const char* name) {
  if (const auto value = environment(name)) return *value;
  throw Error{Errc::peer, "this rank was started by " + std::string{launcher} + ", but " + name +
                              " is not set; set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT to start ranks by hand"};
}

/// The first address of mpirun's host, which Open MPI 4 tells its ranks as `NUMBER;tcp://ADDRESS,...:PORT;...`. Rank 0
/// gets it only where it runs on that host, because the ranks meet at rank 0's.
inline std::optional<std::string> address_of_mpirun(const std::string& rank) {
  const auto uri = environment("OMPI_MCA_orte_hnp_uri");
  if (!uri || (rank == "0" && uri != environment("OMPI_MCA_orte_local_daemon_uri"))) return std::nullopt;
  constexpr std::string_view kScheme = ";tcp://";
  const auto scheme = uri->find(kScheme);
  if (scheme == std::string::npos) return std::nullopt;
  const auto address = uri->substr(scheme + kScheme.size());
  return address.substr(0, address.find_first_of(",:;"));
}

/// Source  Open MPI's manual page of mpirun, "Environment variables".
inline AdoptedLaunch launch_by_mpirun() {
  const auto of = [](const char* name) { return variable_of("mpirun", name); };
  const auto size = of("OMPI_COMM_WORLD_SIZE"), local_size = of("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (size == "1") return {.launcher = "mpirun", .is_alone = true};
  const auto job = environment("PMIX_NAMESPACE").value_or("mpirun");
  const auto rank = of("OMPI_COMM_WORLD_RANK");
  auto address = environment("MASTER_ADDR");
  if (!address && size != local_size) {
    address = address_of_mpirun(rank);
    if (!address)
      throw Error{Errc::peer,
                  "mpirun has started ranks on several hosts, but MASTER_ADDR is not set, and rank 0 does not run on "
                  "mpirun's host or Open MPI does not tell its address: pass the host of rank 0 by mpirun -x "
                  "MASTER_ADDR=HOST"};
  }
  return {"mpirun",
          {{"RANK", rank},
           {"WORLD_SIZE", size},
           {"LOCAL_RANK", of("OMPI_COMM_WORLD_LOCAL_RANK")},
           {"LOCAL_WORLD_SIZE", local_size},
           {"MASTER_ADDR", address.value_or("127.0.0.1")},
           {"MASTER_PORT", environment("MASTER_PORT").value_or(port_of_job(job))},
           {"TORCHELASTIC_RUN_ID", environment("TORCHELASTIC_RUN_ID").value_or(job)}}};
}

/// Source  Slurm's manual page of srun, "OUTPUT ENVIRONMENT VARIABLES".
inline AdoptedLaunch launch_by_srun() {
  const auto of = [](const char* name) { return variable_of("srun", name); };
  const auto size = environment("SLURM_STEP_NUM_TASKS").value_or(environment("SLURM_NTASKS").value_or("1"));
  if (size == "1") return {.launcher = "srun", .is_alone = true};
  const auto job = of("SLURM_JOB_ID") + "." + of("SLURM_STEP_ID");
  const auto tasks = of("SLURM_STEP_TASKS_PER_NODE");
  const auto local_size = tasks_on_node(tasks, environment_integer("SLURM_NODEID").value_or(0));
  if (!local_size)
    throw Error{Errc::peer, "environment variable SLURM_STEP_TASKS_PER_NODE=" + harmless(tasks) +
                                " does not tell how many ranks run on node SLURM_NODEID=" +
                                environment("SLURM_NODEID").value_or("")};
  return {"srun",
          {{"RANK", of("SLURM_PROCID")},
           {"WORLD_SIZE", size},
           {"LOCAL_RANK", of("SLURM_LOCALID")},
           {"LOCAL_WORLD_SIZE", std::to_string(*local_size)},
           {"MASTER_ADDR", environment("MASTER_ADDR").value_or(first_host(of("SLURM_STEP_NODELIST")))},
           {"MASTER_PORT", environment("MASTER_PORT").value_or(port_of_job(job))},
           {"TORCHELASTIC_RUN_ID", environment("TORCHELASTIC_RUN_ID").value_or(job)}}};
}

/// Whether the host of MASTER_ADDR is this machine's loopback interface, to which no other machine can connect.
inline bool is_loopback_host(const std::string& host) {
  return host == "localhost" || host.starts_with("localhost.") || host == "[::1]" || is_loopback(host);
}

/// What Kubeflow or an indexed Job of Kubernetes tells a process that is the only rank of its pod. PyTorchJob sets RANK
/// and WORLD_SIZE, but not LOCAL_RANK; TrainJob sets PET_NNODES, PET_NODE_RANK and where the pods meet; a Job sets the
/// number of the pod, JOB_COMPLETION_INDEX. Ranks that were started by hand in one pod, to meet at its loopback
/// address, are not the only ones of their pods.
/// Source  kubeflow/training-operator, pkg/controller.v1/pytorch; kubeflow/trainer, pkg/runtime/framework/plugins/torch;
///         Kubernetes' documentation of Jobs, "Completion mode".
inline AdoptedLaunch launch_by_kubernetes() {
  AdoptedLaunch launch{"Kubernetes", {{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}}};
  const auto index = environment("JOB_COMPLETION_INDEX");
  if (environment("WORLD_SIZE")) {
    const auto rank = environment("RANK");
    if (!rank && !index) return {};
    // Kubeflow gives the pod of rank 0 MASTER_ADDR=localhost too, and PET_MASTER_ADDR beside it.
    const bool is_master_pod = rank == "0" && environment("PET_MASTER_ADDR") == environment("MASTER_ADDR") &&
                               environment("PET_NNODES").value_or("") != "1";
    if (rank && !is_master_pod && is_loopback_host(environment("MASTER_ADDR").value_or(""))) return {};
    launch.variables["RANK"] = rank.value_or(index.value_or(""));
    launch.variables["WORLD_SIZE"] = *environment("WORLD_SIZE");
    return launch;
  }
  const auto nodes = environment("PET_NNODES");
  const auto rank = environment("PET_NODE_RANK");
  if (!nodes || *nodes == "1" || (!rank && !index)) return {};
  if (const auto ranks = environment("PET_NPROC_PER_NODE").value_or("1"); ranks != "1") {
    Log{0}.warn("PET_NNODES=" + *nodes + " and PET_NPROC_PER_NODE=" + ranks +
                " are for a launcher: this program runs alone; start it by ddpxx-run or torchrun");
    return {};
  }
  launch.variables["RANK"] = rank.value_or(index.value_or(""));
  launch.variables["WORLD_SIZE"] = *nodes;
  for (const char* name : kMeetingVariables)
    if (const auto value = environment(name) ? environment(name) : environment(("PET_" + std::string{name}).c_str()))
      launch.variables[name] = *value;
  return launch;
}

/// True if torchrun or ddpxx-run has set this process's variables.
inline bool is_rank_of_agent() { return environment("TORCHELASTIC_RUN_ID") || environment("DDPXX_STORE"); }

/// Errors  `peer` if RANK or WORLD_SIZE was set by hand and mpirun or srun, which has started this process as one of
///         several ranks, says something else. Variables of torchrun's own agents may differ from those of srun, which
///         has then started the agents.
inline void check_launchers_agree() {
  if (is_rank_of_agent()) return;
  const bool by_mpirun = environment("OMPI_COMM_WORLD_SIZE").has_value();
  if (!by_mpirun && !(environment("SLURM_STEP_ID") && environment("SLURM_PROCID"))) return;
  const char* const size = by_mpirun ? "OMPI_COMM_WORLD_SIZE" : "SLURM_STEP_NUM_TASKS";
  if (environment(size).value_or("1") == "1") return;
  const auto compare = [&](const char* name, const char* of_launcher) {
    const auto value = environment(name), other = environment(of_launcher);
    if (!value || !other || *value == *other) return;
    throw Error{Errc::peer, std::string{"the environment variables "} + name + '=' + harmless(*value) + " and " +
                                of_launcher + '=' + harmless(*other) + ", set by " + (by_mpirun ? "mpirun" : "srun") +
                                ", contradict each other: unset " + name + " to use those of " +
                                (by_mpirun ? "mpirun" : "srun")};
  };
  compare("RANK", by_mpirun ? "OMPI_COMM_WORLD_RANK" : "SLURM_PROCID");
  compare("WORLD_SIZE", size);
}

/// What torchrun would have set for this process, if mpirun, srun or Kubernetes has started it as one of several ranks.
/// Variables of torchrun's own come first, because torchrun itself may run under srun; mpirun's come before srun's,
/// because mpirun uses srun to reach other hosts. A batch script has variables of Slurm too, but no SLURM_STEP_ID: what
/// it starts directly is alone.
/// Errors  `peer` if the launcher's variables are incomplete, or those of two launchers contradict each other.
inline AdoptedLaunch launch_to_adopt() {
  check_launchers_agree();
  const bool is_in_pod = environment("KUBERNETES_SERVICE_HOST") && !is_rank_of_agent() && !environment("LOCAL_RANK");
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK"})
    if (environment(name)) return is_in_pod ? launch_by_kubernetes() : AdoptedLaunch{};
  if (environment("OMPI_COMM_WORLD_SIZE")) return launch_by_mpirun();
  if (environment("SLURM_STEP_ID") && environment("SLURM_PROCID")) return launch_by_srun();
  return is_in_pod ? launch_by_kubernetes() : AdoptedLaunch{};
}

/// Sets torchrun's variables for a process that another launcher has started as one of several ranks; rank 0 logs where
/// its numbers come from and where the ranks meet, unless ddpxx-run has started it. An only rank of mpirun or srun runs
/// alone, and meets no other rank: MASTER_ADDR and MASTER_PORT, which job scripts export for any number of ranks, are
/// unset. Called while the process has no other threads.
///
/// Errors  those of `launch_to_adopt`.
inline void adopt_launcher() {
  const auto launch = launch_to_adopt();
  if (launch.is_alone)
    for (const char* name : kMeetingVariables) ::unsetenv(name);
  for (const auto& [name, value] : launch.variables) ::setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
  const auto size = environment("WORLD_SIZE").value_or("1"), address = environment("MASTER_ADDR").value_or("");
  if (environment("RANK") != "0" || size == "1" || address.empty() || environment("DDPXX_STORE")) return;
  const std::string origin = !launch.launcher.empty() && !launch.variables.empty() ? "started by " + launch.launcher
                             : environment("TORCHELASTIC_RUN_ID")                  ? "started by torchrun"
                                                                  : "by the variables RANK and WORLD_SIZE";
  Log{0}.info(origin + ": " + size + " ranks, which meet at " + address + " port " +
              environment("MASTER_PORT").value_or("(not set)"));
}

}  // namespace ddpxx::detail
