"""The state of the C backend on this machine: compilers, vectors, caches."""

from __future__ import annotations

from popgraph.backends.c.build.target import host_target
from popgraph.backends.c.build.toolchain import candidates, no_compiler, probe
from popgraph.backends.c.cache.folder import cache_directory
from popgraph.backends.interface import Health


def health() -> Health:
    """The working compilers, the vectors and the cache folder."""
    rows: list[tuple[str, ...]] = []
    tried, working = [], []
    for compiler in candidates():
        found = probe(compiler)
        reason = found.reason.splitlines()[0] if found.reason else ""
        rows.append((f"compiler {compiler.name}", reason or f"works ({' '.join(found.flags)})"))
        tried.append(f"{compiler.name} ({reason})")
        working += [] if reason else [compiler.name]
    target = host_target()
    rows += [
        ("compiler used", working[0] if working else "none"),
        ("vectors", f"{target.name}: {target.vector_bytes} bytes, {target.registers} registers"),
        ("cache", str(cache_directory())),
    ]
    return Health(rows, None if working else no_compiler(tried))
