"""The build files of exported C: a Makefile and a CMakeLists.txt."""

from __future__ import annotations

import shlex

from popgraph.backends.c.build.system import MINGW_FLAGS, UNALIGNED
from popgraph.backends.c.build.toolchain import FLAGS, FUSES, GCC_FLAGS, UNFUSED
from popgraph.backends.c.export.bits import SAME_FLAGS
from popgraph.backends.c.export.interface import Interface, Weights

_OURS = {"-std=gnu11", "-fPIC", "-pthread", "-fvisibility=hidden"}
"""Flags of `FLAGS` that only PopGraph's own shared libraries need."""

_LEVELS = {"size": "-Os"}
"""{goal: its flag instead of -O2}; with -Os, GCC spills register tiles of integers."""


def compile_flags(interface: Interface) -> list[str]:
    """The flags of GCC and Clang for any machine."""
    level = _LEVELS.get(interface.form.optimize)
    own = [level if flag == "-O2" and level else flag for flag in FLAGS if flag not in _OURS]
    if interface.form.portable:
        own[own.index(FUSES)] = UNFUSED
    return ["-std=c11", *own, *(["-pthread"] if interface.pooled else [])]


def architecture(interface: Interface) -> list[str]:
    """The flags that select the machine, without GCC-only flags."""
    own = (*GCC_FLAGS, *MINGW_FLAGS)
    return [flag for flag in interface.form.target.flags if flag not in own]


def weights_source(interface: Interface) -> str:
    """The source file that embeds the constants; empty if there is none."""
    name = interface.form.name
    if not interface.image.rom_bytes:
        return ""
    return {
        Weights.INCBIN: f"{name}_weights.S",
        Weights.ARRAY: f"{name}_weights.c",
        Weights.FILE: "",
    }[interface.form.weights]


def makefile(interface: Interface) -> str:
    """The Makefile."""
    form, target = interface.form, interface.form.target
    name, weights = form.name, weights_source(interface)
    objects = f"{name}.o" + (f" {name}_weights.o" if weights else "")
    command, flags = " ".join(target.zig[:2]), " ".join(target.zig[2:])
    zig = f"\n# With zig: make CC='zig cc {command}' ARCH='{flags}'"
    packed = (
        f"{name}_weights.o: {weights} {name}_weights.bin\n\t$(CC) $(ARCH) -c {weights} -o $@\n"
        if weights.endswith(".S")
        else ""
    )
    shared = _shared(interface, objects) if form.casadi else ""
    return f"""\
# Builds {name} for {target.name}. `make check` runs it on a test vector; RUN is what runs programs
# of another machine, as in `make check RUN=qemu-aarch64`.{zig if target.zig else ""}
ifeq ($(origin CC),default)
CC = {target.compiler}
endif
ARCH = {shlex.join(architecture(interface))}
CFLAGS = -Wall -Wextra -pedantic {shlex.join(compile_flags(interface))}
{_same_flags(interface)}ifeq (,$(findstring clang,$(shell $(CC) --version)))
CFLAGS += {shlex.join(GCC_FLAGS)}
ifneq (,$(findstring mingw,$(shell $(CC) -dumpmachine)))
CFLAGS += {UNALIGNED}
EXE = .exe
endif
endif
RUN =

lib{name}.a: {objects}
	rm -f $@
	$(AR) rcs $@ {objects}

%.o: %.c {name}.h
	$(CC) $(ARCH) $(CFLAGS) -c $< -o $@

{name}.o: {name}_runtime.h

{packed}
main.o: check_data.h

check_{name}$(EXE): main.o {objects}
	$(CC) $(ARCH) $(CFLAGS) main.o {objects} -lm -o $@

{shared}check: check_{name}$(EXE)
	$(RUN) ./check_{name}$(EXE)

size: {name}.o
	size {name}.o

clean:
	rm -f *.o *.so lib{name}.a check_{name} check_{name}.exe

.PHONY: check size clean
"""


def _same_flags(interface: Interface) -> str:
    """Defines the macro of the bitwise check if no flag is given on the command line."""
    if interface.step is None or interface.step.trained is None:
        return ""
    # Portable code has the same bits on every machine.
    flags = ("CFLAGS",) if interface.form.portable else ("ARCH", "CFLAGS")
    origins = "".join(f"$(origin {one})" for one in flags)
    return f"ifeq ({origins},{'file' * len(flags)})\nmain.o: CFLAGS += -D{SAME_FLAGS}\nendif\n"


def _shared(interface: Interface, objects: str) -> str:
    """The rule of the shared library for CasADi, for which all code is position-independent."""
    name = interface.form.name
    sources = f"{name}_casadi.c {objects}"
    return f"""\
CFLAGS += -fPIC -fvisibility=hidden

{name}_casadi.so: {sources} {name}.h
	$(CC) $(ARCH) $(CFLAGS) -shared {sources} -lm -o $@

"""


