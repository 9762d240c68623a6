#!/usr/bin/env python3
"""Configures ddpxx with dependencies in unusual places, and reads the ddpxx.pc of it.

    pc_file_test.py CMAKE GENERATOR COMPILER FOLDER_OF_LIBTORCH FOLDER_OF_BOOST
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

CMAKE, GENERATOR, COMPILER, LIBTORCH, BOOST = sys.argv[1:]
ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        # Boost lies in a folder that the compiler searches by itself, as /usr/include; nlohmann-json in one of its own.
        (folder / "system/include").mkdir(parents=True)
        (folder / "system/include/boost").symlink_to(pathlib.Path(BOOST) / "boost")
        (folder / "implicit.cmake").write_text(
            f'list(APPEND CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES "{folder}/system/include")\n')
        config = folder / "json/share/cmake/nlohmann_json"
        config.mkdir(parents=True)
        (folder / "json/include").mkdir()
        (config / "nlohmann_jsonConfigVersion.cmake").write_text("set(PACKAGE_VERSION_COMPATIBLE TRUE)\n")
        (config / "nlohmann_jsonConfig.cmake").write_text(
            "add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED)\nset_target_properties(nlohmann_json::"
            f'nlohmann_json PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "{folder}/json/include;{folder}/json/include")\n')
        done = subprocess.run(
            [CMAKE, "-S", ROOT, "-B", folder / "build", "-G", GENERATOR, f"-DCMAKE_CXX_COMPILER={COMPILER}",
             f"-DLIBTORCH_ROOT={LIBTORCH}", f"-DBoost_ROOT={folder}/system", f"-DCMAKE_PREFIX_PATH={folder}/json",
             "-DDDPXX_BUILD_PROGRAMS=OFF", f"-DCMAKE_PROJECT_ddpxx_INCLUDE={folder}/implicit.cmake"],
            capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        flags, = (line for line in (folder / "build/ddpxx.pc").read_text().splitlines() if line.startswith("Cflags:"))
        assert f"-isystem {LIBTORCH}/include " in flags, flags
        assert flags.count(f"-isystem {folder}/json/include") == 1, flags
        assert "system/include" not in flags and "-isystem /usr/include" not in flags and "$<" not in flags, flags
    print("ddpxx.pc names the folders that the compiler does not search by itself")


main()
