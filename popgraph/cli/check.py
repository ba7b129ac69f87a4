"""`popgraph check`: reports the errors of `.pgraph` texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from popgraph.cli.options import Folders
from popgraph.support.errors import ErrorGroup, PopgraphError

if TYPE_CHECKING:
    from popgraph.builder.pgraph import Document
    from popgraph.builder.pgraph.syntax.tree import Span
    from popgraph.builder.pgraph.tools.diagnostics import Diagnostic


class Format(StrEnum):
    text = "text"
    json = "json"


def command(
    files: Annotated[list[Path], typer.Argument(help=".pgraph files.", metavar="FILES")],
    format: Annotated[
        Format, typer.Option(case_sensitive=False, help="Output format.")
    ] = Format.text,
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as errors.")] = False,
    folders: Folders = None,
) -> None:
    """
    Check .pgraph texts: names, operators, attributes, shapes and element types.

    \b
    popgraph check net.pgraph
    popgraph check *.pgraph --format json

    Reports all errors and warnings. Warnings are names that nothing uses, and nodes that are valid
    ONNX but cannot be compiled (`popgraph doctor` says more). Exits with status 1 if there is an
    error. JSON is a list of objects with file, line, column, end_line, end_column, severity,
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
            found += _refused(str(path), text, result.document)
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
    """Errors in the optimizers of a text, which are checked as sessions check them."""
    calls = [section.optimizer for section in document.trainings.values() if section.optimizer]
    if not calls:
        return
    from popgraph.builder.pgraph.tools.diagnostics import Diagnostic
    from popgraph.popart.api.optimizers import popart_optimizer
    from popgraph.training.update_rule import optimizer_of

    for call in calls:
        try:
            popart_optimizer(optimizer_of(call))
        except PopgraphError as error:
            shown = str(PopgraphError(error.what, error.where or call.where, error.hint))
            yield Diagnostic(filename, call.span, "error", error.what, error.hint, shown)


def _refused(filename: str, text: str, document: Document) -> Iterator[Diagnostic]:
    """Nodes that are valid ONNX but cannot be compiled: one warning per cause."""
    from popgraph.builder.pgraph.tools.diagnostics import Diagnostic
    from popgraph.passes.onnx.diagnose import diagnose
    from popgraph.support.errors import combined

    for module in document.graphs.values():
        refused = diagnose(module, document.weights).refused
        if not refused:
            continue
        error = combined(refused)
        for one in error.errors if isinstance(error, ErrorGroup) else (error,):
            span = _place(text, one.where)
            shown = str(PopgraphError(one.what, f"{filename}:{span.line}, {one.where}", one.hint))
            yield Diagnostic(filename, span, "warning", one.what, one.hint, shown)


def _place(text: str, where: str) -> Span:
    """
    The position at which the named value of a node is defined; the first character if not found.
    """
    from popgraph.builder.pgraph.syntax.tree import Span

    name = re.search(r"node '(\w+)'", where)
    for number, line in enumerate(text.splitlines(), 1):
        found = re.search(rf"\b{name[1]}\b(?=[^=]*=)", line) if name else None
        if found:
            return Span(number, found.start() + 1, number, found.end() + 1)
    return Span(1, 1, 1, 1)


def _counted(found: list[Diagnostic]) -> str:
    """`2 errors, 1 warning`."""
    counts = {kind: sum(one.severity == kind for one in found) for kind in ("error", "warning")}
    return ", ".join(
        f"{count} {kind}{'s' * (count != 1)}" for kind, count in counts.items() if count
    )
