"""Errors of the engine, with the weight or output that they concern."""

from __future__ import annotations

from collections.abc import Collection

from popgraph.support.errors import RunError
from popgraph.support.shapes import Shape


class UnknownOutputError(RunError):
    """A requested output that the program cannot have."""

    def __init__(self, id: str, known: Collection[str]) -> None:
        super().__init__(
            f"the program has no output {id!r}",
            hint=f"its tensors are {', '.join(sorted(known)) or 'none'}",
        )
        self.id, self.known = id, frozenset(known)


class WeightError(RunError):
    """The value of a weight or state does not fit."""

    def __init__(self, id: str, what: str) -> None:
        super().__init__(what, f"the weight {id!r}")
        self.id = id


class UnknownWeightError(WeightError):
    """A value for a weight that the program does not have."""

    def __init__(self, id: str) -> None:
        super().__init__(id, "there is no weight of this name")


class WeightBytesError(WeightError):
    """An array has another size in bytes than the value it should hold."""

    def __init__(self, id: str, held: int, given: int) -> None:
        super().__init__(id, f"its value has {held} bytes, and the array {given}")
        self.held, self.given = held, given


class WeightShapeError(WeightError):
    """A new value has another shape."""

    def __init__(self, id: str, wanted: Shape, given: Shape) -> None:
        super().__init__(id, f"its shape is {list(wanted)}, not {list(given)}")
        self.wanted, self.given = wanted, given


class WeightTypeError(WeightError):
    """A new value has another element type or number of elements."""

    def __init__(self, id: str) -> None:
        super().__init__(id, "the new value has another shape or element type")
