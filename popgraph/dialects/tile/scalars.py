"""Scalar functions: one record per operation of bodies, which all passes and backends read."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import (
    AnyFloat,
    BFloat16Type,
    Float16Type,
    Float32Type,
    Float64Type,
    IndexType,
    IntegerType,
    i1,
    i8,
)
from xdsl.ir import Attribute, Operation, SSAValue

from popgraph.dialects.tile.lanes import (
    CompareOp,
    ConvertOp,
    DotOp,
    PickOp,
    RemainderOp,
    SelectOp,
    ThreefryOp,
    vector_of,
)
from popgraph.dialects.tile.numpy_scalars import (
    Function,
    divide,
    erf,
    fused,
    on_unsigned,
    power,
    remainder,
    select,
)

OnLanes: TypeAlias = Callable[[Operation, Sequence[SSAValue], int], Operation]
"""Makes the operation that does the same to all of so many lanes."""


def _same(op: Operation, operands: Sequence[SSAValue], lanes: int) -> Operation:
    """The stock operation has a form for vectors."""
    return type(op).create(
        operands=operands,
        result_types=[vector_of(result.type, lanes) for result in op.results],
        properties=op.properties.copy(),
    )


def _compare(op: Operation, operands: Sequence[SSAValue], lanes: int) -> Operation:
    assert isinstance(op, arith.CmpfOp | arith.CmpiOp)
    return CompareOp(op.predicate.value.data, *operands)


def _select(op: Operation, operands: Sequence[SSAValue], lanes: int) -> Operation:
    return SelectOp(*operands)


def _threefry(op: Operation, operands: Sequence[SSAValue], lanes: int) -> Operation:
    key, counter = operands
    return ThreefryOp(key, counter, to=vector_of(op.results[0].type, lanes))


def _convert(op: Operation, operands: Sequence[SSAValue], lanes: int) -> Operation:
    (operand,) = operands
    return ConvertOp(op.name, operand, vector_of(op.results[0].type, lanes))


class Kind(Enum):
    """What arithmetic means for an element type."""

    FLOAT = "float"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    BOOL = "bool"
    COMPLEX = "complex"
    """There is none: such elements are only moved."""


class Ulps(NamedTuple):
    """The largest error in each float type, in units in the last place; f16 stands for bf16 too."""

    f16: float
    f32: float
    f64: float


EXACT, ROUNDED = Ulps(0, 0, 0), Ulps(0.5, 0.5, 0.5)
"""The errors of results that are numbers of the type by nature, and of those rounded once."""


@dataclass(frozen=True)
class Scalar:
    """
    What one operation on scalars means, what it costs, and how it runs on lanes.

    Its C is in the C backend, by its name: `popgraph_NAME` of the headers, which is the one place
    for a function, or a row of `print/rows.py` for an operator of C.
    """

    name: str
    """The word for the function, which graphcore's `SCALAR` and the C headers use."""
    ir: type[Operation]
    numpy: Function | None = None
    """On NumPy's scalars and arrays alike; None where it depends on the attributes or types."""
    kinds: frozenset[Kind] = field(default=frozenset({Kind.FLOAT}))
    """For which elements the function of that name is this operation, and nothing else."""
    lanes: OnLanes = _same
    flops: int = 0
    """Floating-point operations that it counts as, per element."""
    costly: bool = False
    """It must not be computed twice."""
    trapping: bool = False
    """It may not run where the program would not have run it."""
    ulps: Ulps = ROUNDED
    """The largest error that C is allowed, of results that are floats."""


_function = partial(Scalar, flops=1, costly=True)
"""A function of the headers: its errors are stated, for they are none of the hardware's."""

_SIGNED, _UNSIGNED = frozenset({Kind.SIGNED}), frozenset({Kind.UNSIGNED})
_integer = partial(Scalar, kinds=_SIGNED | _UNSIGNED)
_signed = partial(Scalar, kinds=_SIGNED)
_unsigned = partial(Scalar, kinds=_UNSIGNED)
_bits = partial(Scalar, kinds=frozenset({Kind.SIGNED, Kind.UNSIGNED, Kind.BOOL}))
_division = partial(Scalar, costly=True, trapping=True)
_typed = partial(Scalar, kinds=frozenset[Kind]())
"""What depends on the types of operand and result, so that no function of a network is it alone."""
_conversion = partial(_typed, lanes=_convert)

