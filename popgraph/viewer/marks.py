"""Marks in locations, which ride through the passes: from which operations others come."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import FileLineColLoc, NameLoc
from xdsl.ir import Attribute, Operation

from popgraph.passes.analysis.notes import noted, notes

MODULES = "modules"


@dataclass(frozen=True)
class Place:
    """Where a user wrote an operation, and what it is called."""

    name: str = ""
    file: str = ""
    line: int = 0


def mark(op: Operation, stage: str, number: int) -> None:
    """
    Notes which operation of a stage this is, behind the name in its location.

    Passes copy locations whole and look at the name alone, so they do what they would do anyway.
    """
    op.location = noted(op.location, [f"{stage} {number}"])


def marks(op: Operation, stage: str) -> list[int]:
    """The operations of a stage from which an operation, and what it holds, come; its own first."""
    found: dict[int, None] = {}
    for inner in op.walk():
        for text in notes(inner.location):
            kind, _, number = text.partition(" ")
            if kind == stage:
                found.setdefault(int(number))
    return list(found)


def mark_modules(op: Operation, modules: str | None) -> None:
    """Notes which modules an operation is part of, if that is known, as in `mark`."""
    if modules is not None:
        op.location = noted(op.location, [f"{MODULES} {modules}"])


def modules_marked(op: Operation) -> str | None:
    """The modules that are noted on an operation; its own come first."""
    for text in notes(op.location):
        stage, _, modules = text.partition(" ")
        if stage == MODULES:
            return modules
    return None


def place(op: Operation) -> Place:
    """The user's name and line, whatever marks there are."""
    location: Attribute = op.location
    name = location.desc.data if isinstance(location, NameLoc) else ""
    while isinstance(location, NameLoc):
        location = location.location
    if isinstance(location, FileLineColLoc):
        return Place(name, location.filename.data, location.line.data)
    return Place(name)
