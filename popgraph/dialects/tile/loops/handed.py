"""Numbers that callers hand to a kernel: constants of its loops that its C takes as parameters."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IndexType
from xdsl.ir import Operation, SSAValue

from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.tile.loops.soundness import constant_of

_HANDED = "handed"


def hand(op: Operation, places: Sequence[int]) -> None:
    """Marks these operands of an operation, constants, as numbers that callers hand over."""
    op.attributes[_HANDED] = IntsAttr.of(places)


def handed(op: Operation) -> Sequence[int]:
    """The places of the operands that callers hand over."""
    found = op.attributes.get(_HANDED)
    return found.data if isinstance(found, IntsAttr) else ()


def natural(value: SSAValue) -> int | None:
    """An index that is a constant, if it is not negative."""
    number = constant_of(value) if type(value.type) is IndexType else None
    return number if number is not None and number >= 0 else None
