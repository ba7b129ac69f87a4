"""`popgraph doctor`: does everything that PopGraph needs work on this machine?"""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

import typer

PACKAGES = ("popgraph", "onnx", "numpy", "xdsl", "lark", "ml_dtypes")


def command() -> None:
    """
    Show what PopGraph finds on this machine: compilers, vectors, cache, versions.

    Ends with exit code 1 when no C compiler works; the reference backend still does then.
    """
    from popgraph.backends.c.build.target import host_target
    from popgraph.backends.c.build.toolchain import candidates, no_compiler, probe
    from popgraph.backends.c.cache.folder import cache_directory
    from popgraph.cli.report import table

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
        ("cores", str(os.cpu_count())),
        ("cache", str(cache_directory())),
        ("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        *((name, _version(name)) for name in PACKAGES),
    ]
    typer.echo(table(rows))
    if not working:
        raise no_compiler(tried)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
