"""Computing types of elements, and conversions to and from them."""

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
    """The kind of an element type. Cached: each scalar operation asks, and there are few types."""
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
def computing_type(element: Attribute) -> Attribute:
    """
    The type in which elements are computed.

    Floats have at least 32 bits, integers at least 8. Integers are signless, as `arith` requires:
    its operations imply the sign where it matters.
    """
    match kind_of(element):
        case Kind.FLOAT:
            return element if element == f64 else f32
        case Kind.BOOL | Kind.COMPLEX:
            return element
        case _:
            return IntegerType(max(width_of(element), 8))


def signless(element: Attribute) -> IntegerType:
    """The signless form of an integer type, as `arith` requires."""
    return IntegerType(width_of(element))


def to_computing(value: Operand, element: Attribute) -> SSAValue:
    """Converts an element, unless it is converted already, to its computing type."""
    value, target = SSAValue.get(value), computing_type(element)
    if value.type == target:
        return value
    if kind_of(element) is Kind.FLOAT:
        return arith.ExtFOp(value, target).result
    bits = bits_as(value, signless(element))
    return bits if bits.type == target else extended(bits, kind_of(element), target)


def extended(value: SSAValue, kind: Kind, target: Attribute) -> SSAValue:
    """Extends an integer: by its sign if it is signed, else with zeros."""
    assert isinstance(target, IntegerType)
    extend = arith.ExtSIOp if kind is Kind.SIGNED else arith.ExtUIOp
    return extend(value, target).result


def bits_as(value: SSAValue, element: Attribute) -> SSAValue:
    """Reinterprets the bits of a value as another type of the same width."""
    return value if value.type == element else arith.BitcastOp(value, element).result


def to_element(value: Operand, element: Attribute) -> SSAValue:
    """Converts a value from the computing type of `element`, unless done already, to `element`."""
    value = SSAValue.get(value)
    if value.type == element:
        return value
    if kind_of(element) is Kind.FLOAT:
        return arith.TruncFOp(value, element).result
    if width_of(value.type) > width_of(element):
        value = arith.TruncIOp(value, signless(element)).result
    return bits_as(value, element)


def attribute(number: Any, element: Attribute) -> Attribute:
    """`number` as a literal of an element type; complex literals have two parts."""
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
    """A float literal, cached by bits: as numbers, 0.0 and -0.0 would share an entry."""
    assert isinstance(element, AnyFloat)
    (number,) = unpack("<d", bits)
    return FloatAttr(float(number), element)


def number(value: Any, element: Attribute) -> SSAValue:
    """A constant in the type that computes `element`."""
    kind = computing_type(element)
    literal = attribute(value, kind)
    return arith.ConstantOp.create(properties={"value": literal}, result_types=[kind]).result


def lowest(element: Attribute) -> float | int:
    """The identity of max for an element type."""
    if kind_of(element) is Kind.FLOAT:
        return float("-inf")
    return 0 if element == i1 else int(np.iinfo(element_types.from_ir(element).numpy.name).min)


def highest(element: Attribute) -> float | int:
    """The identity of min for an element type."""
    if kind_of(element) is Kind.FLOAT:
        return float("inf")
    return 1 if element == i1 else int(np.iinfo(element_types.from_ir(element).numpy.name).max)


def body(
    arguments: Sequence[Attribute], write: Callable[..., Operand | Sequence[Operand]]
) -> Region:
    """A region that takes scalars of these types and yields the results of `write`."""
    block = Block(arg_types=arguments)
    with ImplicitBuilder(block):
        results = write(*block.args)
        if isinstance(results, SSAValue | Operation):
            results = [results]
        tile.YieldOp(*results)
    return Region(block)


def same(value: SSAValue) -> SSAValue:
    """The identity: a body that only moves elements, or an empty epilogue."""
    return value
