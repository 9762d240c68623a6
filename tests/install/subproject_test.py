#!/usr/bin/env python3
"""What ddpxx leaves alone in a project that contains it.

    subproject_test.py CMAKE GENERATOR COMPILER SOURCE_OF_DDPXX FOLDER_OF_LIBTORCH FOLDER_OF_PFR
"""
import pathlib
import subprocess
import sys
import tempfile

CMAKE, GENERATOR, COMPILER, SOURCE, LIBTORCH, PFR = sys.argv[1:]
PROJECT = f"""cmake_minimum_required(VERSION 3.25)
project(contains LANGUAGES CXX)
set(CPACK_GENERATOR TGZ)
include(CPack)
set(DDPXX_INSTALL ON)
add_subdirectory("{SOURCE}" ddpxx)
"""


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "CMakeLists.txt").write_text(PROJECT)

        def configure(*definitions):
            return subprocess.run([CMAKE, "-S", folder, "-B", folder / "build", "-G", GENERATOR, *definitions,
                                   f"-DCMAKE_CXX_COMPILER={COMPILER}", f"-DLIBTORCH_ROOT={LIBTORCH}",
                                   f"-DPFR_INCLUDE_DIR={PFR}"], capture_output=True, text=True, check=False)

        done = configure()
        assert done.returncode == 0, done.stderr
        config = (folder / "build/CPackConfig.cmake").read_text()
        assert 'set(CPACK_GENERATOR "TGZ")' in config and "libddpxx-dev" not in config, config
        done = configure("-DDDPXX_BUILD_TESTS=ON")
        assert done.returncode != 0 and "tests are built in its own source tree" in done.stderr, done.stderr
    print("a project keeps its own packages, and is told where the tests of ddpxx are built")


main()
