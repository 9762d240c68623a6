"""Hosts for the tests: network namespaces of this machine on one Ethernet switch; see README.md.

    with Hosts(["node1", "node2"]) as hosts:
        print(hosts.run("node1", ["ping", "-c1", "node2"]))
        hosts.cut("node2")

A host has its own name, addresses, process numbers, /dev/shm, /proc and /etc/hosts, where the names of all hosts stand.
It shares files with the machine. The machine's own network is not touched, and no host reaches it.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

SKIPPED = 77  # the exit code by which CTest knows a skipped test (SKIP_RETURN_CODE)
# The first process of a host. SIGCHLD is ignored, so that the kernel removes ended processes whose parent has ended.
INIT = """
trap '' CHLD
hostname "$1"
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
printf %s "$2" > /dev/shm/hosts
mount --bind /dev/shm/hosts /etc/hosts
ip link set lo up
echo up
exec sleep infinity
"""


def reason_to_skip(*programs):
    """Why hosts cannot be made here; empty if they can. `programs` are further programs that the test needs."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [name for name in ("ip", "bridge", "nsenter", "unshare", "setpriv", *programs) if not shutil.which(name)]
    if missing:
        return "not installed: " + ", ".join(missing)
    trial = ("ip link add br0 type bridge && ip link add port0 type veth peer name port1 && "
             "ip addr add fdd5::1/64 dev br0")
    made = subprocess.run(["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc",
                           "sh", "-c", trial], capture_output=True, text=True, check=False)
    return "" if made.returncode == 0 else "this machine allows no network namespaces with IPv6: " + made.stderr.strip()


def skip_unless_possible(*programs):
    """Ends this program as a skipped test where hosts cannot be made."""
    if reason := reason_to_skip(*programs):
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)


class Hosts:
    """Hosts that exist until the end of a `with` block, or of this process, however it ends."""

    def __init__(self, names, ipv4=True, ipv6=True):
        self.names = list(names)
        self.addresses = {name: ([f"10.213.0.{number}"] if ipv4 else []) + ([f"fdd5::{number:x}"] if ipv6 else [])
                          for number, name in enumerate(self.names, 1)}
        self._inits = {}  # the first process of each host, by its number on this machine
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_):
        self._stack.close()

    def _make(self):
        table = "127.0.0.1 localhost\n::1 localhost\n" + "".join(
            f"{address} {name} {name}-{'v6' if ':' in address else 'v4'}\n"
            for name, addresses in self.addresses.items() for address in addresses)
        for name in ("switch", *self.names):
            self._start(name, table)
        self._ip("switch", "link", "add", "br0", "type", "bridge", "stp_state", "0", "forward_delay", "0",
                 "mcast_snooping", "0")
        self._ip("switch", "link", "set", "br0", "up")
        for name in self.names:
            self._ip("switch", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns",
                     str(self._inits[name]))
            self._ip("switch", "link", "set", f"to-{name}", "master", "br0", "up")
            self._ip(name, "link", "set", "eth0", "up")
            for address in self.addresses[name]:
                # Without the search for duplicates an IPv6 address can be used at once.
                options = ["/64", "nodad"] if ":" in address else ["/24"]
                self._ip(name, "addr", "add", address + options[0], "dev", "eth0", *options[1:])

    def _start(self, name, table):
        # The kernel kills `unshare` when this process ends, `unshare` its child, and that child's end ends all
        # processes of its namespace.
        holder = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork",
             "--kill-child", "--mount-proc", "sh", "-euc", INIT, "sh", name, table],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self._stack.callback(self._end, holder)
        if holder.stdout.readline() != "up\n":
            raise RuntimeError(f"the host {name} did not start")
        self._inits[name] = child_of(holder)

    @staticmethod
    def _end(holder):
        holder.kill()
        holder.wait()
        holder.stdout.close()

    def _ip(self, name, *arguments, program="ip"):
        subprocess.run(["nsenter", "--target", str(self._inits[name]), "--net", program, *arguments], check=True)

    def _enter(self, name):
        return ["nsenter", "--target", str(self._inits[name]), "--net", "--uts", "--ipc", "--mount", "--pid",
                f"--wd={os.getcwd()}", "setpriv", "--pdeathsig", "KILL"]

    def start(self, name, command, **options):
        """A running command on a host; `options` are those of subprocess.Popen. Signals go to it by `send_signal`."""
        return subprocess.Popen([*self._enter(name), *map(str, command)], **options)

    def run(self, name, command, timeout=120, **options):
        """What a command on a host prints.
        Errors  RuntimeError with that text if its exit code is not 0."""
        done = subprocess.run([*self._enter(name), *map(str, command)], timeout=timeout, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
        if done.returncode != 0:
            raise RuntimeError(f"{name}: {command} ended with {done.returncode}: {done.stdout}")
        return done.stdout

    def cut(self, name):
        """Lets the switch drop all frames of a host, without a sign to any host."""
        self._ip("switch", "link", "set", "dev", f"to-{name}", "state", "disabled", program="bridge")

    def worsen(self, name, delay, lost):
        """Delays each frame from and to a host by `delay` seconds from now on, and loses this share of them."""
        host, near, far = f"to-{name}", f"near-{name}", f"far-{name}"
        self._ip("switch", "link", "add", near, "type", "veth", "peer", "name", far)
        self._ip("switch", "link", "set", host, "nomaster")
        self._ip("switch", "link", "set", near, "master", "br0", "up")
        self._ip("switch", "link", "set", far, "up")
        link = self.start("switch", [sys.executable, pathlib.Path(__file__).with_name("bad_link.py"), host, far, delay, lost],
                          stdout=subprocess.PIPE, text=True)
        self._stack.callback(self._end, link)
        if link.stdout.readline() != "passes frames on\n":
            raise RuntimeError(f"no bad link to {name}")

    def heal(self, name):
        """Ends a `cut`."""
        self._ip("switch", "link", "set", "dev", f"to-{name}", "state", "forwarding", program="bridge")


def child_of(process, patience=30):
    """The number of the one child of a running process: what `nsenter` and `unshare` have started."""
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    end = time.monotonic() + patience
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if found := children.read_text().split():
                return int(found[0])
        time.sleep(0.01)
    raise RuntimeError(f"process {process.pid} has no child")


def send_signal(process, number=signal.SIGTERM):
    """Sends a signal to a command that `Hosts.start` has started: `process` is the `nsenter` that waits for it."""
    os.kill(child_of(process), number)
