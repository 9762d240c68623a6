#!/usr/bin/env python3
"""Runs the same command lines by PyTorch's torchrun and by ddpxx-run, and compares what the ranks see and how it ends.

    torchrun_parity.py FOLDER_OF_PROGRAMS [STRIDE]

With STRIDE 4, only every fourth command line is run, since torchrun takes three seconds for each.
Every rank writes its variables and arguments to a file, and a line to each output. Log files are compared by their
names and their contents, of error.json only the message. Exit codes differ where docs/launch.md says so: torchrun ends
with 1 after any failure of a rank, ddpxx-run with the code of the rank that failed first.
"""
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from unused_port import unused_port  # noqa: E402

WORKER = '''import json, os, signal, sys, time
names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME",
         "ROLE_RANK", "ROLE_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
         "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCHELASTIC_SIGNALS_TO_HANDLE", "OMP_NUM_THREADS"]
names += os.environ.get("MORE_NAMES", "").split()
facts = {name: os.environ.get(name) for name in names}
facts["arguments"] = sys.argv[1:]
if "GIVEN_PORT" in os.environ:
    facts["has the given port"] = os.environ["MASTER_PORT"] == os.environ["GIVEN_PORT"]
assert 0 < int(os.environ["MASTER_PORT"]) < 65536 and os.environ["MASTER_ADDR"] and os.environ["TORCHELASTIC_RUN_ID"]
name = facts["RANK"] + "-" + facts["TORCHELASTIC_RESTART_COUNT"]
unfinished = os.environ["FACTS"] + "-" + name  # beside the folder, whose files rank 1 counts
with open(unfinished, "w") as file:
    json.dump(facts, file)
os.rename(unfinished, os.path.join(os.environ["FACTS"], name))
print("out of rank", facts["RANK"], flush=True)
print("error of rank", facts["RANK"], file=sys.stderr, flush=True)
if "RAISE" in os.environ:
    raise ValueError(os.environ["RAISE"])
failing = os.environ.get("FAIL_UNTIL_ATTEMPT")
if failing and facts["RANK"] == "1":
    while len(os.listdir(os.environ["FACTS"])) < (int(facts["TORCHELASTIC_RESTART_COUNT"]) + 1) * int(facts["WORLD_SIZE"]):
        time.sleep(0.01)  # the other ranks would be ended before they have written
    if int(facts["TORCHELASTIC_RESTART_COUNT"]) < int(failing):
        if os.environ["FAIL_BY"] == "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        sys.exit(int(os.environ["FAIL_BY"]))
elif failing and int(facts["TORCHELASTIC_RESTART_COUNT"]) < int(failing):
    time.sleep(600)  # until the launcher ends it
'''


@dataclasses.dataclass
class Case:
    """Command lines, one for each machine; {script}, {port}, {logs} and {programs} are filled in."""
    lines: list
    environment: dict = dataclasses.field(default_factory=dict)
    codes: tuple = (0, 0)  # of torchrun and of ddpxx-run
    ranks: int = 1  # files that are expected, over all attempts
    logs: int = 0  # log files that are expected


