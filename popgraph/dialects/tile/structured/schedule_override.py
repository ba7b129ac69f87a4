"""Schedule overrides as text: which contraction, and how it runs."""

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
"""Examples of all that `ScheduleSpec` reads."""


@dataclass(frozen=True)
class ScheduleSpec:
    """
    A way to run a contraction, as text.

    `plain` is a loop without a schedule, `estimate` whatever sums the cost model likes best,
    `winograd 4, tiles 49` the transforms of tiles of that size, so many at once (left out: as many
    as the cost model likes), `rhs packed, order 1, #tile.schedule<...>` the factor that runs along
    vectors, whether it is packed into panels, in which of the possible orders the sums are done
    (left out: 0, as they are), and how registers are used. With `rhs packed, scalars packed` the
    other factor is packed as well, so that its terms stand side by side.
    """

    word: str = ""
    size: int = 0
    """Of Winograd's tiles; 0 is a sum."""
    tiles: int = 0
    factor: int = 0
    packed: bool = False
    scalars: bool = False
    order: int = 0
    schedule: str = ""

    @staticmethod
    def of(text: str) -> ScheduleSpec:
        """ValueError when the text is no way to run anything."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no way to run a contraction")
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
    Which contractions are to run in which way; as the text of an option, `WHICH -> WAY`.

    `which` is the contraction's own text, or `op NAME` for what the user's operation of this name
    became.
    """

    which: str
    spec: ScheduleSpec

    @staticmethod
    def of(text: str) -> Override:
        """ValueError when the text is no override."""
        which, arrow, spec = text.rpartition(ARROW)
        if not arrow:
            raise ValueError(f"{text!r} is not WHICH{ARROW}WAY")
        return Override(which, ScheduleSpec.of(spec))

    def __str__(self) -> str:
        return f"{self.which}{ARROW}{self.spec}"
