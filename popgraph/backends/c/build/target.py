"""Target detection: vector width and register count by the compiler's macros."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from popgraph.backends.c.build.toolchain import candidates, probe
from popgraph.backends.c.cache.folder import cache_directory
from popgraph.backends.c.machine.key import machine
from popgraph.backends.c.machine.targets import NATIVE, wanted_target
from popgraph.support.cache_files import digest, read_sealed, write_sealed
from popgraph.support.machine import AVX2, BF16, BYTES, DOTPROD, PAIRS, VNNI, machine_named


@dataclass(frozen=True)
class Target:
    """The vector properties of a target, which passes get as options."""

    name: str
    vector_bytes: int
    registers: int
    words: tuple[str, ...] = ()
    """The packed dot products of its vectors, see `Machine.words`."""


BASELINE = Target("baseline", 16, 16)

_BY_MACRO = (
    ("__AVX512F__", Target("avx512", 64, 32, BYTES)),
    ("__AVX2__", Target("avx2", 32, 16, AVX2)),
    ("__AVX__", Target("avx", 32, 16)),
    ("__SSE2__", Target("sse2", 16, 16, PAIRS)),
    ("__ARM_NEON", Target("neon", 16, 32)),
)
"""The target by the first macro that the compiler defines."""

_WORDS = (
    ("__AVX512BF16__", BF16),
    ("__AVX512VNNI__", VNNI),
    ("__AVXVNNI__", VNNI),
    ("__ARM_FEATURE_DOTPROD", DOTPROD),
)
"""Packed dot products by the first defined macro; the target has defaults."""

_KNOWN = frozenset(macro for macro, _ in (*_WORDS, *_BY_MACRO))

_BY_NAME = {target.name: target for _, target in _BY_MACRO}


def from_macros(macros: str) -> Target:
    """The target that a compiler's predefined macros describe."""
    return _with(_defined(macros))


def _defined(macros: str) -> set[str]:
    return {line.split()[1] for line in macros.splitlines() if line.startswith("#define ")}


def _with(defined: set[str]) -> Target:
    """The target of a compiler that defines these macros."""
    found = next((target for macro, target in _BY_MACRO if macro in defined), BASELINE)
    words = next((words for macro, words in _WORDS if macro in defined), found.words)
    return replace(found, words=words)


def host_target() -> Target:
    """
    The target in `$POPGRAPH_TARGET`, else that of the compiler that would be used.

    The compiler's target is cached on disk, so that it is probed once. Without a working compiler,
    the cached target of this machine is used, else a baseline.
    """
    if (name := wanted_target()) != NATIVE:
        return _BY_NAME.get(name) or _from_outside(name)
    folder = cache_directory() / "targets" / machine() / digest(*sorted(_KNOWN))
    for compiler in candidates():
        remembered = _read(folder / f"{compiler.identity}.json")
        if remembered is not None:
            return remembered
        found = probe(compiler)
        if not found.reason:
            _write(folder / f"{compiler.identity}.json", found.macros)
            return from_macros(found.macros)
    for file in sorted(folder.glob("*.json")):
        remembered = _read(file)
        if remembered is not None:
            return remembered
    return BASELINE


def _from_outside(name: str) -> Target:
    machine = machine_named(name)
    assert machine is not None, "wanted_target has looked it up"
    return Target(name, machine.vector_bytes, machine.registers, machine.words)


def _read(file: Path) -> Target | None:
    """The target of cached macros."""
    try:
        return _with({*json.loads(read_sealed(file))["macros"]})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write(file: Path, macros: str) -> None:
    """Caches the relevant macros, not the target, which may change with this package."""
    with suppress(OSError):
        write_sealed(file, json.dumps({"macros": sorted(_KNOWN & _defined(macros))}).encode())
