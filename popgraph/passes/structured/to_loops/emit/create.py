"""Constructs operations without verification, for kernels that hold thousands of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    UNKNOWN_LOC,
    AnyFloat,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
)
from xdsl.ir import Attribute, Operation, Region, SSAValue

Made = TypeVar("Made", bound=Operation)


def create_unchecked(
    kind: type[Made],
    *operands: SSAValue,
    types: Sequence[Attribute] = (),
    regions: Sequence[Region] = (),
    **properties: Attribute,
) -> Made:
    """
    What the constructor of `kind` makes of these parts.

    Constructors look at every part again, which takes three times as long as all the rest.
    """
    return kind.create(
        operands=operands,
        result_types=types,
        properties=properties,
        regions=regions,
        location=UNKNOWN_LOC,
    )


def create_same_type(kind: type[Made], *operands: SSAValue) -> Made:
    """An operation whose result is of the type of its first operand."""
    return create_unchecked(kind, *operands, types=(operands[0].type,))


def sum_of(kind: Attribute) -> type[arith.AddfOp | arith.AddiOp]:
    """What adds up two numbers of an element type."""
    return arith.AddfOp if isinstance(kind, AnyFloat) else arith.AddiOp


@lru_cache(4096)
def numeric_attribute(value: int, type_: Attribute) -> IntegerAttr | FloatAttr:
    """A number of an element type, made once: xDSL checks every attribute that is made."""
    if isinstance(type_, AnyFloat):
        return FloatAttr(float(value), type_)
    assert isinstance(type_, IntegerType | IndexType)
    return IntegerAttr(value, type_)