CASES = [
    Case(["{script} a -b --c=d --nnodes=7"]),
    Case(["--standalone --nproc-per-node 3 {script}"], ranks=3),
    Case(["--rdzv-id=job7 --nproc-per-node=2 --log-dir={logs} --redirects=3 {script}"], ranks=2, logs=4),
    Case(["--standalone --nproc-per-node=2 --log-dir={logs} -r 0:1,1:2 -t 1:1 {script}"], ranks=2, logs=3),
    Case(["--standalone --nproc-per-node=3 --log-dir={logs} --tee 3 --local-ranks-filter=0,2 "
          "--duplicate-stdout-filters=2,x --duplicate_stderr_filters=rank,,,none {script}"], ranks=3, logs=8),
    Case(["--nproc_per_node=2 {script} --standalone"], ranks=2),
    Case(["--nnodes=1:1 --standalone --nproc-per-node=2 --role=trainer {script}"], ranks=2),
    Case(["--rdzv-backend=c10d --rdzv-endpoint=localhost:0 --rdzv_id=job7 --nproc-per-node=2 {script}"],
         {"MORE_NAMES": "TORCHELASTIC_RUN_ID"}, ranks=2),
    Case(["--standalone --nproc-per-node=2 --virtual-local-rank --signals-to-handle=SIGTERM,SIGUSR1 {script}"],
         {"CUDA_VISIBLE_DEVICES": "4,7", "MORE_NAMES": "CUDA_VISIBLE_DEVICES"}, ranks=2),
    Case(["--master-addr=localhost --master-port={port} --monitor-interval=0.05 --start-method=fork {script}"],
         {"MORE_NAMES": "MASTER_ADDR", "GIVEN_PORT": "{port}"}),
    Case(["--standalone --nproc-per-node=2 -m parity_worker x"], ranks=2),
    Case(["--standalone --nproc-per-node=2 --no-python " + sys.executable + " {script}"], ranks=2),
    Case(["{script}"], {"PET_NPROC_PER_NODE": "2", "PET_MAX_RESTARTS": "1", "PET_STANDALONE": "1"}, ranks=2),
    Case(["--nproc-per-node=2 --max-restarts=3 {script}"], {"PET_NPROC_PER_NODE": "4", "PET_STANDALONE": "0"}, ranks=2),
    Case(["--standalone --nproc-per-node=2 {script}"], {"OMP_NUM_THREADS": "3"}, ranks=2),
    Case(["--standalone --nproc-per-node=2 --max-restarts=2 --log-dir={logs} -t3 {script}"],
         {"FAIL_UNTIL_ATTEMPT": "1", "FAIL_BY": "9", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "$rank> ",
          "PET_DUPLICATE_STDOUT_FILTERS": "out"}, ranks=4, logs=10),
    Case(["--standalone --run-path {script} a --nnodes=3"]),
    Case(["--standalone --run-path --no-python --log-dir={logs} {script}"], {"RAISE": "no luck"}, codes=(1, 1), logs=1),
    Case(["--standalone --nproc-per-node=2 --no-python --log-dir={logs} {programs}/spawning_program fail"],
         codes=(1, 4), ranks=0, logs=1),
    Case(["--rdzv-backend=c10d --rdzv-endpoint=localhost:0 --local-addr=localhost {script}"],
         {"MORE_NAMES": "MASTER_ADDR"}),
    Case(["--nproc-per-node=2 --log-dir=/dev/null {script}"], {"MORE_NAMES": "TORCHELASTIC_ERROR_FILE"}, ranks=2),
    Case(["--redirects=5 {script}"], codes=(1, 2), ranks=0),
    Case(["--standalone --nproc-per-node=2 --max-restarts=1 {script}"], {"FAIL_UNTIL_ATTEMPT": "5", "FAIL_BY": "9"},
         codes=(1, 9), ranks=4),
    Case(["--standalone --nproc-per-node=2 {script}"], {"FAIL_UNTIL_ATTEMPT": "5", "FAIL_BY": "SIGKILL"},
         codes=(1, 128 + 9), ranks=2),
    Case(["--nnodes=2 --nproc-per-node=2 --rdzv-backend=c10d --rdzv-endpoint=localhost:{port} --rdzv-id=job7 {script}"] * 2,
         {"MORE_NAMES": "TORCHELASTIC_RUN_ID"}, ranks=4),
    Case([f"--nnodes=2:2 --node-rank={node} --nproc-per-node=2 --master-addr=127.0.0.1 --master-port={{port}} {{script}}"
          for node in range(2)], {"MORE_NAMES": "MASTER_ADDR"}, ranks=4),
    Case(["--nnodes=1 --node-rank=0 --nproc-per-node=2 --master-addr 127.0.0.1 --master-port {port} {script} 50 10"],
         {"MORE_NAMES": "MASTER_ADDR", "GIVEN_PORT": "{port}"}, ranks=2),
    Case(["--rdzv-backend=static --rdzv-endpoint=localhost:{port} --nproc-per-node=2 {script}"],
         {"MORE_NAMES": "MASTER_ADDR", "GIVEN_PORT": "{port}"}, ranks=2),
    Case(["--nproc-per-node=2 {script}"],
         {"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "localhost:0", "PET_RDZV_ID": "job9",
          "MORE_NAMES": "TORCHELASTIC_RUN_ID"}, ranks=2),
    Case(["parity_worker y"], {"PET_MODULE": "1"}),
    Case([sys.executable + " {script} -m x"], {"PET_NO_PYTHON": "1", "PET_ROLE": "trainer"}),
    Case(["--standalone --nproc-per-node=3 --max-restarts=1 {script}"], {"FAIL_UNTIL_ATTEMPT": "1", "FAIL_BY": "7"},
         ranks=6),
    Case(["--standalone --nproc-per-node=2 --max-restarts=1 {script}"],
         {"FAIL_UNTIL_ATTEMPT": "1", "FAIL_BY": "SIGKILL"}, ranks=4),
    Case(["--standalone --nproc-per-node=2 {script}"], {"FAIL_UNTIL_ATTEMPT": "5", "FAIL_BY": "1"}, codes=(1, 1),
         ranks=2),
    Case(["--nnodes=3 --rdzv-backend=c10d --rdzv-endpoint=localhost:{port} --role=trainer {script}"] * 3, ranks=3),
    Case(["--rdzv-backend=c10d --rdzv-endpoint=localhost:0 --node-rank=5 {script}"]),
    Case(["--standalone --nnodes 1 --rdzv_id=other --nproc_per_node 1 {script} -m x --standalone"]),
    Case(["--no-such-flag {script}"], codes=(2, 2), ranks=0),
    Case(["--standalone"], codes=(2, 2), ranks=0),
    Case(["--nproc-per-node=many {script}"], codes=(1, 2), ranks=0),
]


