#!/usr/bin/env python3
"""Runs `ddpxx doctor` and `ddpxx net` on this machine, on a bucket and on two hosts.

    doctor_and_net.py FOLDER_OF_PROGRAMS one_host|two_hosts
"""
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1] / "services"))
from hosts import Hosts, skip_unless_possible  # noqa: E402

BIN = pathlib.Path(sys.argv[1])
CHECKS = ["versions", "connection", "clocks", "network", "limits", "shared memory", "memory", "interfaces", "route",
          "ports", "snapshots", "GPUs"]
PATIENCE = 240  # seconds


def run(*words, **options):
    done = subprocess.run([BIN / "ddpxx", *map(str, words)], capture_output=True, text=True, check=False,
                          timeout=PATIENCE, **options)
    return done.returncode, done.stdout, done.stderr


def findings(text):
    """Verdict and text of each check."""
    found = {}
    for line in text.splitlines():
        match = re.fullmatch(r"(ok|warning|failed|skipped) +([A-Za-z ]+): (.*)", line)
        assert match, f"no line of a check: {line}"
        found[match[2]] = (match[1], match[3])
    return found


def check_doctor(folder):
    code, out, err = run("doctor", f"save_dir={folder}", "master=localhost")
    found = findings(out)
    assert code == 0 and list(found) == CHECKS, (code, out, err)
    assert all(verdict in ("ok", "warning", "skipped") for verdict, _ in found.values()), out
    assert found["snapshots"][0] == "ok" and "code 4" in found["snapshots"][1], out
    assert list(folder.iterdir()) == [], "the file of the check is left"
    assert " to 127.0.0.1" in found["route"][1] and "lo 127.0.0.1" in found["route"][1], out
    for name, hint in (("connection", "code 5"), ("network", "if training is slow"), ("memory", "code 7")):
        assert hint in found[name][1], out
    assert re.search(r"2 ranks on 1 host over (gloo|shm): all-reduce in .*, [0-9.e+]+ [GM]B/s", found["network"][1]), out


def check_failures(folder):
    file = folder / "file"
    file.write_text("")
    code, out, _ = run("doctor", f"save_dir={file}/below")
    found = findings(out)
    assert code == 4 and found["snapshots"][0] == "failed" and found["GPUs"], (code, out)
    code, out, _ = run("doctor", "master=no-such-host.invalid")
    assert code == 5 and findings(out)["route"][0] == "failed", (code, out)
    code, out, err = run("doctor", "comm.backend=gloo", env=os.environ | {"GLOO_SOCKET_IFNAME": "nosuch0"})
    found = findings(out)
    assert code == 5 and found["ranks"][0] == found["route"][0] == "failed", (code, out, err)
    assert "rank 0: " in found["ranks"][1] and "nosuch0" in found["ranks"][1], out
    _, out, _ = run("doctor", "comm.backend=gloo", env=os.environ | {"GLOO_SOCKET_IFNAME": "lo,lo"})
    assert findings(out)["route"][0] == "ok", out

    def few_files():
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
    code, out, _ = run("doctor", preexec_fn=few_files)
    assert code == 0 and findings(out)["limits"][0] == "warning" and "ulimit -n" in out, (code, out)
    code, out, err = run("doctor", "device=cpu", "save_dri=x")
    assert code == 2 and 'argument 3: "save_dri=x": unknown key; did you mean' in err and out == "", (code, out, err)


def check_bucket():
    servers = json.loads(pathlib.Path(os.environ["DDPXX_S3_SERVERS"]).read_text())["servers"]
    for server in servers:
        keys = {"AWS_ENDPOINT_URL": server["endpoint"], "AWS_REGION": server["region"],
                "AWS_ACCESS_KEY_ID": server["access_key"], "AWS_SECRET_ACCESS_KEY": server["secret_key"]}
        place = f"s3://{server['bucket']}/doctor"
        code, out, err = run("doctor", f"save_dir={place}", env=os.environ | keys)
        assert code == 0 and findings(out)["snapshots"][0] == "ok", (code, out, err)
        denied = keys | {"AWS_ACCESS_KEY_ID": server["other_access_key"],
                         "AWS_SECRET_ACCESS_KEY": server["other_secret_key"]}
        code, out, err = run("doctor", f"save_dir={place}", env=os.environ | denied)
        assert code == 4 and findings(out)["snapshots"][0] == "failed", (code, out, err)


