"""
The places of calls in the user's program, and what is noted of a program from
`initializePoplarDebugInfo` to `closePoplarDebugInfo`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import Path
from types import FrameType

from xdsl.dialects.builtin import FileLineColLoc, IntAttr, StringAttr

from popgraph.builder.opset.arguments import typed

PACKAGE = __name__.partition(".")[0]
COLUMN = IntAttr(0)
"""Unknown."""


def caller() -> FrameType | None:
    """The innermost caller outside of this package, if there is one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
        frame = frame.f_back
    return frame


def place_of_call() -> FileLineColLoc | None:
    """Its line."""
    frame = caller()
    return None if frame is None else _place(frame.f_code.co_filename, frame.f_lineno)


@lru_cache(4096)
def _place(file: str, line: int) -> FileLineColLoc:
    """Made once: what builds a model calls the same lines again and again."""
    return FileLineColLoc(_text(file), IntAttr(line), COLUMN)


@lru_cache(64)
def _text(file: str) -> StringAttr:
    return StringAttr(file)


Json = bool | int | float | str | list["Json"] | dict[str, "Json"]

_IDS = count(1)


def new_id() -> int:
    """The number of a layer's entry; no other has it in this process."""
    return next(_IDS)


@typed
@dataclass(frozen=True)
class SourceLocation:
    """A place in a program."""

    functionName: str = ""
    fileName: str = ""
    lineNumber: int = 0


def location_of_call() -> SourceLocation | None:
    """The line outside of this package that called it, if there is one."""
    frame = caller()
    if frame is None:
        return None
    return SourceLocation(frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno)


@dataclass
class DebugInfos:
    """
    The entries, in the form that Poplar gives them: `contexts`, and a table of texts.

    An entry has a number, the layer that made it, a name and a place if they are known, the number
    of the entry of the layer above if there is one, and the values that the layer tells.
    """

    path: Path
    format: str
    made_by: dict[str, int] = field(default_factory=dict)
    """By the id of a tensor, the last entry of what made it."""
    _contexts: list[tuple[dict[str, Json], Mapping[str, Json]]] = field(default_factory=list)
    _texts: dict[str, int] = field(default_factory=dict)

    def add(
        self,
        layer: str,
        values: Mapping[str, Json],
        *,
        number: int | None = None,
        name: str = "",
        parent: int | None = None,
        location: SourceLocation | None = None,
    ) -> int:
        """Adds an entry, whose values may still change; its number."""
        entry: dict[str, Json] = {"id": number or new_id(), "layer": layer}
        if name:
            entry["name"] = name
        if parent is not None:
            entry["parentId"] = parent
        if location is not None:
            entry["location"] = {
                "functionName": self._index(location.functionName),
                "fileName": self._index(location.fileName),
                "lineNumber": location.lineNumber,
            }
        self._contexts.append((entry, values))
        return int(str(entry["id"]))

    def _index(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))

    def content(self) -> dict[str, Json]:
        contexts: list[Json] = [{**entry, **values} for entry, values in self._contexts]
        return {"contexts": contexts, "stringTable": list[Json](self._texts)}

    def add_call(self, context: object, values: Mapping[str, Json], number: int) -> None:
        """Adds an entry of a builder's call, which may have a DebugContext, or a name."""
        above = getattr(context, "debugInfo", None)
        self.add(
            "popartbuilder",
            values,
            number=number,
            name=context if isinstance(context, str) else getattr(context, "name", ""),
            parent=None if above is None else above.getId(),
            location=getattr(context, "location", None) or location_of_call(),
        )


_open: list[DebugInfos] = []


def being_written() -> DebugInfos | None:
    """Where entries go, if anybody wants them."""
    return _open[-1] if _open else None


def begin(path: str | Path, format: str) -> None:
    """Notes entries from now on, for this file."""
    _open[:] = [DebugInfos(Path(path), format)]


def end() -> DebugInfos | None:
    """Notes no more; what was noted."""
    return _open.pop() if _open else None
