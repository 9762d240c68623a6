#!/usr/bin/env python3
"""The preset dev links in a clone whose path has spaces.

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
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(clone LANGUAGES CXX)
add_executable(program main.cpp)
"""


def run(*command, cwd, **variables):
    done = subprocess.run(command, cwd=cwd, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


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
