"""Numbers that callers hand to a kernel: constants of its loops that its C takes as parameters."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, IntegerAttr
from xdsl.ir import Operation, SSAValue

from popgraph.dialects.program.attributes import IntsAttr

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
    if type(value.type) is not IndexType or type(value.owner) is not arith.ConstantOp:
        return None
    constant = value.owner.properties["value"]
    number: int = constant.value.data if isinstance(constant, IntegerAttr) else -1
    return number if number >= 0 else None
