"""Schedule overrides as text: a contraction, and its implementation."""

from __future__ import annotations

import re
from dataclasses import dataclass

BY_NAME = "op "
ARROW = " -> "
_FORM = re.compile(
    r"(?P<word>plain|estimate)"
    r"|winograd (?P<size>\d+)(, tiles (?P<tiles>\d+))?"
    r"|(?P<factor>lhs|rhs)(?P<packed> packed)?(?P<scalars>, scalars packed)?"
    r"(, order (?P<order>\d+))?, (?P<schedule>#tile\.schedule<.*>)"
)
FORMS = (
    "plain, estimate, winograd 2, winograd 4, winograd 4, tiles 49, or "
    "rhs packed, order 1, #tile.schedule<...>"
)
"""Examples of the forms that `ScheduleSpec` reads."""


@dataclass(frozen=True)
class ScheduleSpec:
    """
    The implementation of a contraction, as text.

    `plain` is a loop without a schedule; `estimate` the sum of products that the cost model
    prefers. `winograd 4, tiles 49` is a Winograd transform of that tile size, with this many tiles
    at a time (default: chosen by the cost model). In `rhs packed, order 1, #tile.schedule<...>`,
    the first word is the vectorized operand, `packed` stores it in panels, `order` selects an
    order of the reduction loops (default: 0, the given one), and the schedule blocks registers.
    With `rhs packed, scalars packed` the other operand is packed too: its terms become adjacent.
    """

    word: str = ""
    size: int = 0
    """The tile size of a Winograd transform; 0 for a sum of products."""
    tiles: int = 0
    factor: int = 0
    packed: bool = False
    scalars: bool = False
    order: int = 0
    schedule: str = ""

    @staticmethod
    def of(text: str) -> ScheduleSpec:
        """Parses the text; ValueError if it is malformed."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not an implementation of a contraction")
        return ScheduleSpec(
            word=found["word"] or "",
            size=int(found["size"] or 0),
            tiles=int(found["tiles"] or 0),
            factor=int(found["factor"] == "rhs"),
            packed=bool(found["packed"]),
            scalars=bool(found["scalars"]),
            order=int(found["order"] or 0),
            schedule=found["schedule"] or "",
        )

    def __str__(self) -> str:
        if self.word:
            return self.word
        if self.size:
            return f"winograd {self.size}" + (f", tiles {self.tiles}" if self.tiles else "")
        packed = " packed" if self.packed else ""
        packed += ", scalars packed" if self.scalars else ""
        order = f", order {self.order}" if self.order else ""
        return f"{('lhs', 'rhs')[self.factor]}{packed}{order}, {self.schedule}"


@dataclass(frozen=True)
class Override:
    """
    An override of the implementation of contractions; as an option's text, `WHICH -> WAY`.

    `which` is the contraction's own text, or `op NAME` for all contractions that the user's
    operation of this name was lowered to.
    """

    which: str
    spec: ScheduleSpec

    @staticmethod
    def of(text: str) -> Override:
        """Parses the text; ValueError if it is malformed."""
        which, arrow, spec = text.rpartition(ARROW)
        if not arrow:
            raise ValueError(f"{text!r} is not WHICH{ARROW}WAY")
        return Override(which, ScheduleSpec.of(spec))

    def __str__(self) -> str:
        return f"{self.which}{ARROW}{self.spec}"
