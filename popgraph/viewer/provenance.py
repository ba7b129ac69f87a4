"""Marks in locations, kept by passes: they trace operations back to their sources."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import FileLineColLoc, NameLoc
from xdsl.ir import Attribute, Operation

from popgraph.passes.analysis.notes import noted, notes

MODULES_STAGE = "modules"


@dataclass(frozen=True)
class SourceLine:
    """The name and the source line that a user gave an operation."""

    name: str = ""
    file: str = ""
    line: int = 0


def mark(op: Operation, stage: str, number: int) -> None:
    """
    Appends a mark, stage and number, to the location of an operation.

    Passes copy locations whole and read only their first name, so marks do not affect them.
    """
    op.location = noted(op.location, [f"{stage} {number}"])


def origins(op: Operation, stage: str) -> list[int]:
    """
    Numbers of the operations of a stage from which an operation and its body come, its own first.
    """
    found: dict[int, None] = {}
    for inner in op.walk():
        for text in notes(inner.location):
            kind, _, number = text.partition(" ")
            if kind == stage:
                found.setdefault(int(number))
    return list(found)


def mark_modules(op: Operation, modules: str | None) -> None:
    """Appends the PyTorch modules of an operation to its location, if known."""
    if modules is not None:
        op.location = noted(op.location, [f"{MODULES_STAGE} {modules}"])


def modules_marked(op: Operation) -> str | None:
    """The modules in the marks of an operation."""
    for text in notes(op.location):
        stage, _, modules = text.partition(" ")
        if stage == MODULES_STAGE:
            return modules
    return None


def source_line(op: Operation) -> SourceLine:
    """The user's name and line of an operation, ignoring marks."""
    location: Attribute = op.location
    name = location.desc.data if isinstance(location, NameLoc) else ""
    while isinstance(location, NameLoc):
        location = location.location
    if isinstance(location, FileLineColLoc):
        return SourceLine(name, location.filename.data, location.line.data)
    return SourceLine(name)
