"""Conan 2's recipe of ddpxx: LIBTORCH_ROOT=FOLDER conan create packaging/conan -s compiler.cppstd=20

LibTorch comes from the folder that the variable LIBTORCH_ROOT names, since a program and its LibTorch have to fit each
other exactly, and Boost.PFR from Boost_ROOT unless Conan provides Boost. With the option `system=True` nothing is asked of
a remote: range-v3, yaml-cpp, nlohmann-json and PCRE2 are those of the system. With `tokenizer=True` PCRE2 is among the
packages, and there is the target ddpxx::tokenizer.
"""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load


class Ddpxx(ConanFile):
    name = "ddpxx"
    description = "Distributed data-parallel training on LibTorch"
    topics = "machine-learning", "distributed", "libtorch"
    package_type = "static-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"system": [True, False], "tokenizer": [True, False]}
    default_options = {"system": False, "tokenizer": False}

    @property
    def _root(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        self.version = re.search(r"project\(ddpxx VERSION ([\d.]+)", load(self, os.path.join(self._root, "CMakeLists.txt")))[1]

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "cmake/*", "include/*", "src/*", "tools/*"):
            copy(self, pattern, self._root, self.export_sources_folder)

    def requirements(self):
        if self.options.system:
            return
        self.requires("boost/[>=1.84]", transitive_headers=True, options={"header_only": True})
        self.requires("range-v3/[>=0.12]", transitive_headers=True)
        self.requires("yaml-cpp/[>=0.7]", transitive_headers=True)
        self.requires("nlohmann_json/[>=3.11]", transitive_headers=True)
        if self.options.tokenizer:
            self.requires("pcre2/[>=10.40]", transitive_headers=True)

    def validate(self):
        check_min_cppstd(self, 20)
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("ddpxx runs on Linux")

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["DDPXX_BUILD_PROGRAMS"] = False
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        # The package's own file knows its targets, its components and LibTorch.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "ddpxx")]
        self.cpp_info.bindirs = ["bin"]
