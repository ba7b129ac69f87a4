"""`popgraph ops`: lists ONNX operators that can be compiled, or operations of a level."""

from __future__ import annotations

import inspect
from enum import StrEnum
from typing import Annotated

import typer

from popgraph.cli.options import LEVELS, Level
from popgraph.cli.options import level as ir_level
from popgraph.support.errors import UnsupportedError
from popgraph.support.names import closest


class Dialect(StrEnum):
    """Dialects of the IR that are PopGraph's own."""

    PG = "pg"
    GRAPHCORE = "graphcore"
    TILE = "tile"


ABOUT = {
    Level.ONNX: "Operators of ONNX and PopART that compile, and in which versions. Others work, "
    "too, where ONNX defines them by a function of these. Python computes operators whose results "
    "are as large as the data say, and those on sequences, optionals, maps and strings.",
    Level.GRAPHCORE: "What a network computes.",
    Level.STRUCTURED: "How it is computed: index maps, layouts and schedules.",
    Level.LOOPS: "How it is computed: loops written out.",
    Level.PROGRAM: "How it is computed: calls on buffers.",
}


def command(
    pattern: Annotated[str, typer.Argument(help="Only those with this in their name.")] = "",
    level: Annotated[
        Level, typer.Option(parser=ir_level, metavar=LEVELS, help="Whose operators.")
    ] = Level.ONNX,
    dialect: Annotated[
        Dialect | None, typer.Option(help="The reference of a whole dialect, in Markdown.")
    ] = None,
    markdown: Annotated[bool, typer.Option(help="As the page docs/ops.md.")] = False,
) -> None:
    """
    List operators: those of ONNX that can be compiled, or those of an IR level.

    \b
    popgraph ops conv
    popgraph ops --level graphcore
    popgraph ops --dialect tile
    """
    if dialect is not None:
        from popgraph.cli.dialect_page import page
        from popgraph.dialects.registry import OWN

        typer.echo(page(OWN[dialect]()), nl=False)
        return
    from popgraph.cli.report import markdown_page
    from popgraph.support.tables import table

    rows = _onnx() if level == Level.ONNX else _own(level)
    found = [row for row in rows if pattern.lower() in row[0].lower()]
    if not found:
        raise _none(pattern, rows)
    if markdown:
        columns = ("operator", "versions" if level == Level.ONNX else "meaning")
        typer.echo(markdown_page("Operators", ABOUT[level], columns, found))
    else:
        typer.echo(table(found))


def _none(pattern: str, rows: list[tuple[str, ...]]) -> UnsupportedError:
    """The error for a name that no operator has a part of."""
    close = closest(pattern, [row[0] for row in rows])
    return UnsupportedError(
        f"no operator here has {pattern!r} in its name",
        hint=f"the closest is {close}" if close else "`popgraph ops` lists them",
    )


def _onnx() -> list[tuple[str, ...]]:
    from popgraph.passes.onnx.partition import DATA_DECIDE_SIZES, LOOKED_UP, OF_TEXT
    from popgraph.passes.onnx.to_graphcore import supported_operators

    rows = [
        (f"{domain}.{name}" if domain else name, ", ".join(map(str, versions)))
        for (domain, name), versions in supported_operators().items()
    ]
    hosted = sorted(DATA_DECIDE_SIZES | LOOKED_UP | OF_TEXT)
    return [*rows, *((name, "in Python") for name in hosted)]


def _own(level: Level) -> list[tuple[str, ...]]:
    from popgraph.dialects import tile
    from popgraph.dialects.graphcore import GRAPHCORE

    operations = {
        Level.GRAPHCORE: GRAPHCORE.operations,
        Level.STRUCTURED: tile.STRUCTURED,
        Level.LOOPS: (*tile.LOOPS, *tile.LANES),
        Level.PROGRAM: tile.PROGRAM,
    }[level]
    return [
        (operation.name, (inspect.getdoc(operation) or "").strip().split("\n")[0])
        for operation in sorted(operations, key=lambda operation: operation.name)
    ]
