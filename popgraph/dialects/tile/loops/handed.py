"""Constants of loops that become parameters of the kernel's C function."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IndexType
from xdsl.ir import Operation, SSAValue

from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.tile.loops.soundness import constant_of

_HANDED = "handed"
_PARAMETERS = "parameters"


def hand(op: Operation, places: Sequence[int], parameters: Sequence[int] = ()) -> None:
    """
    Marks constant operands of an operation as parameters of the C function.

    `parameters` has the number of each one, where several operands are one parameter.
    """
    op.attributes[_HANDED] = IntsAttr.of(places)
    if parameters:
        op.attributes[_PARAMETERS] = IntsAttr.of(parameters)


def handed(op: Operation) -> Sequence[int]:
    """The indices of operands that are parameters."""
    found = op.attributes.get(_HANDED)
    return found.data if isinstance(found, IntsAttr) else ()


def parameters_of(op: Operation, first: int) -> Sequence[int]:
    """The number of the parameter for each marked operand; by default, new ones from `first`."""
    found = op.attributes.get(_PARAMETERS)
    return found.data if isinstance(found, IntsAttr) else range(first, first + len(handed(op)))


def natural(value: SSAValue) -> int | None:
    """The value of a constant index; None if it is negative or not constant."""
    number = constant_of(value) if type(value.type) is IndexType else None
    return number if number is not None and number >= 0 else None
