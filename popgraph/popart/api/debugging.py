"""
PopART's debug information: source locations of calls, and the entries recorded between
`initializePoplarDebugInfo` and `closePoplarDebugInfo`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import Path
from types import FrameType

from xdsl.dialects.builtin import FileLineColLoc, IntAttr, StringAttr

from popgraph.builder.opset.arguments import typed
from popgraph.popart.exceptions import as_popart_errors, popart_exception
from popgraph.support.cbor import to_cbor
from popgraph.support.writing import write_file

PACKAGE = __name__.partition(".")[0]
COLUMN = IntAttr(0)
"""Unknown."""


def caller() -> FrameType | None:
    """The innermost caller outside of this package, if any."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
        frame = frame.f_back
    return frame


def place_of_call() -> FileLineColLoc | None:
    """The source location of that caller."""
    frame = caller()
    return None if frame is None else _place(frame.f_code.co_filename, frame.f_lineno)


@lru_cache(4096)
def _place(file: str, line: int) -> FileLineColLoc:
    """Cached, because programs call the builder from the same lines repeatedly."""
    return FileLineColLoc(_text(file), IntAttr(line), COLUMN)


@lru_cache(64)
def _text(file: str) -> StringAttr:
    return StringAttr(file)


Json = bool | int | float | str | list["Json"] | dict[str, "Json"]

_IDS = count(1)


def new_id() -> int:
    """A process-wide unique number of an entry."""
    return next(_IDS)


@typed
@dataclass(frozen=True)
class SourceLocation:
    """A source location in a program."""

    functionName: str = ""
    fileName: str = ""
    lineNumber: int = 0


def location_of_call() -> SourceLocation | None:
    """The source location of the innermost caller outside of this package, if any."""
    frame = caller()
    if frame is None:
        return None
    return SourceLocation(frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno)


@dataclass
class DebugInfos:
    """
    The debug info entries in Poplar's format: `contexts`, and a string table.

    An entry has a number and a layer. Optional are a name, a location, the number of the parent
    entry, and values of the layer.
    """

    path: Path
    format: str
    made_by: dict[str, int] = field(default_factory=dict)
    """By tensor id, the latest entry of its creation."""
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
        """Adds an entry, whose values may still change; returns its number."""
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
        """Adds an entry for a builder call, with its DebugContext or name."""
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
    """The open debug info file, if any."""
    return _open[-1] if _open else None


@typed
class DebugContext:
    """
    A name for graph elements; a plain string works as well.

    `DebugContext()`, `(name)`, `(name, location)` and `(debugInfo, name)` are accepted.
    """

    def __init__(
        self,
        *given: str | DebugInfo | SourceLocation,
        name: str = "",
        debugInfo: DebugInfo | None = None,
        loc: SourceLocation | None = None,
    ) -> None:
        self.name = next((one for one in given if isinstance(one, str)), name)
        self.debugInfo = next((one for one in given if isinstance(one, DebugInfo)), debugInfo)
        self.loc = next((one for one in given if isinstance(one, SourceLocation)), loc)
        self.location = location_of_call() if self.loc is None else self.loc
        """The line that created it, unless another one is given."""

    def _key(self) -> tuple[object, ...]:
        return self.name, self.debugInfo, self.loc

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DebugContext) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@typed
@dataclass(eq=False)
class DebugInfo:
    """Information about a layer of a program, for the file of `initializePoplarDebugInfo`."""

    debugContext: DebugContext | str = ""
    layer: str = ""
    values: dict[str, Json] = field(default_factory=dict)
    _id: int = field(default_factory=new_id)

    def __post_init__(self) -> None:
        infos, context = being_written(), self.debugContext
        if infos is None:
            return
        if isinstance(context, str):
            context = DebugContext(context)
        above = context.debugInfo
        infos.add(
            self.layer,
            self.values,
            number=self._id,
            name=context.name,
            parent=None if above is None else above.getId(),
            location=context.location,
        )

    def setValue(self, name: str, value: str | list[str]) -> bool:
        """Sets a value; returns whether it will be written."""
        self.values[name] = value if isinstance(value, str) else list[Json](value)
        return being_written() is not None

    def getId(self) -> int:
        return self._id


@typed
class OutOfMemoryError:
    """Whether a compilation exceeded the memory of tiles: true if there is a message."""

    def __init__(self, message: str = "", summary: str | None = None, hint: str = "") -> None:
        self._message, self._summary, self.hint = message, summary, hint

    def isSuccessful(self) -> bool:
        return not self._message

    def getSummaryReport(self) -> str:
        if self._message and self._summary is None:
            raise popart_exception(
                "Need to set the 'debug.allowOutOfMemory' engine option to true to get the graph "
                "report"
            )
        return self._summary or ""

    def getProfilePath(self) -> str:
        return ""

    def __str__(self) -> str:
        return self._message or "No memory_allocation_err raised"

    def __repr__(self) -> str:
        return f"popart.OutOfMemoryError: {self}"


class NumIOTiles(int):
    """The number of IO tiles of an IPU; `NumIOTiles()` is 0."""


@typed
def initializePoplarDebugInfo(filename: str, format: str = "json") -> None:
    """
    Records builder calls, `DebugInfo`s and sessions until `closePoplarDebugInfo`.

    The file is JSON, or CBOR if `format` is "cbor".
    """
    _open[:] = [DebugInfos(Path(filename), format)]


@typed
def closePoplarDebugInfo() -> None:
    """Writes the file of `initializePoplarDebugInfo`."""
    infos = _open.pop() if _open else None
    if infos is None:
        return
    content = infos.content()
    with as_popart_errors():
        binary = infos.format == "cbor"
        write_file(infos.path, [to_cbor(content) if binary else json.dumps(content).encode()])
