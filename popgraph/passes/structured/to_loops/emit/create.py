"""Constructs scalar operations of kernels."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeVar

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import (
    AnyFloat,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
)
from xdsl.ir import Attribute, Operation, SSAValue

from popgraph.dialects.program.interned import operand_segment_sizes
from popgraph.dialects.tile.loops.ops import row_type
from popgraph.dialects.unchecked import create_unchecked

Made = TypeVar("Made", bound=Operation)


def create_same_type(kind: type[Made], *operands: SSAValue) -> Made:
    """Creates an operation whose result has the type of its first operand."""
    return create_unchecked(kind, *operands, types=(operands[0].type,))


def allocation(element: Attribute, size: int) -> memref.AllocaOp:
    """Allocates local memory for some elements."""
    made = create_unchecked(memref.AllocaOp, types=(row_type(element, size),))
    made.properties.update(operand_segment_sizes(0, 0))
    return made


def sum_of(kind: Attribute) -> type[arith.AddfOp | arith.AddiOp]:
    """The addition of an element type."""
    return arith.AddfOp if isinstance(kind, AnyFloat) else arith.AddiOp


@lru_cache(4096)
def numeric_attribute(value: int, type_: Attribute) -> IntegerAttr | FloatAttr:
    """A number of an element type; cached, as xDSL checks every new attribute."""
    if isinstance(type_, AnyFloat):
        return FloatAttr(float(value), type_)
    assert isinstance(type_, IntegerType | IndexType)
    return IntegerAttr(value, type_)