def cmake(interface: Interface) -> str:
    """CMakeLists.txt."""
    form = interface.form
    name, weights = form.name, weights_source(interface)
    languages = "C ASM" if weights.endswith(".S") else "C"
    flags = " ".join([*architecture(interface), *compile_flags(interface)[1:]])
    included = (
        f"set_source_files_properties({weights} PROPERTIES\n"
        f"    COMPILE_OPTIONS -I${{CMAKE_CURRENT_SOURCE_DIR}} OBJECT_DEPENDS "
        f"${{CMAKE_CURRENT_SOURCE_DIR}}/{name}_weights.bin)\n"
        if weights.endswith(".S")
        else ""
    )
    threads = (
        f"find_package(Threads REQUIRED)\ntarget_link_libraries({name} PUBLIC Threads::Threads)\n"
        if interface.pooled
        else ""
    )
    casadi = (
        f"set_target_properties({name} PROPERTIES POSITION_INDEPENDENT_CODE ON)\n"
        f"add_library({name}_casadi MODULE {name}_casadi.c)\n"
        f'set_target_properties({name}_casadi PROPERTIES PREFIX "")\n'
        f"target_link_libraries({name}_casadi {name})\n"
        if form.casadi
        else ""
    )
    return f"""\
# {name} as a library, for {form.target.name}; `ctest` runs it on a test vector, and
# `cmake --install` installs a package for `find_package({name})`, with the target {name}::{name}.
cmake_minimum_required(VERSION 3.10)
project({name} VERSION {form.version} LANGUAGES {languages})
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(CMAKE_C_STANDARD 11)

add_library({name} STATIC {name}.c {weights})
add_library({name}::{name} ALIAS {name})
target_include_directories({name} PUBLIC $<BUILD_INTERFACE:${{CMAKE_CURRENT_SOURCE_DIR}}>
    $<INSTALL_INTERFACE:${{CMAKE_INSTALL_INCLUDEDIR}}>)
target_compile_options({name} PRIVATE $<$<COMPILE_LANGUAGE:C>:{_listed(flags)}>)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    target_compile_options({name} PRIVATE $<$<COMPILE_LANGUAGE:C>:{_listed(" ".join(GCC_FLAGS))}>)
    if(MINGW)
        target_compile_options({name} PRIVATE $<$<COMPILE_LANGUAGE:C>:{UNALIGNED}>)
    endif()
endif()
{included}{threads}
if(UNIX)
    target_link_libraries({name} PUBLIC m)
endif()
{casadi}
option({name}_check "Build and test check_{name}" ON)
if({name}_check)
    add_executable(check_{name} main.c)
    target_link_libraries(check_{name} {name})
    enable_testing()
    add_test(NAME {name} COMMAND check_{name} WORKING_DIRECTORY ${{CMAKE_CURRENT_SOURCE_DIR}})
endif()

{_install(interface)}"""


def _install(interface: Interface) -> str:
    """The rules that install the library and the files for find_package."""
    form = interface.form
    name = form.name
    threads = (
        "include(CMakeFindDependencyMacro)\nfind_dependency(Threads)\n" if interface.pooled else ""
    )
    weights = (
        f"install(FILES {name}_weights.bin DESTINATION ${{CMAKE_INSTALL_DATADIR}}/{name})\n"
        if form.weights is Weights.FILE
        else ""
    )
    return f"""\
install(TARGETS {name} EXPORT {name} ARCHIVE DESTINATION ${{CMAKE_INSTALL_LIBDIR}})
install(FILES {name}.h {name}.hpp DESTINATION ${{CMAKE_INSTALL_INCLUDEDIR}})
{weights}set(folder ${{CMAKE_INSTALL_LIBDIR}}/cmake/{name})
install(EXPORT {name} FILE {name}-targets.cmake NAMESPACE {name}:: DESTINATION ${{folder}})
file(WRITE ${{CMAKE_CURRENT_BINARY_DIR}}/{name}-config.cmake
    [=[{threads}include(${{CMAKE_CURRENT_LIST_DIR}}/{name}-targets.cmake)]=])
write_basic_package_version_file({name}-config-version.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${{CMAKE_CURRENT_BINARY_DIR}}/{name}-config.cmake
    ${{CMAKE_CURRENT_BINARY_DIR}}/{name}-config-version.cmake DESTINATION ${{folder}})
"""


def _listed(flags: str) -> str:
    return ";".join(
        f"SHELL:{flag}" if "=" in flag and " " in flag else flag for flag in flags.split()
    )
