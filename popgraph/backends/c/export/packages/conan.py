"""A Conan package."""

from __future__ import annotations

from popgraph.backends.c.export.interface import Interface
from popgraph.backends.c.export.packages.microcontroller import about, files_of
from popgraph.backends.c.export.packages.package import Package, Sources
from popgraph.backends.tools import Files


def write(sources: Sources) -> Files:
    """The export with its CMakeLists.txt, conanfile.py, and a test_package that runs the check."""
    interface = sources.interface
    texts = {
        "conanfile.py": _recipe(interface),
        "test_package/conanfile.py": _test(interface),
        "test_package/CMakeLists.txt": _consumer(interface),
    }
    checks = {f"test_package/{one}": sources.files[one] for one in ("main.c", "check_data.h")}
    return {**sources.files, **files_of(texts), **checks}


def _recipe(interface: Interface) -> str:
    form = interface.form
    name = form.name
    system = ["m"] + ["pthread"] * interface.pooled
    return f'''\
"""{about(interface)}"""

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout


class Recipe(ConanFile):
    name = "{name.strip("_")}"
    version = "{interface.form.version}"
    description = "{about(interface)}"
    package_type = "static-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {{"fPIC": [True, False]}}
    default_options = {{"fPIC": True}}
    implements = ["auto_shared_fpic"]
    languages = "C"
    exports_sources = "CMakeLists.txt", "{name}*", "main.c", "check_data.h"

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["{name}_check"] = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        self.cpp_info.libs = ["{name}"]
        self.cpp_info.set_property("cmake_file_name", "{name}")
        self.cpp_info.set_property("cmake_target_name", "{name}::{name}")
        if self.settings.os in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = {system!r}
'''


def _test(interface: Interface) -> str:
    name = interface.form.name
    return f'''\
"""Builds a program with the package, and runs it on a test vector."""

import os

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, cmake_layout


class Test(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps", "CMakeToolchain"
    languages = "C"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        if can_run(self):
            self.run(os.path.join(self.cpp.build.bindir, "check_{name}"), env="conanrun")
'''


def _consumer(interface: Interface) -> str:
    name = interface.form.name
    return f"""\
cmake_minimum_required(VERSION 3.15)
project(check LANGUAGES C)
find_package({name} REQUIRED CONFIG)
add_executable(check_{name} main.c)
target_link_libraries(check_{name} PRIVATE {name}::{name})
set_target_properties(check_{name} PROPERTIES C_STANDARD 11)
"""


PACKAGE = Package("conan", write, weights=("incbin", "array"))
