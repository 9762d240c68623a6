#!/usr/bin/env python3
"""Runs the commands of docs/guides.md, and looks for the tests that it names.

    guides_test.py commands FOLDER_OF_PROGRAMS      the commands of the columns `here`, but for those of the rows SLOW
    guides_test.py slow_commands FOLDER_OF_PROGRAMS those of the rows SLOW
    guides_test.py tests BUILD_FOLDER               every name of the columns `tests`

A command of the page is run as it stands, with these changes: minGPT gets the arguments of SMALL or EXTRA, which make it
short, and an address of the guides becomes one of this machine. Commands for several nodes are started once for each.
"""
import contextlib
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from markdown_table import rows  # noqa: E402
from unused_port import unused_port  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guides.md").read_text()
PATIENCE = 300  # seconds; a command takes one or two
PROGRAMS = {"ddpxx", "ddpxx-run", "mingpt", "mpirun", "torchrun",
            *(path.stem for path in (ROOT / "samples" / "tutorial").glob("*.cpp"))}
SMALL = ("data.path=text.txt data.block_size=32 data.batch_size=2 model.n_layer=2 model.n_head=2 model.n_embd=16 "
         "training.max_steps=2 optimizer.warmup_steps=1 generate.tokens=0").split()
# Instead of SMALL, for the rows of minGPT that differ.
EXTRA = {"A.2": [], "A.9": [], "A.12": [*SMALL, "training.save_dir=runs/a"], "B.2": [], "E.4": ["training.max_epochs=2"],
         "U.2": ["training.max_steps=2"], "U.4": []}
SLOW = {"C.3", "D.8"}  # tests of the tutorial run these commands, too
# A text that shows the row's subject in the output of its command; of a row with several commands one for each.
EXPECTED = {
    "A.2": "n_layer: 12",
    "A.3": "[GPU1] Epoch 1 | Batchsize: 32 | Steps: 32",
    "A.4": "strategy ddp, 2 ranks",
    "A.6": "strategy ddp, 4 ranks",
    "A.7": "strategy ddp, 8 ranks",
    "A.8": "precision fp16",
    "A.9": ("activations", "a rank "),
    "A.10": ("recompute segments:2", "Recompute<DDP>, Float32, 2 ranks"),
    "A.11": ("FSDP, Float32, 2 ranks", "strategy fsdp"),
    "A.12": "[default0]:step 2/2",
    "A.13": "snapshots",
    "A.14": "320 steps of 64 samples",
    "B.1": "4 ranks",
    "B.2": "scontrol requeue",
    "B.4": "precision fp16",
    "B.5": "strategy fsdp",
    "C.1": "[GPU0] Epoch 49 | Batchsize: 32 | Steps: 64",
    "C.2": "[GPU3] Epoch 49 | Batchsize: 32 | Steps: 16",
    "C.3": "[GPU3] Epoch 49 | Batchsize: 32 | Steps: 8",
    "C.4": "#SBATCH --nodes=2",
    "C.5": "4 ranks",
    "C.6": "Epoch 40 | Training snapshot saved at snapshots",
    "D.2": ("Epoch 40 | Training checkpoint saved at checkpoint.pt",) * 2,
    "D.3": "[GPU1] Epoch 49 | Batchsize: 32 | Steps: 32",
    "D.5": "Epoch 10 | Training snapshot saved at snapshots",
    "D.6": "Epoch 10 | Training checkpoint saved at checkpoint.pt",
    "D.7": "[GPU0] Epoch 49 | Batchsize: 32",
    "D.8": "[GPU11] Epoch 47 | Batchsize: 32 | Steps: 4",
    "E.1": ("DataParallel, Float32, 1 rank: 320 steps of 64 samples", "DDP, Float32, 2 ranks: 320 steps of 64 samples"),
    "E.3": "Epoch: 9, Loss: ",
    "E.4": "Epoch: 1, Loss: ",
    "E.5": "320 steps of 64 samples",
    "E.6": "took part in 2 more steps",
    "E.7": "Scale: ",
    "E.9": "network",
    "U.2": "lr 3.00e-04",
    "U.4": "is read as one of nanoGPT's",
    "U.5": "srun --kill-on-bad-exit=1 multinode 50 10",
    "U.6": "[GPU1] Epoch 1",
    "U.7": "2 ranks",
    "U.8": "precision bf16_params",
    "U.9": "number of parameters: ",
}

# Files that the command of a row writes, with a text that they have.
WRITTEN = {
    "A.12": {"logs/*/attempt_0/0/stdout.log": "step 2/2", "rows.jsonl": '"loss":'},
    "U.9": {"rows.jsonl": '"loss":'},
}


