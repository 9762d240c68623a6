#!/usr/bin/env python3
"""./dev takes the paths of its arguments from the folder in which it is called, and the preset dev links in a clone whose path
has spaces.

    dev_test.py CMAKE
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

CMAKE = sys.argv[1]
ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = """#!/bin/sh
echo "in $(pwd): $*"
"""
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(clone LANGUAGES CXX)
add_executable(program main.cpp)
"""


def program(path, text=PROGRAM):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def run(*command, cwd, **variables):
    done = subprocess.run(command, cwd=cwd, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_paths_begin_where_dev_is_called(folder):
    tree, elsewhere = folder / "tree", folder / "elsewhere"
    elsewhere.mkdir()
    tree.mkdir()
    shutil.copy(ROOT / "dev", tree)
    (tree / "tools").mkdir()
    (tree / "tools/fetch_deps.py").touch()  # fetches nothing
    program(folder / "path/cmake", "#!/bin/sh\n")  # builds nothing
    for name in ("ddpxx-run", "mingpt"):
        program(tree / "build/bin" / name)
    (tree / "build/gpu-check").mkdir()
    (tree / "build/gpu-check/gpu_check.py").write_text("import sys; print('report in', sys.argv[1])")
    path = f"{folder}/path:{os.environ['PATH']}"
    for caller, dev, named in ((elsewhere, "../tree/dev", f"{tree}/"), (tree, "./dev", "")):
        said = run(dev, "train", "data.path=book.txt", cwd=caller, PATH=path)
        assert f"in {caller}: --standalone --nproc-per-node 2 {tree}/build/bin/mingpt " in said, said
        assert " data.path=book.txt" in said, said
        assert f"to sample:    {named}build/bin/mingpt generate --from runs/train" in said, said
        said = run(dev, "gpu-check", "--packed", "out", cwd=caller, PATH=path)
        assert f"report in {caller}/out" in said, said


def test_the_preset_links_in_a_folder_with_spaces(folder):
    clone = folder / "a clone"
    (clone / "cmake").mkdir(parents=True)
    shutil.copy(ROOT / "CMakePresets.json", clone)
    shutil.copy(ROOT / "cmake/own_functions.map", clone / "cmake")
    (clone / "CMakeLists.txt").write_text(PROJECT)
    (clone / "main.cpp").write_text("int main() {}\n")
    run(CMAKE, "--preset", "dev", cwd=clone)
    run(CMAKE, "--build", "build/dev", cwd=clone)
    run(clone / "build/dev/program", cwd=clone)


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory() as folder:
                test(pathlib.Path(folder).resolve())
            print(name)


main()
