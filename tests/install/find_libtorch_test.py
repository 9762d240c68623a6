#!/usr/bin/env python3
"""Which LibTorch a project gets from an installed ddpxx: the one that it names, else that of ddpxx, else python3's.

    find_libtorch_test.py CMAKE GENERATOR
"""
import os
import pathlib
import sys
import tempfile

from finding_project import FindingProject

CMAKE, GENERATOR = sys.argv[1:]
CALLS = """find_package(LibTorch 2.11 REQUIRED)
message(STATUS "the project has LibTorch ${LibTorch_VERSION}")
message(STATUS "its NCCL is ${LibTorch_NCCL_INCLUDE_DIR}")
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
        project = FindingProject(CMAKE, GENERATOR, folder, "FindLibTorch.cmake", CALLS)
        of_ddpxx, named = make_libtorch(folder / "of_ddpxx", "2.12.1"), make_libtorch(folder / "named", "2.14.0")
        of_python = make_libtorch(folder / "of_python", "2.13.2")
        make_libtorch(folder / "called_from/mine", "2.15.0")
        (folder / "bin").mkdir()
        (folder / "bin/python3").write_text(f"#!/bin/sh\necho {of_python}\n")
        (folder / "bin/python3").chmod(0o755)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("LIBTORCH", "CMAKE"))}
        environment["PATH"] = f"{folder}/bin:{environment['PATH']}"

        def configure(*definitions, again=False, **variables):
            return project.configure(definitions, environment | variables, again)

        def version(*definitions, **variables):
            done = configure(*definitions, **variables)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout.split("the project has LibTorch ")[1].split("\n")[0]

        def refusal(*definitions, **variables):
            done = configure(*definitions, **variables)
            assert done.returncode != 0, done.stdout
            return " ".join(done.stderr.split())

        hint = f"-DDDPXX_LIBTORCH_HINT={of_ddpxx}"
        assert version(hint, f"-DLIBTORCH_ROOT={named}") == "2.14.0"
        assert version(hint) == "2.12.1"
        assert version(f"-DDDPXX_LIBTORCH_HINT={folder}/gone") == "2.13.2"
        assert version(hint, LIBTORCH_ROOT=str(named)) == "2.14.0"
        assert version(hint, CMAKE_PREFIX_PATH=f"{folder}/gone:{named}") == "2.14.0"
        assert version(f"-DLIBTORCH_ROOT={named}", LIBTORCH_ROOT=f"{folder}/gone") == "2.14.0"

        # A relative folder is one below the folder in which cmake is called; that of the environment, below the project.
        assert version(hint, "-DLIBTORCH_ROOT=mine") == "2.15.0"
        assert configure(again=True).stdout.count("LibTorch 2.15.0") == 2, "a second run must find the same folder"
        assert version(hint, "-DLIBTORCH_ROOT=../named") == "2.14.0"
        assert version(hint, LIBTORCH_ROOT="named") == "2.14.0"

        gone = "holds no LibTorch: lib/libtorch_cpu.so is not there"
        assert f"LIBTORCH_ROOT={folder}/gone {gone}" in refusal(hint, f"-DLIBTORCH_ROOT={folder}/gone")
        assert f"the environment variable LIBTORCH_ROOT={folder}/gone {gone}" in refusal(hint, LIBTORCH_ROOT=f"{folder}/gone")
        (folder / "headless/lib").mkdir(parents=True)
        (folder / "headless/lib/libtorch_cpu.so").touch()
        assert "include/ATen/core/Tensor.h is not there" in refusal(hint, f"-DLIBTORCH_ROOT={folder}/headless")

        for root in (of_ddpxx, named):  # NCCL's header belongs to the LibTorch in use
            (root / "include/nccl.h").touch()
        assert version(f"-DLIBTORCH_ROOT={of_ddpxx}") == "2.12.1"
        assert f"its NCCL is {named}/include" in configure(f"-DLIBTORCH_ROOT={named}", again=True).stdout
    print("a project gets the LibTorch that it names, else that of ddpxx, else that of python3")


main()
