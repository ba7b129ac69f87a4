"""Recipes: attributes of loops that say how passes of the loops level are to transform them."""

from __future__ import annotations

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Operation

UNROLL = "unroll"
"""Every iteration of the loop is written out."""
_MARK = UnitAttr()


def mark_unrolled(loop: Operation) -> None:
    """Asks for a loop without its counter: a copy of its body for every iteration."""
    loop.attributes[UNROLL] = _MARK


def is_unrolled(op: Operation) -> bool:
    """Whether a loop is to be unrolled."""
    return UNROLL in op.attributes
