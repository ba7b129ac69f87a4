"""`popgraph doctor`: checks the machine, or the nodes of a model."""

from __future__ import annotations

import platform
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from popgraph.cli.options import Folders, Values
from popgraph.support.machine import Machine, unit_of

if TYPE_CHECKING:
    from popgraph.passes.onnx.diagnose import Diagnosis

PACKAGES = ("popgraph", "onnx", "numpy", "xdsl", "lark", "ml_dtypes")


def command(
    model: Annotated[
        Path | None,
        typer.Argument(help="An .onnx or .pgraph file; by default, the machine is checked."),
    ] = None,
    dim: Annotated[
        list[str] | None, typer.Option(metavar="N=4", help="Size of a symbolic dimension.")
    ] = None,
    value: Values = None,
    folders: Folders = None,
) -> None:
    """
    Check this machine, or the nodes of a model.

    \b
    popgraph doctor                     compilers, vectors, cache, versions, extensions
    popgraph doctor model.onnx          the nodes that compile, and why others do not
    popgraph doctor model.onnx --dim N=4

    The model is not compiled. Nodes that Python computes are listed with the reason. A node that
    cannot be computed is an error; all of them are reported. Exits with status 1 then, and also if
    no C compiler works; the reference backend needs none.
    """
    if model is not None:
        _of_model(model, dim, value)
        return
    _of_machine()


def _of_model(path: Path, dim: list[str] | None, value: list[str] | None) -> None:
    from popgraph.cli import models
    from popgraph.passes.onnx.diagnose import diagnose
    from popgraph.support.errors import combined

    module, compilation, _ = models.opened(path, dim, value, static=False)
    found = diagnose(module, compilation.weights)
    typer.echo(_node_table(found))
    if found.refused:
        raise combined(found.refused)


def _node_table(found: Diagnosis) -> str:
    """Counts of nodes, and a row per reason for which Python computes some."""
    from popgraph.passes.onnx.diagnose import kinds
    from popgraph.support.tables import table

    refused = len({one.where for one in found.refused})
    rows = [
        ("nodes", str(found.nodes)),
        ("compile", str(found.compiled)),
        ("computed by Python", str(len(found.hosted))),
        ("cannot be compiled", str(refused)),
    ]
    parts = [table(rows)]
    if found.hosted:
        parts.append(
            table(
                [
                    (f"{len(places)} x {name}", places[0], reason)
                    for (name, reason), places in kinds(found.hosted).items()
                ]
            )
        )
    if found.is_open:
        parts.append(
            "Shapes or structures are not known: of some nodes only the operators were looked at.\n"
            "--dim N=4 and --value shape=2,3 tell them."
        )
    return "\n\n".join(parts)


def _of_machine() -> None:
    from popgraph.backends.registry import DEFAULT, backend_named
    from popgraph.support.extensions import GROUPS, entry_points, title
    from popgraph.support.tables import table

    backend = backend_named(DEFAULT)
    health, machine = backend.health(), backend.machine()
    rows: list[tuple[str, ...]] = [
        *health.rows,
        ("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        *((name, _version(name)) for name in PACKAGES),
        *(("extension", title(point)) for group in GROUPS for point in entry_points(group)),
    ]
    typer.echo(table(rows))
    if machine is not None:
        typer.echo()
        typer.echo(table(_facts(machine)))
    if health.trouble is not None:
        raise health.trouble


def _facts(machine: Machine) -> list[tuple[str, ...]]:
    """The machine model: field, value, unit; the first row has the preset and its origin."""
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
