"""A CMake project that calls find_package for one of the modules in cmake/."""
import pathlib
import shutil
import subprocess

MODULES = pathlib.Path(__file__).resolve().parents[2] / "cmake"
TEXT = """cmake_minimum_required(VERSION 3.25)
project(finds LANGUAGES NONE)
list(APPEND CMAKE_MODULE_PATH ${CMAKE_SOURCE_DIR}/cmake)
"""


class FindingProject:
    """The project in `folder`, with a copy of the module, beside which there is no .deps as in the source tree."""

    def __init__(self, cmake, generator, folder, module, calls):
        self.cmake, self.generator, self.folder = cmake, generator, folder
        (folder / "cmake").mkdir()
        shutil.copy(MODULES / module, folder / "cmake")
        (folder / "CMakeLists.txt").write_text(TEXT + calls)
        (folder / "called_from").mkdir()

    def configure(self, definitions, environment, again=False):
        """Calls cmake in the folder called_from, in a new build folder unless it is called `again`."""
        if not again:
            shutil.rmtree(self.folder / "build", ignore_errors=True)
        return subprocess.run([self.cmake, "-S", self.folder, "-B", self.folder / "build", "-G", self.generator,
                               *definitions], env=environment, cwd=self.folder / "called_from", capture_output=True,
                              text=True, check=False)