def has_ipv6_loopback():
    """False in many containers: a socket of IPv6 can be made there, but has no address."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


def nodes_of(command, extra):
    """The words of the command for each node, with addresses of this machine."""
    port = unused_port()
    command = re.sub(r"node0(_ip)?:\d+", f"127.0.0.1:{port}", command)
    command = re.sub(r"\[::1\]:\d+", f"[::1]:{port}" if has_ipv6_loopback() else f"127.0.0.1:{port}", command)
    command = re.sub("--master_addr=node1 --master_port=12355", f"--master_addr=127.0.0.1 --master_port={port}", command)
    words = shlex.split(command.replace("--nproc_per_node=gpu", "--nproc_per_node=cpu")) + extra
    if "--nnodes=2" not in words:
        return [words]
    return [[f"--node_rank={node}" if word == "--node_rank=0" else word for word in words] for node in (0, 1)]


def run(row, command):
    small = SMALL if re.search(r"\bmingpt\b", command) else []
    extra = EXTRA.get(row, small)
    # Files, because a node whose output nobody reads would stop, and the other one would wait for it.
    nodes = [(words, tempfile.TemporaryFile("w+")) for words in nodes_of(command, extra)]
    started = [subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT) for words, file in nodes]
    try:
        codes = [process.wait(timeout=PATIENCE) for process in started]
    finally:
        for process in started:
            process.kill()
    outputs = []
    for _, file in nodes:
        with file:
            file.seek(0)
            outputs.append(file.read())
    assert codes == [0] * len(codes), f"{row}: {command} ended with {codes}\n" + "\n".join(outputs)
    return "".join(outputs)


def commands():
    """The commands of the page with their rows."""
    for row, cell in rows(PAGE, "here"):
        for code in re.findall("`([^`]+)`", cell):
            if code.split()[0] in PROGRAMS and (len(code.split()) > 1 or code in {"single_gpu"}) and \
                    not code.startswith("ddpxx snapshot"):  # those of interop.md have tests of their own
                yield row, code


def environment(programs):
    """The programs are found by their names; mpirun may be root's."""
    os.environ["PATH"] = f"{programs}:{programs}/tutorial:{os.environ['PATH']}"
    os.environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    torchrun = pathlib.Path("torchrun")
    torchrun.write_text(f"#!/bin/sh\nexec {sys.executable} -m torch.distributed.run \"$@\"\n")
    torchrun.chmod(0o755)
    os.environ["PATH"] += f":{pathlib.Path.cwd()}"
    for name, text in re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL):
        pathlib.Path(name).write_text(text)
    pathlib.Path("text.txt").write_text((ROOT / "docs" / "architecture.md").read_text())


def test_commands(_):
    found = list(commands())
    assert {row for row, _ in found} == set(EXPECTED), {row for row, _ in found} ^ set(EXPECTED)
    with_command = {row for row, _ in found}
    without = [row for (row, here), (_, test) in zip(rows(PAGE, "here"), rows(PAGE, "tests"))
               if row not in with_command and "`" not in test and not here.startswith("not here: ")]
    assert not without, f"neither a command, nor a test, nor a reason after 'not here': {without}"
    run_all([(row, command) for row, command in found if row not in SLOW])


def test_slow_commands(_):
    run_all([(row, command) for row, command in commands() if row in SLOW])


def files_of(row):
    return [path for pattern in WRITTEN.get(row, {}) for path in pathlib.Path().glob(pattern)]


def run_all(found):
    outputs = {}
    for row, command in found:
        shutil.rmtree("snapshots", ignore_errors=True)
        for path in files_of(row):
            path.unlink()
        begin = time.monotonic()
        outputs.setdefault(row, []).append(run(row, command))
        print(f"{time.monotonic() - begin:5.1f} s  {row}  {command}", flush=True)
        for pattern, text in WRITTEN.get(row, {}).items():
            assert any(text in path.read_text() for path in pathlib.Path().glob(pattern)), f"{row}: no {text!r} in {pattern}"
    for row, texts in outputs.items():
        expected = (EXPECTED[row],) if isinstance(EXPECTED[row], str) else EXPECTED[row]
        assert len(texts) == len(expected), f"{row}: {len(texts)} commands, and {len(expected)} texts in EXPECTED"
        for one, text in zip(expected, texts):
            assert one in text, f"{row}: no {one!r} in\n{text}"


def test_tests(build):
    listed = subprocess.run(["ctest", "--test-dir", build, "--show-only"], capture_output=True, text=True, check=True)
    known = set(re.findall(r"Test +#\d+: (\S+)", listed.stdout))
    for source in (ROOT / "tests").rglob("*_test.cpp"):
        for suite, name in re.findall(r"TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", source.read_text()):
            known |= {f"{suite}.{name}", suite}
    names = [(row, name) for row, cell in rows(PAGE, "tests") for name in re.findall("`([^`]+)`", cell)]
    missing = [f"{row}: {name}" for row, name in names if name not in known]
    assert len(names) > 50 and not missing, missing
    lines = dict(rows(PAGE, "tests"))
    assert all(lines[str(number)] for number in range(1, 16))


with tempfile.TemporaryDirectory() as temporary:
    folder = pathlib.Path(sys.argv[2]).resolve()
    os.chdir(temporary)
    if sys.argv[1] != "tests":
        environment(folder)
    globals()["test_" + sys.argv[1]](folder)
