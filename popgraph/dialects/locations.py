"""Locations of operations in the user's words: a name, and the line where it was written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from xdsl.dialects.builtin import FileLineColLoc, NameLoc
from xdsl.ir import Attribute, Operation

GRADIENT = "gradient"
"""Note on operations that compute a gradient; their name is that of the forward operation."""


def notes(location: Attribute) -> Iterator[str]:
    """The notes in a location: texts after the name of the operation."""
    inner = location.location if isinstance(location, NameLoc) else None
    while isinstance(inner, NameLoc):
        yield inner.desc.data
        inner = inner.location


def source(location: Attribute | None) -> str:
    """The user's name of an operation, without notes, followed by its source line."""
    match location:
        case NameLoc():
            place: Attribute = location.location
            while isinstance(place, NameLoc):
                place = place.location
            return f"{location.desc.data}  {source(place)}".strip()
        case FileLineColLoc():
            return f"{Path(location.filename.data).name}:{location.line.data}"
    return ""


def origin(op: Operation) -> str:
    """The origin of an operation for messages: `node 'name'`, or an empty text."""
    location = op.location
    return f"node {location.desc.data!r}" if isinstance(location, NameLoc) else ""
