"""A Slurm for the tests: one controller and a daemon on each host of hosts.py; see README.md.

    with Slurm(nodes=2) as slurm:
        print(slurm.run(["srun", "--nodes=2", "hostname"]))
"""

import contextlib
import os
import pathlib
import secrets
import subprocess
import tempfile
import time

from hosts import Hosts

PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "munged")  # what reason_to_skip has to look for
PATIENCE = 120  # seconds; on an idle machine the nodes are up after one
CPUS = 4  # of a node; Slurm counts them and starts as many ranks, whatever the machine has
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={controller}({address})
AuthType=auth/munge
CredType=cred/munge
# A job that is requeued starts again after cred_expire seconds, which are 120 otherwise.
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/jobs
# Nothing that needs control groups.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
# Nodes may have more CPUs and memory than the machine.
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
ReturnToService=2
# Seconds from SIGTERM to SIGKILL.
KillWait=30
JobRequeue=1
{nodes}
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """Slurm on hosts `login`, `node1`, `node2` and so on, until the end of a `with` block."""

    def __init__(self, nodes):
        self.nodes = [f"node{number}" for number in range(1, nodes + 1)]
        self.hosts = Hosts(["login", *self.nodes])
        self.folder = None
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        try:
            self._stack.enter_context(self.hosts)
            self.folder = pathlib.Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm")))
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_):
        self._stack.close()

    @property
    def environment(self):
        """The variables of a command that speaks to this cluster: those of this process, without another launcher's."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
        return ours | {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(self, command, timeout=PATIENCE, **options):
        """What a command on host `login` prints; see `Hosts.run`."""
        return self.hosts.run("login", command, timeout=timeout, env=self.environment, **options)

    def submit(self, script, *options):
        """The number of the job that `sbatch` makes of a script."""
        return self.run(["sbatch", "--parsable", *options, script]).strip().split(";")[0]

    def wait_for(self, job, states, patience=PATIENCE):
        """Waits until a job is in one of `states`, such as RUNNING or COMPLETED, and returns that state."""
        end = time.monotonic() + patience
        while True:
            record = self.run(["scontrol", "show", "job", job, "--oneliner"])
            state = record.split("JobState=")[1].split()[0]
            if state in states:
                return state
            if time.monotonic() > end:
                raise RuntimeError(f"job {job} is {state}, not {' or '.join(states)}: {record}\n{self.logs()}")
            time.sleep(0.1)

    def logs(self):
        """The last lines of each daemon's log."""
        return "\n".join(f"{log.name}:\n" + "".join(log.open(errors="replace").readlines()[-15:])
                         for log in self.folder.glob("*.log"))

    def _start(self):
        for part in ("state", *self.nodes):
            (self.folder / part).mkdir()
        self.folder.chmod(0o755)  # munged demands that other users can reach its socket
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(1024))
        address = {name: addresses[0] for name, addresses in self.hosts.addresses.items()}
        nodes = "\n".join(f"NodeName={name} NodeAddr={address[name]} CPUs={CPUS} RealMemory=100000 State=UNKNOWN"
                          for name in self.nodes)
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(
            controller="login", address=address["login"], folder=self.folder, nodes=nodes))
        self._daemon("login", "munged", ["munged", "--foreground", f"--key-file={key}",
                                         f"--socket={self.folder}/munge.socket", f"--pid-file={self.folder}/munge.pid",
                                         f"--seed-file={self.folder}/munge.seed", f"--log-file={self.folder}/munge.log"])
        self._wait("munged answers", lambda: (self.folder / "munge.socket").exists())
        self._daemon("login", "slurmctld", ["slurmctld", "-D"])
        for name in self.nodes:
            self._daemon(name, f"slurmd-{name}", ["slurmd", "-D", "-N", name])
        self._wait("the nodes are up", self._nodes_are_up)

    def _daemon(self, host, name, command):
        with (self.folder / f"{name}.log").open("ab") as log:
            process = self.hosts.start(host, command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=log)
        self._stack.callback(self._end, process)

    @staticmethod
    def _end(process):
        process.kill()
        process.wait()

    def _nodes_are_up(self):
        with contextlib.suppress(RuntimeError):
            return self.run(["sinfo", "--noheader", "--Node", "--format=%T"]).split() == ["idle"] * len(self.nodes)
        return False

    def _wait(self, what, met):
        end = time.monotonic() + PATIENCE
        while not met():
            if time.monotonic() > end:
                raise RuntimeError(f"not within {PATIENCE} s: {what}\n{self.logs()}")
            time.sleep(0.05)
