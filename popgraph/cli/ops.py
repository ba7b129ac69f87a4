"""`popgraph ops`: which operators are known, and which can be compiled?"""

from __future__ import annotations

import inspect
from enum import StrEnum
from typing import Annotated

import typer


class Level(StrEnum):
    """Whose operators."""

    ONNX = "onnx"
    GRAPHCORE = "graphcore"
    TILE = "tile"


def command(
    pattern: Annotated[str, typer.Argument(help="Only those with this in their name.")] = "",
    level: Annotated[Level, typer.Option(help="Whose operators.")] = Level.ONNX,
) -> None:
    """
    List operators: those of ONNX that can be compiled, or those of an IR level.

    \b
    popgraph ops conv
    popgraph ops --level graphcore
    """
    from popgraph.cli.report import table

    rows = _onnx() if level == Level.ONNX else _own(level.value)
    typer.echo(table([row for row in rows if pattern.lower() in row[0].lower()]))


def _onnx() -> list[tuple[str, ...]]:
    from popgraph.passes.onnx_to_graphcore import supported_operators

    return [
        (f"{domain}.{name}" if domain else name, ", ".join(map(str, versions)))
        for (domain, name), versions in supported_operators().items()
    ]


def _own(level: str) -> list[tuple[str, ...]]:
    from popgraph.dialects.registry import OWN

    return [
        (operation.name, (inspect.getdoc(operation) or "").strip().split("\n")[0])
        for operation in sorted(OWN[level]().operations, key=lambda operation: operation.name)
    ]
