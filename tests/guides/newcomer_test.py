#!/usr/bin/env python3
"""Follows docs/start.md in a fresh copy of the project, as somebody does who has never seen it: every command of the page
runs as it stands, in the order of the page.

    newcomer_test.py FOLDER [BUILD_DIR]

FOLDER is made anew. Two things differ from a clone on an empty machine: the downloaded libraries of this checkout are
used, and the two machines of the page are two agents on this one. With BUILD_DIR two more things differ, which saves minutes: the
programs and the library of that build are taken in place of optimised ones, and the sample is trained for fewer steps.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from unused_port import unused_port  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAIN = "./dev train"
FEWER_STEPS = " training.max_steps=60 training.eval_every=20 training.eval_samples=64"
FENCE = re.compile(r"^(?:<!-- run(?: on: ([\w ]+))? -->\n)?```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
PATIENCE = 2400  # seconds for one block; the longest compiles the sample and trains it


def files_of_the_project():
    """The files that git lists; in a tree that is no repository, those that git would not ignore."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                                check=True, capture_output=True, text=True).stdout
        return listed.split("\0")[:-1]
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text().split()]
    files = []
    for place, folders, names in os.walk(ROOT):
        folders[:] = [folder for folder in folders if folder not in ignored]
        files += [os.path.relpath(os.path.join(place, name), ROOT) for name in names]
    return files


def copy_of_the_project(folder):
    """What `git clone` gives, with changes that are not committed yet."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in files_of_the_project():
        if os.path.lexists(ROOT / name):  # a file that was removed is listed until that is committed
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    (folder / ".deps").symlink_to(ROOT / ".deps")


def use_build(folder, build):
    """Gives the programs of `build` to the copy; returns a folder for PATH with a cmake that compiles nothing of ddpxx, and
    fails for a target that `build` does not have."""
    (folder / "build").mkdir()
    (folder / "build" / "bin").symlink_to(build / "bin")
    cmake = folder / "path" / "cmake"
    cmake.parent.mkdir()
    cmake.write_text(f"""#!/bin/sh
case "$*" in
  "--preset release") ;;
  "--build build --target "*) shift 3; exec ninja -C "{build}" -t query "$@" >/dev/null ;;
  "--install build --prefix "*) exec "{shutil.which("cmake")}" --install "{build}" --prefix "$4" ;;
  *) exec "{shutil.which("cmake")}" "$@" ;;
esac
""")
    cmake.chmod(0o755)
    return cmake.parent


def output_of(code, hosts, environment):
    started = [subprocess.Popen(["bash", "-ec", code], env=environment, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in hosts]
    output = "".join(process.communicate(timeout=PATIENCE)[0] for process in started)
    assert all(process.returncode == 0 for process in started), f"{code}\n{output}"
    return output


def main():
    folder = pathlib.Path(sys.argv[1])
    copy_of_the_project(folder)
    os.chdir(folder)
    # The page installs into $HOME. The compiler's cache stays where it is.
    cache = os.environ.get("CCACHE_DIR") or pathlib.Path.home() / ".cache" / "ccache"
    environment = {**os.environ, "HOME": str(folder / "home"), "CCACHE_DIR": str(cache)}
    if is_short := len(sys.argv) > 2:
        environment["PATH"] = f"{use_build(folder, pathlib.Path(sys.argv[2]))}:{environment['PATH']}"
    outputs = []
    for hosts, code in FENCE.findall((folder / "docs" / "start.md").read_text()):
        if is_short:
            code = re.sub(f"^{TRAIN}$", TRAIN + FEWER_STEPS, code, flags=re.MULTILINE)
        print(code, flush=True)
        code = code.replace("node0:29500", f"127.0.0.1:{unused_port()}")
        outputs.append(output_of(code, hosts.split() or [None], environment))
        print(outputs[-1], flush=True)
    text = "".join(outputs)
    assert "is given before" not in outputs[0], f"{TRAIN} gives a setting beside the user's"

    losses = [float(value) for value in re.findall(r"val_loss (\S+)", outputs[0])]
    assert len(losses) >= 3 and losses[0] > losses[1] > losses[2], losses
    assert "template <" in text, "the trained model has written no text"
    assert "strategy fsdp, 2 ranks" in text and "strategy ddp, 1 rank" in text, "mingpt has not changed its strategy"
    assert "strategy DDP, 2 ranks" in text and "strategy FSDP, 2 ranks" in text, "the own model has not changed its strategy"
    accuracies = [float(value) for value in re.findall(r"val_accuracy (\S+)", text)]
    assert accuracies[0] < 0.8 and min(accuracies[-3:]) > 0.97, accuracies
    assert re.findall(r"resumed .*?step (\d+)", text) == ["20", "1260", "1575", "1890"], text


main()
