// ddpxx/launch/plan/flag_table.hpp — the flags of ddpxx-run: their names, what they mean, and what each of them sets.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <ddpxx/launch/plan/flag_values.hpp>
#include <ddpxx/launch/plan/launch_flag.hpp>
#include <ddpxx/launch/plan/local_interface.hpp>
#include <ddpxx/launch/plan/output_flags.hpp>
#include <ddpxx/launch/plan/run_id.hpp>

namespace ddpxx::detail {

inline constexpr auto kNoEffect = [](LaunchValues&, const LaunchFlag&, const std::string&) {};

inline constexpr std::array kLaunchFlags = {
    LaunchFlag{"--standalone", "", "", "one machine, a free port; overrides where machines meet",
               [](LaunchValues& values, const LaunchFlag&, const std::string&) { values.is_standalone = true; }},
    LaunchFlag{"--nproc-per-node", "", "N", "ranks on this machine; cpu, gpu: one for each; auto: gpu, else cpu [1]",
               [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
                 values.plan.ranks_per_node = read_ranks_per_node(flag, text);
               }},
    LaunchFlag{"--nnodes", "", "M",
               "number of machines; each runs ddpxx-run; MIN:MAX with c10d: they may come and go [1]", read_num_nodes},
    LaunchFlag{"--rdzv-backend", "", "NAME",
               "static: --node-rank numbers the machines; c10d: they are numbered as they come [static]",
               [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
                 if (text != "static" && text != "c10d") refuse(flag, text, "static or c10d");
                 values.is_c10d = text == "c10d";
               }},
    LaunchFlag{"--rdzv-endpoint", "", "HOST[:PORT]", "where the machines meet; PORT with c10d [29400]", read_endpoint},
    LaunchFlag{"--rdzv-id", "", "ID", "name of the run; processes of another run are refused [one machine: a new name]",
               [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
                 if (!is_run_id(text)) refuse(flag, text, "a name of 1 to 200 letters, figures, '-', '_' and '.'");
                 values.plan.run_id = text;
               }},
    LaunchFlag{
        "--rdzv-conf", "", "KEY=VALUE,...",
        "join_timeout=SECONDS: how long the machines wait for each other [300]; last_call_timeout: for more "
        "than MIN [30]; keep_alive_interval [5] and keep_alive_max_attempt [3]: a machine is lost after that many "
        "intervals without an answer; is_host=true: this machine serves the meeting of c10d",
        [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
          read_rendezvous_settings(values, flag, text);
        }},
    LaunchFlag{"--node-rank", "", "R", "static: number of this machine; its ranks are R*N to R*N+N-1 [0]",
               [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
                 values.plan.node_rank = whole_number(flag, text, 0, kMaxNodes - 1);
               }},
    LaunchFlag{"--master-addr", "", "HOST", "static: where rank 0 runs, a name or IP address [127.0.0.1]",
               [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
                 if (text.empty() || text.starts_with('[') != text.ends_with(']') || text == "[]")
                   refuse(flag, text, "a host, whose IPv6 address may stand in brackets");
                 values.plan.master_address = text;
                 values.has_master_address = true;
               }},
    LaunchFlag{
        "--master-port", "", "PORT",
        "static: where the agent of node 0 listens [29500; one machine: a free port]; on one machine only MASTER_PORT",
        [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
          values.plan.master_port = static_cast<std::uint16_t>(whole_number(flag, text, 1, 65'535));
        }},
    LaunchFlag{"--max-restarts", "", "K", "how often all ranks, of all machines, are restarted after a failure [0]",
               [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
                 values.plan.max_restarts = whole_number(flag, text, 0, 1'000'000);
               }},
    LaunchFlag{"--grace", "", "SECONDS", "time that a rank has to end by itself before it is killed [30]",
               [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
                 values.plan.grace = seconds(flag, text);
               }},
    LaunchFlag{
        "--log-dir", "", "DIR",
        "folder of log files: DIR/<run id>_<random>/attempt_<k>/<local rank>/; /dev/null: none [a temporary one]",
        [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
          if (text.empty()) refuse(flag, text, "a directory");
          values.plan.outputs.log_dir = text;
        }},
    LaunchFlag{
        "--redirects", "-r", "CHOICE",
        "outputs that go to stdout.log and stderr.log instead of here: 0 none, 1 stdout, 2 stderr, 3 both, or by "
        "local rank as in 0:3,1:2 [0]",
        [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
          values.plan.outputs.redirects = read_streams(flag, text);
        }},
    LaunchFlag{"--tee", "-t", "CHOICE", "outputs that go to the files and here; the form of --redirects [0]",
               [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
                 values.plan.outputs.tee = read_streams(flag, text);
               }},
    LaunchFlag{"--local-ranks-filter", "", "RANKS", "local ranks whose outputs are shown here, as in 0,1 [all]",
               [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
                 values.plan.outputs.shown_ranks = read_local_ranks(flag, text);
               }},
    LaunchFlag{"--duplicate-stdout-filters", "", "TEXTS",
               "lines of --tee that have one of these texts, as in a,b, also go to filtered_stdout.log; ,, is a comma",
               [](LaunchValues& values, const LaunchFlag&, const std::string& text) {
                 values.plan.outputs.stdout_filters = items_of(text);
               }},
    LaunchFlag{"--duplicate-stderr-filters", "", "TEXTS",
               "lines of --tee on standard error that have one of these texts also go to filtered_stderr.log",
               [](LaunchValues& values, const LaunchFlag&, const std::string& text) {
                 values.plan.outputs.stderr_filters = items_of(text);
               }},
    LaunchFlag{"--role", "", "NAME", "ROLE_NAME of the ranks [default]",
               [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
                 if (!is_run_id(text)) refuse(flag, text, "a name of 1 to 200 letters, figures, '-', '_' and '.'");
                 values.plan.role = text;
               }},
    LaunchFlag{"--module", "-m", "", "PROGRAM is a module of Python, and runs as `python3 -u -m PROGRAM`",
               [](LaunchValues& values, const LaunchFlag&, const std::string&) { values.is_module = true; }},
    LaunchFlag{"--no-python", "", "", "run a PROGRAM with the name *.py as it is, and not as `python3 -u PROGRAM`",
               [](LaunchValues& values, const LaunchFlag&, const std::string&) { values.no_python = true; }},
    LaunchFlag{"--run-path", "", "", "run the script PROGRAM by Python's runpy; goes before --no-python",
               [](LaunchValues& values, const LaunchFlag&, const std::string&) { values.is_run_path = true; }},
    LaunchFlag{"--numa-binding", "", "MODE",
               "cores of a rank, near its GPU: node, socket, exclusive (a share of its own) or core-complex (a shared "
               "cache) [all]",
               [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
                 values.plan.binding = read_binding(flag, text);
               }},
    LaunchFlag{
        "--virtual-local-rank", "", "", "LOCAL_RANK is 0 in all ranks, and each of them sees only its GPU",
        [](LaunchValues& values, const LaunchFlag&, const std::string&) { values.plan.virtual_local_rank = true; }},
    LaunchFlag{"--signals-to-handle", "", "NAMES",
               "with SIGUSR1 or SIGUSR2 in the list, that signal gives the ranks --grace to end; the others always do",
               read_signals},
    LaunchFlag{"--local-addr", "", "HOST", "address of this machine whose interface the ranks use [found by them]",
               [](LaunchValues& values, const LaunchFlag& flag, const std::string& text) {
                 if (text.empty() || !local_interface(text)) refuse(flag, text, "an address of this machine");
                 values.plan.local_address = text;
               }},
    LaunchFlag{"--monitor-interval", "", "SECONDS", "no effect: the agent sees the end of a rank at once",
               [](LaunchValues&, const LaunchFlag& flag, const std::string& text) { seconds(flag, text); }},
    LaunchFlag{"--start-method", "", "NAME", "no effect: each rank is a new process that runs PROGRAM",
               [](LaunchValues&, const LaunchFlag& flag, const std::string& text) {
                 if (text != "spawn" && text != "fork" && text != "forkserver")
                   refuse(flag, text, "spawn, fork or forkserver");
               }},
    LaunchFlag{"--help", "-h", "", "this text", kNoEffect},
};

}  // namespace ddpxx::detail
