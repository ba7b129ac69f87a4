"""PopART's names for where things were made, and what went wrong: kept, and asked for nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from popgraph.builder.opset.arguments import typed
from popgraph.builder.opset.exceptions import popart_exception

_IDS = count()


@typed
@dataclass(frozen=True)
class SourceLocation:
    """A place in a program."""

    functionName: str = ""
    fileName: str = ""
    lineNumber: int = 0


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

    def _key(self) -> tuple[object, ...]:
        return self.name, self.debugInfo, self.loc

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DebugContext) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@typed
@dataclass(eq=False)
class DebugInfo:
    """What is noted about a layer of a program, which nothing here reads."""

    debugContext: DebugContext | str = ""
    layer: str = ""
    values: dict[str, str] = field(default_factory=dict)
    _id: int = field(default_factory=lambda: next(_IDS))

    def setValue(self, name: str, value: str) -> None:
        self.values[name] = value

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
    """Poplar would write what it knows of layers to a file; there is no Poplar, and no file."""


@typed
def closePoplarDebugInfo() -> None:
    """Ends what `initializePoplarDebugInfo` began."""
