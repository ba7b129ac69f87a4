"""`popgraph doctor`: reports compilers, vector width, cache and package versions."""

from __future__ import annotations

import platform
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version

import typer

from popgraph.support.machine import Machine, unit_of

PACKAGES = ("popgraph", "onnx", "numpy", "xdsl", "lark", "ml_dtypes")


def command() -> None:
    """
    Show what PopGraph finds on this machine: compilers, vectors, cache, versions.

    Ends with exit code 1 when no C compiler works; the reference backend still does then.
    """
    from popgraph.backends.c.build.host import host_machine
    from popgraph.backends.c.build.target import host_target
    from popgraph.backends.c.build.toolchain import candidates, no_compiler, probe
    from popgraph.backends.c.cache.folder import cache_directory
    from popgraph.support.tables import table

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
        ("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        *((name, _version(name)) for name in PACKAGES),
    ]
    typer.echo(table(rows))
    typer.echo()
    typer.echo(table(_facts(host_machine())))
    if not working:
        raise no_compiler(tried)


def _facts(machine: Machine) -> list[tuple[str, ...]]:
    """What decisions about this machine rest on: field, value, unit; first, which preset, why."""
    rows: list[tuple[str, ...]] = [("machine", machine.name, machine.source)]
    for each in fields(machine):
        if each.name not in ("name", "source"):
            rows.append((each.name, str(getattr(machine, each.name)), unit_of(each.name)))
    return rows


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
