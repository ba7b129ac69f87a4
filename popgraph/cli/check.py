"""`popgraph check`: reports the errors of `.pgraph` texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from popgraph.cli.options import Folders
from popgraph.support.errors import ErrorGroup, PopgraphError

if TYPE_CHECKING:
    from popgraph.builder.pgraph import Document
    from popgraph.builder.pgraph.tools.diagnostics import Diagnostic


class Format(StrEnum):
    text = "text"
    json = "json"


def command(
    files: Annotated[list[Path], typer.Argument(help=".pgraph files.", metavar="FILES")],
    format: Annotated[Format, typer.Option(help="How to say it.")] = Format.text,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as mistakes.")] = False,
    folders: Folders = None,
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
    from popgraph.builder.pgraph.syntax.text_files import read_text
    from popgraph.builder.pgraph.tools.diagnostics import checked

    found: list[Diagnostic] = []
    unread: list[PopgraphError] = []
    for path in files:
        try:
            text = read_text(path)
        except PopgraphError as error:
            unread.append(error)
            continue
        result = checked(text, str(path))
        found += result.diagnostics
        if result.document is not None:
            found += _optimizers(str(path), result.document)
    if format is Format.json:
        print(json.dumps([one.as_json() for one in found], indent=2))
    else:
        for one in found:
            print(f"{one.severity}: {one.shown}\n")
        if found:
            print(_counted(found))
    if unread:
        raise ErrorGroup(unread)
    if any(one.severity == "error" or strict for one in found):
        raise typer.Exit(1)


def _optimizers(filename: str, document: Document) -> Iterator[Diagnostic]:
    """What is wrong with the optimizers of a text, which sessions know and texts do not."""
    calls = [section.optimizer for section in document.trainings.values() if section.optimizer]
    if not calls:
        return
    from popgraph.builder.pgraph.tools.diagnostics import Diagnostic
    from popgraph.session.optimizer_of_rule import popart_optimizer
    from popgraph.training.update_rule import optimizer_of

    for call in calls:
        try:
            popart_optimizer(optimizer_of(call))
        except PopgraphError as error:
            shown = str(PopgraphError(error.what, error.where or call.where, error.hint))
            yield Diagnostic(filename, call.span, "error", error.what, error.hint, shown)


def _counted(found: list[Diagnostic]) -> str:
    """`2 errors, 1 warning`."""
    counts = {kind: sum(one.severity == kind for one in found) for kind in ("error", "warning")}
    return ", ".join(
        f"{count} {kind}{'s' * (count != 1)}" for kind, count in counts.items() if count
    )
