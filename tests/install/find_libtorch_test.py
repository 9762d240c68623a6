#!/usr/bin/env python3
"""Which LibTorch a project gets from an installed ddpxx: the one that it names, else that of ddpxx, else python3's.

    find_libtorch_test.py CMAKE GENERATOR
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

CMAKE, GENERATOR = sys.argv[1:]
MODULE = pathlib.Path(__file__).resolve().parents[2] / "cmake" / "FindLibTorch.cmake"
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(finds LANGUAGES NONE)
list(APPEND CMAKE_MODULE_PATH ${CMAKE_SOURCE_DIR}/cmake)
find_package(LibTorch 2.11 REQUIRED)
message(STATUS "the project has LibTorch ${LibTorch_VERSION}")
"""


def make_libtorch(folder, version):
    """A folder with the files by which LibTorch is found."""
    for name in ("lib/libtorch_cpu.so", "lib/libc10.so", "include/ATen/core/Tensor.h"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / "version.py").write_text(f"__version__ = '{version}'\n")
    return folder


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "cmake").mkdir()
        shutil.copy(MODULE, folder / "cmake")  # beside the project's own files there is no .deps
        (folder / "CMakeLists.txt").write_text(PROJECT)
        of_ddpxx, named = make_libtorch(folder / "of_ddpxx", "2.12.1"), make_libtorch(folder / "named", "2.14.0")
        of_python = make_libtorch(folder / "of_python", "2.13.2")
        (folder / "bin").mkdir()
        (folder / "bin/python3").write_text(f"#!/bin/sh\necho {of_python}\n")
        (folder / "bin/python3").chmod(0o755)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LIBTORCH")}
        environment["PATH"] = f"{folder}/bin:{environment['PATH']}"

        def version(*definitions):
            shutil.rmtree(folder / "build", ignore_errors=True)
            done = subprocess.run([CMAKE, "-S", folder, "-B", folder / "build", "-G", GENERATOR, *definitions],
                                  env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout.split("the project has LibTorch ")[1].split("\n")[0]

        hint = f"-DDDPXX_LIBTORCH_HINT={of_ddpxx}"
        assert version(hint, f"-DLIBTORCH_ROOT={named}") == "2.14.0"
        assert version(hint) == "2.12.1"
        assert version(f"-DDDPXX_LIBTORCH_HINT={folder}/gone") == "2.13.2"
    print("a project gets the LibTorch that it names, else that of ddpxx, else that of python3")


main()
