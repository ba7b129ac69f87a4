"""The type that an element is computed in, and the conversions there and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import pack, unpack
from typing import Any, TypeAlias

import numpy as np
from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    AnyFloat,
    ArrayAttr,
    ComplexType,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    Signedness,
    f32,
    f64,
    i1,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from popgraph.dialects import element_types, tile
from popgraph.dialects.tile.scalars import Kind

Operand: TypeAlias = SSAValue | Operation


@lru_cache(maxsize=1 << 6)
def kind_of(element: Attribute) -> Kind:
    """Asked about every scalar that is written; there are few types of them."""
    if isinstance(element, ComplexType):
        return Kind.COMPLEX
    dtype = element_types.from_ir(element)
    if dtype.is_float:
        return Kind.FLOAT
    if element == i1:
        return Kind.BOOL
    return Kind.UNSIGNED if dtype.name.startswith("u") else Kind.SIGNED


def width_of(element: Attribute) -> int:
    assert isinstance(element, IntegerType)
    width: int = element.width.data
    return width


@lru_cache(maxsize=1 << 6)
def computing(element: Attribute) -> Attribute:
    """
    The type that elements are computed in.

    f32 for floats that are narrower, i8 for integers that are; signless for unsigned integers, as
    `arith` wants it: its operations know by themselves where the sign matters.
    """
    match kind_of(element):
        case Kind.FLOAT:
            return element if element == f64 else f32
        case Kind.BOOL | Kind.COMPLEX:
            return element
        case _:
            return IntegerType(max(width_of(element), 8))


def signless(element: Attribute) -> IntegerType:
    """An integer type as `arith` wants it."""
    return IntegerType(width_of(element))


def entered(value: Operand, element: Attribute) -> SSAValue:
    """`value`, an `element` (or one already entered), in the type that computes."""
    value, target = SSAValue.get(value), computing(element)
    if value.type == target:
        return value
    if kind_of(element) is Kind.FLOAT:
        return arith.ExtFOp(value, target).result
    bits = bits_as(value, signless(element))
    return bits if bits.type == target else extended(bits, kind_of(element), target)


def extended(value: SSAValue, kind: Kind, target: Attribute) -> SSAValue:
    """An integer of more bits, by its sign if it has one."""
    assert isinstance(target, IntegerType)
    extend = arith.ExtSIOp if kind is Kind.SIGNED else arith.ExtUIOp
    return extend(value, target).result


def bits_as(value: SSAValue, element: Attribute) -> SSAValue:
    """The same bits as an element of a type that is as wide."""
    return value if value.type == element else arith.BitcastOp(value, element).result


def left(value: Operand, element: Attribute) -> SSAValue:
    """`value`, in the type that computes `element` (or already left), as an `element`."""
    value = SSAValue.get(value)
    if value.type == element:
        return value
    if kind_of(element) is Kind.FLOAT:
        return arith.TruncFOp(value, element).result
    if width_of(value.type) > width_of(element):
        value = arith.TruncIOp(value, signless(element)).result
    return bits_as(value, element)


def attribute(number: Any, element: Attribute) -> Attribute:
    """`number` as a literal of an element type; a complex one has two parts."""
    if isinstance(element, ComplexType):
        part, parts = element.element_type, (complex(number).real, complex(number).imag)
        return ArrayAttr([attribute(one, part) for one in parts])
    if kind_of(element) is Kind.FLOAT:
        return _float(pack("<d", float(number)), element)
    assert isinstance(element, IntegerType)
    if element.signedness.data is Signedness.SIGNLESS:
        half = 1 << (width_of(element) - 1)
        number = (int(number) + half) % (2 * half) - half
    return IntegerAttr(int(number), element)


@lru_cache(maxsize=1 << 10)
def _float(bits: bytes, element: Attribute) -> Attribute:
    """Made once for the bits of a number, because zeros of both signs are equal."""
    assert isinstance(element, AnyFloat)
    (number,) = unpack("<d", bits)
    return FloatAttr(float(number), element)


def number(value: Any, element: Attribute) -> SSAValue:
    """A constant in the type that computes `element`."""
    kind = computing(element)
    literal = attribute(value, kind)
    return arith.ConstantOp.create(properties={"value": literal}, result_types=[kind]).result


def lowest(element: Attribute) -> float | int:
    """What every maximum of an element type starts from."""
    if kind_of(element) is Kind.FLOAT:
        return float("-inf")
    return 0 if element == i1 else int(np.iinfo(element_types.from_ir(element).numpy.name).min)


def highest(element: Attribute) -> float | int:
    """What every minimum of an element type starts from."""
    if kind_of(element) is Kind.FLOAT:
        return float("inf")
    return 1 if element == i1 else int(np.iinfo(element_types.from_ir(element).numpy.name).max)


def body(
    arguments: Sequence[Attribute], write: Callable[..., Operand | Sequence[Operand]]
) -> Region:
    """A region that takes scalars of these types and yields what `write` makes of them."""
    block = Block(arg_types=arguments)
    with ImplicitBuilder(block):
        results = write(*block.args)
        if isinstance(results, SSAValue | Operation):
            results = [results]
        tile.YieldOp(*results)
    return Region(block)


def same(value: SSAValue) -> SSAValue:
    """The body of whatever only moves elements, and the epilogue of whatever is done."""
    return value
