"""Lowers scalar functions for each kind of element."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import IntegerAttr, IntegerType, f32, f64, i1
from xdsl.ir import Attribute, SSAValue

from popgraph.dialects.graphcore import BitcastOp, CastOp, CompareOp, Elementwise, ShiftOp
from popgraph.dialects.graphcore.base import tensor_of
from popgraph.dialects.tile.scalars import Kind, named
from popgraph.passes.graphcore.to_structured.elements import (
    Operand,
    bits_as,
    computing_type,
    extended,
    kind_of,
    number,
    to_computing,
    to_element,
    width_of,
)

Write: TypeAlias = Callable[..., Operand]
"""Builds a function of scalars in their computing types (implicit builder)."""


def like(value: Operand, constant: float) -> SSAValue:
    """A constant with the type of `value`."""
    return number(constant, SSAValue.get(value).type)


def float_sign(x: SSAValue) -> Operand:
    """The sign of a float; NaN and zeros of either sign are returned unchanged."""
    negative = arith.SelectOp(arith.CmpfOp(x, like(x, 0), "olt"), like(x, -1), x)
    return arith.SelectOp(arith.CmpfOp(x, like(x, 0), "ogt"), like(x, 1), negative)


def signed_sign(x: SSAValue) -> Operand:
    return arith.MaxSIOp(arith.MinSIOp(x, like(x, 1)), like(x, -1))


def integer_neg(x: SSAValue) -> Operand:
    return arith.SubiOp(like(x, 0), x)


def bits_not(x: SSAValue) -> Operand:
    return arith.XOrIOp(x, like(x, -1))


def sigmoid(x: SSAValue) -> Operand:
    one = like(x, 1)
    return arith.DivfOp(one, arith.AddfOp(one, math.ExpOp(arith.NegfOp(x))))


def float_relu(x: SSAValue) -> Operand:
    """max(x, 0): propagates NaN and vectorizes, unlike a comparison and a select."""
    return arith.MaximumfOp(x, like(x, 0))


def known(value: SSAValue) -> int | None:
    """The number of a constant scalar; None for other scalars."""
    owner = value.owner
    if isinstance(owner, arith.ConstantOp) and isinstance(owner.value, IntegerAttr):
        return owner.value.value.data
    return None


def powers(x: SSAValue, exponent: SSAValue, bits: int) -> Operand:
    """x^exponent by squaring, modulo 2^width, for a non-negative exponent with `bits` bits."""
    constant = known(exponent)
    if constant is not None:  # unsigned exponents are negative as signless literals
        constant %= 1 << bits
        bits = constant.bit_length()
    result: Operand = like(x, 1)
    square: Operand = x
    for bit in range(bits):
        if constant is None:
            odd = arith.TruncIOp(arith.ShRUIOp(exponent, like(exponent, bit)), i1)
            result = arith.SelectOp(odd, arith.MuliOp(result, square), result)
        elif constant >> bit & 1:
            result = arith.MuliOp(result, square)
        square = arith.MuliOp(square, square)
    return result


def unsigned_power(x: SSAValue, exponent: SSAValue) -> Operand:
    return powers(x, exponent, width_of(x.type))


def signed_power(x: SSAValue, exponent: SSAValue) -> Operand:
    """x^exponent for signed integers; negative powers are 0 unless x is 1 or -1."""
    constant, bits = known(exponent), width_of(x.type) - 1
    if constant is not None and constant >= 0:
        return powers(x, exponent, bits)
    zero, one = like(x, 0), like(x, 1)
    odd = arith.TruncIOp(exponent, i1)
    is_one = arith.CmpiOp(x, one, "eq")
    is_minus_one = arith.CmpiOp(x, like(x, -1), "eq")
    of_minus_one = arith.SelectOp(is_minus_one, arith.SelectOp(odd, x, one), zero)
    inverse = arith.SelectOp(is_one, one, of_minus_one)
    if constant is not None:
        return inverse
    positive = powers(x, exponent, bits)
    return arith.SelectOp(arith.CmpiOp(exponent, like(exponent, 0), "slt"), inverse, positive)


COMPOSED: Mapping[Kind, Mapping[str, Write]] = {
    Kind.FLOAT: {
        "sign": float_sign,
        "reciprocal": lambda x: arith.DivfOp(like(x, 1), x),
        "sigmoid": sigmoid,
        "relu": float_relu,
        "is_nan": lambda x: arith.CmpfOp(x, x, "uno"),
    },
    Kind.SIGNED: {
        "neg": integer_neg,
        "not": bits_not,
        "sign": signed_sign,
        "relu": lambda x: arith.MaxSIOp(x, like(x, 0)),
        "pow": signed_power,
    },
    Kind.UNSIGNED: {
        "neg": integer_neg,
        "not": bits_not,
        "abs": lambda x: x,
        "sign": lambda x: arith.MinUIOp(x, like(x, 1)),
        "relu": lambda x: x,
        "pow": unsigned_power,
    },
    Kind.BOOL: {"not": bits_not, "max": arith.OrIOp, "min": arith.AndIOp},
    Kind.COMPLEX: {},
}
"""Functions that need several operations; `RECORDS` has functions of a single operation."""

TABLES: Mapping[Kind, Mapping[str, Write]] = {
    kind: {**named(kind), **composed} for kind, composed in COMPOSED.items()
}
"""Every scalar function by name, for each kind of element."""

ORDER = ("lt", "le", "gt", "ge")


def compare(kind: Kind, predicate: str, lhs: Operand, rhs: Operand) -> Operand:
    """`lhs predicate rhs`; with a NaN only `ne` is true."""
    if kind is Kind.FLOAT:
        return arith.CmpfOp(lhs, rhs, "une" if predicate == "ne" else f"o{predicate}")
    sign = "" if predicate not in ORDER else "s" if kind is Kind.SIGNED else "u"
    return arith.CmpiOp(lhs, rhs, sign + predicate)


def cast(value: Operand, source: Attribute, target: Attribute) -> Operand:
    """Converts an element from type `source` to type `target`."""
    if source == target:
        return value
    value = to_computing(value, source)
    match kind_of(source), kind_of(target):
        case _, Kind.BOOL:
            kind = kind_of(source)
            return compare(kind, "ne", value, like(value, 0))
        case Kind.FLOAT, Kind.FLOAT:
            return float_to_float(value, target)
        case Kind.FLOAT, _:
            return float_to_integer(value, target)
        case Kind.SIGNED, Kind.FLOAT:
            return arith.SIToFPOp(value, target)  # type: ignore[arg-type]
        case _, Kind.FLOAT:
            return arith.UIToFPOp(value, target)  # type: ignore[arg-type]
        case kind, _:
            return integer_to_integer(value, kind, target)


def float_to_float(value: SSAValue, target: Attribute) -> Operand:
    """Converts an f32 or f64, rounding once."""
    if value.type == f32 and target == f64:
        return arith.ExtFOp(value, f64)
    return to_element(value, target)


def float_to_integer(value: SSAValue, target: Attribute) -> Operand:
    """Truncates toward zero; the result wraps, so the sign of the target does not matter."""
    return to_element(arith.FPToSIOp(value, computing_type(target)), target)  # type: ignore[arg-type]


def integer_to_integer(value: SSAValue, kind: Kind, target: Attribute) -> Operand:
    """Truncates to the low bits, or extends by the sign of the source."""
    computed = computing_type(target)
    assert isinstance(computed, IntegerType)
    if width_of(value.type) < width_of(computed):
        return to_element(extended(value, kind, computed), target)
    if width_of(value.type) > width_of(computed):
        return to_element(arith.TruncIOp(value, computed), target)
    return to_element(value, target)


def scalar(op: Elementwise, values: Sequence[SSAValue]) -> Operand:
    """Applies the scalar function of an elementwise operation to elements."""
    elements = [tensor_of(operand).element_type for operand in op.operands]
    result = tensor_of(op.result).element_type
    if isinstance(op, CastOp):
        return cast(values[0], elements[0], result)
    if isinstance(op, BitcastOp):
        return bits_as(to_element(values[0], elements[0]), result)
    if op.SCALAR == "where":
        condition, lhs, rhs = values
        return arith.SelectOp(condition, to_element(lhs, result), to_element(rhs, result))
    inner = [to_computing(value, element) for value, element in zip(values, elements, strict=True)]
    kind = kind_of(elements[0])
    if isinstance(op, CompareOp):
        return compare(kind, op.predicate.data, *inner)
    if isinstance(op, ShiftOp):
        name = "shl" if op.direction.data == "left" else "shr"
        return to_element(TABLES[kind][name](*inner), result)
    return to_element(TABLES[kind][op.SCALAR](*inner), result)
