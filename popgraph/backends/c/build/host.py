"""Host detection: vectors from the compiler, a preset by processor model, else sysconf."""

from __future__ import annotations

import functools
import os
import platform
import re
import subprocess
from dataclasses import replace
from pathlib import Path

from popgraph.backends.c.build.target import host_target
from popgraph.backends.c.machine.targets import NATIVE, wanted_target
from popgraph.support.errors import BackendError
from popgraph.support.machine import (
    ADDED,
    MACHINES,
    PRESETS,
    TARGETS,
    Machine,
    machine_named,
    preset_of,
)

VARIABLE = "POPGRAPH_MACHINE"
CPUINFO = Path("/proc/cpuinfo")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def host_machine() -> Machine:
    """
    The machine to compile for: caches and rates of the processor, vectors of the compiler.

    `$POPGRAPH_MACHINE` names a preset, which also sets the vectors unless `$POPGRAPH_TARGET` is
    set. A target by name has generic caches and rates, so that it gives the same program on every
    machine.
    """
    name, target = os.environ.get(VARIABLE, "").strip(), wanted_target()
    named = machine_named(name or target) if name or target != NATIVE else None
    if name and named is None:
        known = ", ".join((*MACHINES, *ADDED))
        raise BackendError(f"there is no machine {name!r}", hint=f"{VARIABLE} may be {known}")
    if name and target == NATIVE and named is not None:
        return replace(named, cores=_cores())
    vectors = host_target()
    found = processor(vectors.name) if named is None else named
    vectored = found.with_vectors(vectors.vector_bytes, vectors.registers, vectors.words)
    return replace(vectored, cores=_cores())


@functools.cache
def processor(vectors: str) -> Machine:
    """The preset of this processor, else a generic machine with the reported cache sizes."""
    kind = _kind()
    preset = PRESETS["apple_m1"] if kind == "apple" else None
    if preset is None and isinstance(kind, tuple):
        family, model, arm = kind
        preset = preset_of(family, model, arm=arm)
    return preset or reported(TARGETS[vectors])


def reported(generic: Machine, caches: Path = CACHES) -> Machine:
    """A generic machine with the cache, line and page sizes that the system reports."""
    sizes = {
        "line_bytes": _sysconf("SC_LEVEL1_DCACHE_LINESIZE"),
        "l1_bytes": _sysconf("SC_LEVEL1_DCACHE_SIZE"),
        "l2_bytes": _sysconf("SC_LEVEL2_CACHE_SIZE"),
        "l3_bytes": _l3_share(caches),
        "page_bytes": _sysconf("SC_PAGE_SIZE"),
    }
    found = {name: size for name, size in sizes.items() if size > 0}
    if (ways := _sysconf("SC_LEVEL1_DCACHE_ASSOC")) > 2:
        found["l1_ways_free"] = ways - 2
    source = "no preset for this processor: sizes as the system reports them, generic rates"
    return replace(generic, source=source, **found)  # type: ignore[arg-type]


def _kind() -> tuple[int, int, bool] | str | None:
    """Family and model of an x86 processor, implementer and part of an Arm one, or "apple"."""
    if platform.system() == "Darwin":
        return "apple" if platform.machine() == "arm64" else _darwin_kind()
    if platform.system() == "Windows":
        return windows_kind(platform.processor())
    try:
        text = CPUINFO.read_text().split("\n\n")[0]
    except OSError:
        return None
    return kind_of(text)


def kind_of(cpuinfo: str) -> tuple[int, int, bool] | None:
    """The kind of the first processor in a /proc/cpuinfo; None if it is missing."""
    rows = dict(re.findall(r"^([^\t:]+?)\s*:\s*(.*)$", cpuinfo, re.MULTILINE))
    for names, arm in ((("cpu family", "model"), False), (("CPU implementer", "CPU part"), True)):
        if all(name in rows for name in names):
            first, second = (int(rows[name], 0) for name in names)
            return first, second, arm
    return None


def windows_kind(identifier: str) -> tuple[int, int, bool] | None:
    """The kind in a processor's identifier: "AMD64 Family 25 Model 33 Stepping 0, AuthenticAMD"."""
    found = re.search(r"64 Family (\d+) Model (\d+)\b", identifier)
    return (int(found[1]), int(found[2]), False) if found else None


def _darwin_kind() -> tuple[int, int, bool] | None:
    """Family and model of an Intel processor in a Mac."""
    names = ("machdep.cpu.family", "machdep.cpu.model")
    try:
        done = subprocess.run(
            ["sysctl", "-n", *names], capture_output=True, text=True, check=True, timeout=5
        )
        family, model = map(int, done.stdout.split())
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return family, model, False


def _sysconf(name: str) -> int:
    """A value of sysconf; 0 if unknown."""
    try:
        return max(0, os.sysconf(name))
    except (OSError, ValueError, AttributeError):
        return 0


def _l3_share(caches: Path) -> int:
    """Half of the core's L3, since other cores share it; 0 if unknown."""
    for index in sorted(caches.glob("index*")):
        try:
            if (index / "level").read_text().strip() == "3":
                size = re.fullmatch(r"(\d+)K", (index / "size").read_text().strip())
                return int(size[1]) * 1024 // 2 if size else 0
        except OSError:
            continue
    return 0


def _cores() -> int:
    return os.cpu_count() or 1
