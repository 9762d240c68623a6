#!/usr/bin/env python3
"""Configures ddpxx with dependencies in unusual places, and reads the ddpxx.pc of it.

    pc_file_test.py CMAKE GENERATOR COMPILER FOLDER_OF_LIBTORCH FOLDER_OF_BOOST
"""
import os
import pathlib
import shlex
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
        json, libtorch = folder / "json library", folder / "lib torch"
        config = json / "share/cmake/nlohmann_json"
        config.mkdir(parents=True)
        (json / "include").mkdir()
        libtorch.mkdir()
        for part in pathlib.Path(LIBTORCH).iterdir():
            (libtorch / part.name).symlink_to(part)
        (config / "nlohmann_jsonConfigVersion.cmake").write_text("set(PACKAGE_VERSION_COMPATIBLE TRUE)\n")
        (config / "nlohmann_jsonConfig.cmake").write_text(
            "add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED)\nset_target_properties(nlohmann_json::"
            f'nlohmann_json PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "{json}/include;{json}/include")\n')
        done = subprocess.run(
            [CMAKE, "-S", ROOT, "-B", folder / "build", "-G", GENERATOR, f"-DCMAKE_CXX_COMPILER={COMPILER}",
             f"-DLIBTORCH_ROOT={libtorch}", f"-DBoost_ROOT={folder}/system", f"-DCMAKE_PREFIX_PATH={json}",
             "-DDDPXX_BUILD_PROGRAMS=OFF", f"-DCMAKE_PROJECT_ddpxx_INCLUDE={folder}/implicit.cmake"],
            capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        done = subprocess.run(["pkg-config", "--cflags", "--libs", "ddpxx"], capture_output=True, text=True, check=False,
                              env=os.environ | {"PKG_CONFIG_PATH": str(folder / "build")})
        flags = shlex.split(done.stdout)
        assert done.returncode == 0 and f"-I{libtorch}/include" in flags, done
        assert f"-L{libtorch}/lib" in flags and f"-Wl,-rpath,{libtorch}/lib" in flags, flags
        installed = folder / "a prefix/lib/pkgconfig"
        installed.mkdir(parents=True)
        shutil.copy(folder / "build/ddpxx.pc", installed)
        done = subprocess.run(["pkg-config", "--cflags", "--libs", "ddpxx"], capture_output=True, text=True, check=False,
                              env=os.environ | {"PKG_CONFIG_PATH": str(installed)})
        include = f"{installed}/../../include"
        flags = shlex.split(done.stdout)
        assert f"-I{include}" in flags and f"-I{include}/ddpxx/comm/gloo_declarations" in flags, flags
        text = (folder / "build/ddpxx.pc").read_text()
        assert f"-I{json}/include" in flags and text.count("json\\ library/include") == 1, text
        assert "system/include" not in text and "-isystem /usr/include" not in text and "$<" not in text, text
    print("ddpxx.pc names the folders that the compiler does not search by itself")


main()