NET = re.compile(r"""(\d) ranks on (\d) hosts? over (gloo|shm|shm\+gloo), tensors on cpu
all-reduce latency  [0-9.e+-]+ [mu]s
(?:all-reduce +[0-9.]+ [KM]iB +[0-9.e+-]+ [mu]s  [0-9.e+-]+ [GM]B/s
){3}as links(?:, for mingpt plan --time: link\.latency=[0-9][0-9.e+-]*ms link\.bandwidth=[0-9][0-9.e+-]*GB|: unknown.*)
(?:rank 0 to rank (\d) \(([\w.-]+)\)  latency [0-9.e+-]+ [mu]s  [0-9.e+-]+ [GM]B/s
|rank 0 to rank 1: not measured over shared memory; comm\.backend=gloo does
)""")


def check_net():
    for settings, expected in (([], ("2", "1", "shm", None)), (["comm.backend=gloo"], ("2", "1", "gloo", "1"))):
        code, out, err = run("net", "max_bytes=64KiB", "repeats=3", *settings)
        match = NET.fullmatch(out)
        assert code == 0 and match and match.groups()[:4] == expected, (code, out, err)
    code, out, err = run("net", env=os.environ | {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost",
                                                 "MASTER_PORT": "1"})
    assert code == 2 and "needs two ranks" in err, (code, out, err)
    code, out, err = run("net", "repeat=3")
    assert code == 2 and 'argument 2: "repeat=3": unknown key; did you mean repeats?' in err, (code, out, err)
    with open("/dev/full", "w") as full:
        done = subprocess.run([BIN / "ddpxx", "net", "max_bytes=64KiB", "repeats=3"], stdout=full, timeout=PATIENCE,
                              stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 4 and "rank 0: the output could not be written" in done.stderr, done


def check_lost_rank():
    """One of the two ranks is killed, in most cases before they have met: the other must not wait for it."""
    with subprocess.Popen([BIN / "ddpxx", "net", "comm.join_timeout=600"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as net:
        children = pathlib.Path(f"/proc/{net.pid}/task/{net.pid}/children")
        while len(ranks := children.read_text().split()) < 2:
            assert net.poll() is None
        os.kill(int(ranks[1]), signal.SIGKILL)
        text = net.communicate(timeout=PATIENCE)[0]
        assert net.returncode == 5 and "rank 1: ended by signal 9" in text, (net.returncode, text)


def on_hosts(hosts, *words):
    """What rank 0 of a command of four ranks on two hosts prints."""
    line = [BIN / "ddpxx-run", "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=node1:29400",
            "--rdzv-id=7", BIN / "ddpxx", *words]
    agents = [hosts.start(name, line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
              for name in hosts.names]
    texts = [agent.communicate(timeout=PATIENCE)[0] for agent in agents]
    lines = [re.sub(r"^\[rank\d\]: ", "", line) for text in texts for line in text.splitlines()]
    return [agent.returncode for agent in agents], "".join(line + "\n" for line in lines)


def check_two_hosts(folder):
    with Hosts(["node1", "node2"]) as hosts:
        codes, out = on_hosts(hosts, "doctor", f"save_dir={folder}")
        assert codes == [0, 0], (codes, out)
        for name in hosts.names:
            assert f"{name}: ok       route: node1 by " in out and f"{name}: ok       snapshots: " in out, out
            assert f"eth0 {hosts.addresses[name][0]}" in out, out
        assert "node1: ok       connection: all 4 ranks" in out and "node1: ok       clocks: rank " in out, out
        assert "node1: ok       network: 4 ranks on 2 hosts over shm+gloo" in out, out
        assert list(folder.iterdir()) == [], out
        codes, out = on_hosts(hosts, "doctor", f"save_dir={folder}/nothing/../../../proc/x")
        assert codes == [4, 4] and "node2: failed   snapshots" in out, (codes, out)
        codes, out = on_hosts(hosts, "net", "max_bytes=64KiB", "repeats=3")
        match = NET.fullmatch(out)
        assert codes == [0, 0] and match and match.groups() == ("4", "2", "shm+gloo", "2", "node2"), (codes, out)
        codes, out = on_hosts(hosts, "net", "max_bytes=64KiB", "repeats=3", "comm.backend=gloo")
        match = NET.fullmatch(out)
        assert codes == [0, 0] and match and match.groups() == ("4", "2", "gloo", "2", "node2"), (codes, out)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if sys.argv[2] == "two_hosts":
            skip_unless_possible()
            check_two_hosts(folder)
        else:
            check_doctor(folder)
            check_failures(folder)
            check_bucket()
            check_net()
            check_lost_rank()
    print("doctor and net say what they found")


main()