RECORDS: Sequence[Scalar] = (
    # Arithmetic of floats
    Scalar("neg", arith.NegfOp, operator.neg, ulps=EXACT),
    Scalar("add", arith.AddfOp, operator.add, flops=1),
    Scalar("sub", arith.SubfOp, operator.sub, flops=1),
    Scalar("mul", arith.MulfOp, operator.mul, flops=1),
    Scalar("div", arith.DivfOp, operator.truediv, flops=1, costly=True),
    Scalar("rem", RemainderOp, np.fmod, costly=True, ulps=EXACT),
    Scalar("max", arith.MaximumfOp, np.maximum, flops=1, ulps=EXACT),
    Scalar("min", arith.MinimumfOp, np.minimum, flops=1, ulps=EXACT),
    Scalar("fma", math.FmaOp, fused, flops=2),
    Scalar("abs", math.AbsFOp, np.abs, flops=1, ulps=EXACT),
    Scalar("floor", math.FloorOp, np.floor, flops=1, ulps=EXACT),
    Scalar("ceil", math.CeilOp, np.ceil, flops=1, ulps=EXACT),
    Scalar("round", math.RoundEvenOp, np.rint, flops=1, ulps=EXACT),
    # Functions of floats
    _function("sqrt", math.SqrtOp, np.sqrt),
    _function("exp", math.ExpOp, np.exp, ulps=Ulps(0.51, 1, 1.5)),
    _function("expm1", math.ExpM1Op, np.expm1, ulps=Ulps(0.51, 0.51, 2)),
    _function("log", math.LogOp, np.log, ulps=Ulps(0.51, 1, 1)),
    _function("log1p", math.Log1pOp, np.log1p, ulps=Ulps(0.51, 1, 1)),
    _function("sin", math.SinOp, np.sin, ulps=Ulps(0.51, 1, 1)),
    _function("cos", math.CosOp, np.cos, ulps=Ulps(0.51, 1, 1)),
    _function("tan", math.TanOp, np.tan, ulps=Ulps(0.51, 1, 3)),
    _function("asin", math.AsinOp, np.arcsin, ulps=Ulps(0.51, 0.51, 3)),
    _function("acos", math.AcosOp, np.arccos, ulps=Ulps(0.51, 0.51, 3)),
    _function("atan", math.AtanOp, np.arctan, ulps=Ulps(0.51, 0.51, 1.5)),
    _function("atan2", math.Atan2Op, np.arctan2, ulps=Ulps(0.51, 0.51, 2)),
    _function("sinh", math.SinhOp, np.sinh, ulps=Ulps(0.51, 0.51, 3)),
    _function("cosh", math.CoshOp, np.cosh, ulps=Ulps(0.51, 0.51, 2)),
    _function("tanh", math.TanhOp, np.tanh, ulps=Ulps(0.51, 1.5, 3)),
    _function("asinh", math.AsinhOp, np.arcsinh, ulps=Ulps(0.51, 0.51, 3)),
    _function("acosh", math.AcoshOp, np.arccosh, ulps=Ulps(0.51, 0.51, 3)),
    _function("atanh", math.AtanhOp, np.arctanh, ulps=Ulps(0.51, 0.51, 3)),
    _function("erf", math.ErfOp, erf, ulps=Ulps(0.51, 1, 1.5)),
    _function("pow", math.PowFOp, power, ulps=Ulps(0.51, 0.51, 1)),
    # Arithmetic of integers, which wraps
    _integer("add", arith.AddiOp, operator.add),
    _integer("sub", arith.SubiOp, operator.sub),
    _integer("mul", arith.MuliOp, operator.mul),
    _division("div", arith.DivSIOp, divide, _SIGNED),
    _division("div", arith.DivUIOp, on_unsigned(divide), _UNSIGNED),
    _division("rem", arith.RemSIOp, remainder, _SIGNED),
    _division("rem", arith.RemUIOp, on_unsigned(remainder), _UNSIGNED),
    _signed("max", arith.MaxSIOp, np.maximum),
    _unsigned("max", arith.MaxUIOp, on_unsigned(np.maximum)),
    _signed("min", arith.MinSIOp, np.minimum),
    _unsigned("min", arith.MinUIOp, on_unsigned(np.minimum)),
    _signed("abs", math.AbsIOp, np.abs),
    _integer("shl", arith.ShLIOp, operator.lshift),
    _signed("shr", arith.ShRSIOp, operator.rshift),
    _unsigned("shr", arith.ShRUIOp, on_unsigned(operator.rshift)),
    _bits("and", arith.AndIOp, operator.and_),
    _bits("or", arith.OrIOp, operator.or_),
    _bits("xor", arith.XOrIOp, operator.xor),
    # Choices
    _typed("compare", arith.CmpfOp, lanes=_compare),
    _typed("compare", arith.CmpiOp, lanes=_compare),
    _typed("select", arith.SelectOp, select, lanes=_select),
    # Random words
    _typed("threefry", ThreefryOp, lanes=_threefry, costly=True),
    # Sums of products of small numbers
    _typed("dot", DotOp),
    # One of a few numbers
    _typed("pick", PickOp),
    # Conversions
    _typed("extf", arith.ExtFOp),
    _typed("truncf", arith.TruncFOp),
    _typed("bitcast", arith.BitcastOp),
    _conversion("index_cast", arith.IndexCastOp),
    _conversion("sitofp", arith.SIToFPOp),
    _conversion("uitofp", arith.UIToFPOp),
    _conversion("fptosi", arith.FPToSIOp),
    _conversion("fptoui", arith.FPToUIOp),
    _conversion("extsi", arith.ExtSIOp),
    _conversion("extui", arith.ExtUIOp),
    _conversion("trunci", arith.TruncIOp),
)
"""Every operation of scalar bodies but constants and what asks for an index or an element."""

