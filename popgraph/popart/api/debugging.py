"""PopART's names for where things were made, and what went wrong."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from popgraph.builder.opset.arguments import typed
from popgraph.popart.api import debug_infos
from popgraph.popart.api.debug_infos import Json, SourceLocation, location_of_call
from popgraph.popart.exceptions import as_popart_errors, popart_exception
from popgraph.support.cbor import to_cbor
from popgraph.support.writing import write_file


@typed
class DebugContext:
    """
    A name for what is built; a plain string does as well.

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
        """The line that made it, unless another one is given."""

    def _key(self) -> tuple[object, ...]:
        return self.name, self.debugInfo, self.loc

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DebugContext) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@typed
@dataclass(eq=False)
class DebugInfo:
    """What is noted about a layer of a program, for the file of `initializePoplarDebugInfo`."""

    debugContext: DebugContext | str = ""
    layer: str = ""
    values: dict[str, Json] = field(default_factory=dict)
    _id: int = field(default_factory=debug_infos.new_id)

    def __post_init__(self) -> None:
        infos, context = debug_infos.being_written(), self.debugContext
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
        """Notes a value; whether it is written."""
        self.values[name] = value if isinstance(value, str) else list[Json](value)
        return debug_infos.being_written() is not None

    def getId(self) -> int:
        return self._id


@typed
class OutOfMemoryError:
    """Whether a compilation ran out of the memory of tiles: it did if there is a message."""

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
    """How many tiles of an IPU move data; `NumIOTiles()` is 0."""


@typed
def initializePoplarDebugInfo(filename: str, format: str = "json") -> None:
    """
    Notes what builders, `DebugInfo`s and sessions make, until `closePoplarDebugInfo`.

    The file is JSON, or CBOR if `format` is "cbor".
    """
    debug_infos.begin(filename, format)


@typed
def closePoplarDebugInfo() -> None:
    """Writes the file of `initializePoplarDebugInfo`."""
    infos = debug_infos.end()
    if infos is None:
        return
    content = infos.content()
    with as_popart_errors():
        binary = infos.format == "cbor"
        write_file(infos.path, [to_cbor(content) if binary else json.dumps(content).encode()])
