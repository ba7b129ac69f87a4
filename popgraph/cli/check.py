"""`popgraph check`: what is wrong with .pgraph texts?"""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from popgraph.builder.dsl.diagnostics import Diagnostic


class Format(StrEnum):
    text = "text"
    json = "json"


def command(
    files: Annotated[list[Path], typer.Argument(help=".pgraph files.", metavar="FILES")],
    format: Annotated[Format, typer.Option(help="How to say it.")] = Format.text,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as mistakes.")] = False,
) -> None:
    """
    Check .pgraph texts: names, operators, attributes, shapes and element types.

    \b
    popgraph check net.pgraph
    popgraph check *.pgraph --format json

    All mistakes are shown, and warnings: names that nothing uses. Ends with 1 when there is a
    mistake. JSON is a list of objects with file, line, column, end_line, end_column, severity,
    message and hint; lines and columns count from 1, ends are exclusive.
    """
    from popgraph.builder.dsl.diagnostics import checked
    from popgraph.builder.dsl.document import read_text

    found: list[Diagnostic] = []
    for path in files:
        found += checked(read_text(path), str(path)).diagnostics
    if format is Format.json:
        print(json.dumps([one.as_json() for one in found], indent=2))
    else:
        for one in found:
            print(f"{one.severity}: {one.shown}\n")
        if found:
            print(_counted(found))
    if any(one.severity == "error" or strict for one in found):
        raise typer.Exit(1)


def _counted(found: list[Diagnostic]) -> str:
    """`2 errors, 1 warning`."""
    counts = {kind: sum(one.severity == kind for one in found) for kind in ("error", "warning")}
    return ", ".join(
        f"{count} {kind}{'s' * (count != 1)}" for kind, count in counts.items() if count
    )
