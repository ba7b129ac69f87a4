"""The targets of exported C: machine, compiler and flags."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from popgraph.backends.c.build.host import host_machine
from popgraph.backends.c.build.toolchain import WIDE, candidates, probe
from popgraph.support import extensions
from popgraph.support.errors import BackendError
from popgraph.support.machine import (
    ADDED,
    EMBEDDED,
    TARGETS,
    AddedTarget,
    Machine,
    added_target,
)

HERE = "native"


@dataclass(frozen=True)
class Build:
    """The facts of a compiler on which the bits of results depend, for a check in C."""

    version: str = ""
    """The macro `__VERSION__`."""
    condition: str = "0"
    """A condition of the preprocessor: the extensions of the instruction set are the same."""

    @staticmethod
    def of(macros: str) -> Build:
        """The facts in a compiler's predefined macros."""
        words = (line.split(None, 2) for line in macros.splitlines())
        known = {word[1]: word[2] if len(word) > 2 else "" for word in words if len(word) > 1}
        terms = [f"{'' if one in known else '!'}defined({one})" for one in _EXTENSIONS]
        return Build(known.get("__VERSION__", "").strip('"'), " && ".join(terms))


_EXTENSIONS = (
    *("__FMA__", "__SSE4_2__", "__AVX__", "__AVX2__", "__AVX512F__", "__AVX512BF16__"),
    *("__AVXVNNI__", "__AVX512VNNI__", "__F16C__", "__ARM_NEON", "__ARM_FEATURE_FMA"),
    *("__ARM_FEATURE_DOTPROD", "__ARM_FEATURE_BF16", "__clang__", "__x86_64__", "__aarch64__"),
)
"""Macros of compilers and instructions that decide which operations are fused."""


@dataclass(frozen=True)
class ExportTarget:
    """A target of exported C."""

    name: str
    machine: Machine
    flags: tuple[str, ...]
    """The flags of GCC and Clang that select it."""
    zig: tuple[str, ...] = ()
    """The flags of `zig cc`, a cross compiler for any machine."""
    compiler: str = "cc"
    optimize: str = "speed"
    """The usual goal of programs for it, see `Options.optimize`."""
    build: Build = Build()
    """The compiler of this machine, for the native target."""


_FOREIGN: Mapping[str, ExportTarget] = {
    one.name: one
    for one in (
        ExportTarget(
            "x86-64-v2",
            TARGETS["sse2"],
            ("-march=x86-64-v2",),
            ("-target", "x86_64-linux-musl", "-mcpu=x86_64_v2"),
        ),
        ExportTarget(
            "x86-64-v3",
            TARGETS["avx2"],
            ("-march=x86-64-v3", WIDE["__AVX__"]),
            ("-target", "x86_64-linux-musl", "-mcpu=x86_64_v3", WIDE["__AVX__"]),
        ),
        ExportTarget(
            "x86-64-v4",
            TARGETS["avx512"],
            ("-march=x86-64-v4", WIDE["__AVX512F__"]),
            ("-target", "x86_64-linux-musl", "-mcpu=x86_64_v4", WIDE["__AVX512F__"]),
        ),
        ExportTarget(
            "aarch64",
            TARGETS["neon"],
            ("-march=armv8-a",),
            ("-target", "aarch64-linux-musl"),
            "aarch64-linux-gnu-gcc",
        ),
        ExportTarget(
            "armv7e-m",
            EMBEDDED["armv7e-m"],
            ("-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard"),
            ("-target", "thumb-linux-musleabihf", "-mcpu=cortex_m4"),
            "arm-none-eabi-gcc",
            "size",
        ),
        ExportTarget(
            "riscv64",
            EMBEDDED["riscv64"],
            ("-march=rv64gc",),
            ("-target", "riscv64-linux-musl"),
            "riscv64-linux-gnu-gcc",
        ),
        ExportTarget(
            "wasm32",
            EMBEDDED["wasm32"],
            ("--target=wasm32-wasi", "-msimd128"),
            ("-target", "wasm32-wasi", "-mcpu=generic+simd128"),
            "clang",
        ),
    )
}

NAMES = (HERE, *_FOREIGN)
"""The built-in targets of `popgraph export --target`."""


SPELLINGS = {"wasm": "wasm32"}
"""Shorter spellings of targets."""


def target_of(name: str) -> ExportTarget:
    """The target of a name; only the native one probes a compiler."""
    if name == HERE:
        return _native()
    if name in _FOREIGN:
        return _FOREIGN[name]
    added = added_target(name)
    if added is None:
        installed = (point.name for point in extensions.entry_points(extensions.TARGETS))
        known = dict.fromkeys([*NAMES, *ADDED, *installed])
        raise BackendError(
            f"there is no target {name!r}", "--target", f"use one of {', '.join(known)}"
        )
    return _from_outside(added)


def _from_outside(added: AddedTarget) -> ExportTarget:
    """The target that an extension registered, with its first spelling of flags."""
    flags = shlex.split(added.flags[0]) if added.flags else []
    return ExportTarget(added.machine.name, added.machine, tuple(flags), (), added.compiler)


def _native() -> ExportTarget:
    """This machine, with the compiler and flags that PopGraph would use."""
    for compiler in candidates():
        found = probe(compiler)
        if not found.reason:
            build = Build.of(found.macros)
            return ExportTarget(HERE, host_machine(), found.flags, (), compiler.name, build=build)
    return ExportTarget(HERE, host_machine(), ("-march=native",))