def log_files(folder):
    """The files below a log folder: their names without the id and the random part of the run's, and their contents."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            run, *name = path.relative_to(folder).parts
            text = path.read_text()
            if name[-1] == "error.json":
                text = json.loads(text)["message"]["message"]
            if name[-1].startswith("filtered"):
                text = sorted(text.splitlines())  # of several ranks
            files["/".join(["job7" if run.startswith("job7_") else "run", *name])] = text
    return files


def run(launcher, case, programs):
    """The facts of all ranks in order, the log files, the exit codes of the launchers, and what they print."""
    with tempfile.TemporaryDirectory(prefix="ddpxx-test-") as folder:
        folder = pathlib.Path(folder)
        script = folder / "parity_worker.py"
        script.write_text(WORKER)
        facts, logs = folder / "facts", folder / "logs"
        facts.mkdir()
        launch_names = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_", "PET_", "DDPXX_",
                        "OMP_NUM_THREADS", "SLURM_", "CUDA_VISIBLE_DEVICES")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(launch_names)}
        port = str(unused_port())
        environment |= {"FACTS": str(facts), "PYTHON_EXEC": sys.executable}
        environment |= {name: value.format(port=port) for name, value in case.environment.items()}
        environment["PYTHONPATH"] = f"{folder}:{environment.get('PYTHONPATH', '')}"
        lines = [line.format(script=script, port=port, logs=logs, programs=programs) for line in case.lines]
        agents = [subprocess.Popen([*launcher, *line.split()], env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for line in lines]
        outputs = [agent.communicate()[0] for agent in agents]
        rows = sorted((json.loads(file.read_text()) for file in facts.iterdir()), key=lambda row: (row["RANK"], str(row)))
        return rows, log_files(logs), [agent.returncode for agent in agents], "\n".join(outputs)


def compare(programs, case):
    """Texts that tell what differs."""
    launchers = [[sys.executable, "-m", "torch.distributed.run"], [str(programs / "ddpxx-run")]]
    problems, all_rows, all_logs = [], [], []
    for launcher, code in zip(launchers, case.codes):
        rows, logs, codes, output = run(launcher, case, programs)
        all_rows.append(rows)
        all_logs.append(logs)
        if codes != [code] * len(case.lines) or len(rows) != case.ranks or len(logs) != case.logs:
            problems.append(f"{launcher[-1]} ended with {codes}, expected {code}; {len(rows)} ranks, expected "
                            f"{case.ranks}; {len(logs)} log files, expected {case.logs}\n{output}")
    if all_logs[0] != all_logs[1]:
        problems.append(f"torchrun's log files: {all_logs[0]}\nddpxx-run's:          {all_logs[1]}")
    problems += [f"torchrun's rank saw {one}\nddpxx-run's       {other}" for one, other in zip(*all_rows) if one != other]
    return problems


def main():
    programs, cases = pathlib.Path(sys.argv[1]), CASES[:: int(sys.argv[2]) if len(sys.argv) > 2 else 1]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for case, problems in zip(cases, pool.map(lambda case: compare(programs, case), cases)):
            if problems:
                failed += 1
                print(f"{case.lines} with {case.environment}:", *problems, sep="\n", flush=True)
    print(f"{len(cases)} command lines, {failed} differ")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
