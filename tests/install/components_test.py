#!/usr/bin/env python3
"""What find_package says where an installed ddpxx lacks a component that a project requires, and where the project has
other versions of LibTorch and yaml-cpp.

    components_test.py CMAKE GENERATOR COMPILER PREFIX FOLDER_OF_LIBTORCH
"""
import pathlib
import subprocess
import sys
import tempfile

CMAKE, GENERATOR, COMPILER, PREFIX, LIBTORCH = sys.argv[1:]
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(uses LANGUAGES CXX)
find_package(ddpxx 0.1 CONFIG REQUIRED ${COMPONENTS})
message(STATUS "the project has ddpxx")
file(WRITE ${CMAKE_BINARY_DIR}/empty.cpp "")
add_library(uses STATIC ${CMAKE_BINARY_DIR}/empty.cpp)
target_link_libraries(uses ddpxx::ddpxx)
"""
# A package of yaml-cpp 0.8, which has no target of the old name.
YAML = """add_library(yaml-cpp::yaml-cpp INTERFACE IMPORTED)
set_target_properties(yaml-cpp::yaml-cpp PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}")
"""


def make_libtorch(folder):
    """LibTorch without its CUDA libraries."""
    (folder / "lib").mkdir(parents=True)
    for name in ("lib/libtorch_cpu.so", "lib/libc10.so", "include"):
        (folder / name).symlink_to(pathlib.Path(LIBTORCH) / name)
    (folder / "version.py").write_text((pathlib.Path(LIBTORCH) / "version.py").read_text())
    return folder


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary).resolve()  # CMake writes the path without links
        (folder / "CMakeLists.txt").write_text(PROJECT)
        # Where none of the three components can be found.
        bare = [f"-DLIBTORCH_ROOT={make_libtorch(folder / 'libtorch')}", "-DCMAKE_DISABLE_FIND_PACKAGE_aws-c-s3=ON",
                "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
                f"-DPCRE2_INCLUDE_DIR={folder}/none"]

        def configure(components):
            done = subprocess.run([CMAKE, "-S", folder, "-B", folder / "build", "-G", GENERATOR, *bare,
                                   f"-DCMAKE_CXX_COMPILER={COMPILER}", f"-DCMAKE_PREFIX_PATH={PREFIX}",
                                   f"-DCOMPONENTS={components}"], capture_output=True, text=True, check=False)
            return done.returncode, done.stdout, " ".join(done.stderr.split())

        code, output, errors = configure("OPTIONAL_COMPONENTS;cuda;s3;tokenizer")
        assert code == 0 and "the project has ddpxx" in output and "was compiled with" not in output, (output, errors)
        code, output, errors = configure("COMPONENTS;cuda;s3;tokenizer;core")
        assert code != 0 and "the project has ddpxx" not in output, (output, errors)
        for sentence in (f"the component cuda needs LibTorch's CUDA libraries in {folder}/libtorch", "./dev setup cuda",
                         "the component s3 needs aws-c-s3 1.5 or later", "./dev setup s3",
                         "the component tokenizer needs PCRE2 10.40 or later", "there is no component core"):
            assert sentence in errors, (sentence, errors)
        code, output, errors = configure("COMPONENTS;s3;OPTIONAL_COMPONENTS;tokenizer")
        assert code != 0 and "the component s3 needs" in errors and "tokenizer needs" not in errors, (output, errors)

        (folder / "yaml").mkdir()
        (folder / "yaml/yaml-cpp-config.cmake").write_text(YAML)
        (folder / "libtorch/version.py").write_text("__version__ = '2.99.0'\n")
        bare.append(f"-Dyaml-cpp_DIR={folder}/yaml")
        code, output, errors = configure("OPTIONAL_COMPONENTS;tokenizer")
        assert code == 0 and "and this project uses 2.99.0" in output, (output, errors)
        assert f"-isystem {folder}/yaml" in (folder / "build/compile_commands.json").read_text()
    print("find_package names each component that is missing, and another version of LibTorch")


main()