SCALARS: Mapping[type[Operation], Scalar] = {record.ir: record for record in RECORDS}


def named(kind: Kind) -> dict[str, type[Operation]]:
    """The functions of elements of a kind that are one operation, by their names."""
    return {record.name: record.ir for record in RECORDS if kind in record.kinds}


def is_costly(op: Operation) -> bool:
    """Whether an operation must not be computed twice."""
    return type(op) in SCALARS and SCALARS[type(op)].costly


def is_trapping(op: Operation) -> bool:
    return type(op) in SCALARS and SCALARS[type(op)].trapping


def on_lanes(op: Operation, operands: Sequence[SSAValue], lanes: int) -> Operation:
    """What does to vectors (all operands are) what `op` does to scalars."""
    return SCALARS[type(op)].lanes(op, operands, lanes)


NARROW: tuple[Attribute, ...] = (BFloat16Type(), Float16Type(), i8)
"""Types of factors that are stored in fewer bits than they are multiplied in, which is as f32."""


def widens(kind: Attribute, into: Attribute) -> bool:
    """Whether numbers of a type may be read as those of another one, which holds all of them."""
    return kind == into or (kind in NARROW and into == Float32Type())


def widening(value: SSAValue, into: Attribute) -> Operation:
    """What reads a scalar as a number of such a type."""
    assert isinstance(into, AnyFloat), "see widens"
    return (arith.SIToFPOp if isinstance(value.type, IntegerType) else arith.ExtFOp)(value, into)


MASK_BYTES = 1
"""A boolean in a vector takes a byte, or as much as whatever stands beside it takes."""


def lane_bytes(kind: Attribute) -> int:
    """The size of an element in a vector; 0 for what no vector holds."""
    match kind:
        case Float16Type() | BFloat16Type():
            return 2
        case Float32Type():
            return 4
        case Float64Type() | IndexType():
            return 8
        case IntegerType() if kind == i1:
            return MASK_BYTES
        case IntegerType() if kind.width.data in (8, 16, 32, 64):
            return int(kind.width.data) // 8
    return 0
