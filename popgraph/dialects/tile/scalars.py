"""Scalar functions: one record per operation, shared by all passes and backends."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import NamedTuple, TypeAlias, TypeGuard

import numpy as np
from xdsl.dialects import arith, math, scf, vector
from xdsl.dialects.builtin import (
    AnyFloat,
    BFloat16Type,
    Float16Type,
    Float32Type,
    Float64Type,
    FloatAttr,
    IndexType,
    IntegerType,
    VectorType,
    bf16,
    i1,
    i8,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue

from popgraph.dialects import element_types
from popgraph.dialects.tile.lanes import (
    CompareOp,
    ConvertOp,
    DotOp,
    ExpNonpositiveOp,
    PickOp,
    RemainderOp,
    SelectOp,
    SumPairsOp,
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
from popgraph.support.words import sum_pairs

OnLanes: TypeAlias = Callable[[Operation, Sequence[SSAValue], int], Operation]
"""Builds the vector form of a scalar operation for a number of lanes."""


def _same(op: Operation, operands: Sequence[SSAValue], lanes: int) -> Operation:
    """Stock operations that accept vectors."""
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
    """The arithmetic of an element type."""

    FLOAT = "float"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    BOOL = "bool"
    COMPLEX = "complex"
    """Complex numbers have none: such elements are only moved."""


class Ulps(NamedTuple):
    """The largest error in each float type, in units in the last place; `f16` covers bf16 too."""

    f16: float
    f32: float
    f64: float


EXACT, ROUNDED = Ulps(0, 0, 0), Ulps(0.5, 0.5, 0.5)
"""Errors of results that are exact in the type, and of correctly rounded results."""


@dataclass(frozen=True)
class Scalar:
    """
    The meaning, cost and vector form of an operation on scalars.

    Its C is in the C backend under its name: `popgraph_NAME` in the headers for functions, a row of
    `print/rows.py` for operators of C.
    """

    name: str
    """The name in graphcore's `SCALAR` and in the C headers."""
    ir: type[Operation]
    numpy: Function | None = None
    """The NumPy function of scalars and arrays; None if it depends on attributes or types."""
    kinds: frozenset[Kind] = field(default=frozenset({Kind.FLOAT}))
    """Element types for which this operation alone implements the function of that name."""
    lanes: OnLanes = _same
    flops: int = 0
    """Floating-point operations per element."""
    costly: bool = False
    """Whether it is too expensive to recompute."""
    trapping: bool = False
    """Whether it may fail on arguments that the program never computes: no speculation."""
    ulps: Ulps = ROUNDED
    """The largest error allowed in C, for float results."""


_function = partial(Scalar, flops=1, costly=True)
"""Functions of the headers: their accuracy is ours to state, hardware does not define it."""

_SIGNED, _UNSIGNED = frozenset({Kind.SIGNED}), frozenset({Kind.UNSIGNED})
_integer = partial(Scalar, kinds=_SIGNED | _UNSIGNED)
_signed = partial(Scalar, kinds=_SIGNED)
_unsigned = partial(Scalar, kinds=_UNSIGNED)
_bits = partial(Scalar, kinds=frozenset({Kind.SIGNED, Kind.UNSIGNED, Kind.BOOL}))
_division = partial(Scalar, costly=True, trapping=True)
_typed = partial(Scalar, kinds=frozenset[Kind]())
"""Operations that depend on operand and result types: no network function names them alone."""
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
    _function("exp_nonpositive", ExpNonpositiveOp, np.exp, ulps=Ulps(0.51, 1, 1.5)),
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
    # Dot products of packed words
    _typed("dot", DotOp),
    _typed("sum_pairs", SumPairsOp, sum_pairs),
    # Table lookup
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
"""All operations of scalar bodies except constants, `tile.index` and `tile.element`."""

SCALARS: Mapping[type[Operation], Scalar] = {record.ir: record for record in RECORDS}


def named(kind: Kind) -> dict[str, type[Operation]]:
    """{name: operation} of functions that a single operation implements for elements of a kind."""
    return {record.name: record.ir for record in RECORDS if kind in record.kinds}


def is_costly(op: Operation) -> bool:
    """Whether an operation is too expensive to recompute."""
    return type(op) in SCALARS and SCALARS[type(op)].costly


def is_approximated(op: Operation) -> bool:
    """Whether C computes an operation by a polynomial: a long chain of dependent instructions."""
    record = SCALARS.get(type(op))
    return record is not None and record.costly and record.ulps not in (EXACT, ROUNDED)


def is_trapping(op: Operation) -> bool:
    return type(op) in SCALARS and SCALARS[type(op)].trapping


def on_lanes(op: Operation, operands: Sequence[SSAValue], lanes: int) -> Operation:
    """The vector form of `op`, for vector operands."""
    return SCALARS[type(op)].lanes(op, operands, lanes)


NARROW: tuple[Attribute, ...] = (BFloat16Type(), Float16Type(), i8)
"""Storage types of operands that contractions multiply and accumulate in f32."""


def widens(kind: Attribute, into: Attribute) -> bool:
    """Whether elements of type `kind` may be read as `into`, which represents all of them."""
    return kind == into or (kind in NARROW and into == Float32Type())


def widening(value: SSAValue, into: Attribute) -> Operation:
    """The operation that converts a scalar to the wider type."""
    assert isinstance(into, AnyFloat), "see widens"
    return (arith.SIToFPOp if isinstance(value.type, IntegerType) else arith.ExtFOp)(value, into)


def is_exact(value: SSAValue, kind: Attribute) -> bool:
    """
    Whether rounding a scalar or a vector to f16 or bf16 changes nothing.

    The value is a widened number of that type, a literal that the type has, or computed from such
    values by operations that are exact in the type, such as max. Other types are never exact: the
    negative of a float of 8 bits may have no number.
    """
    if not isinstance(kind, Float16Type | BFloat16Type):
        return False
    pending, seen = [value], {value}
    while pending:
        owner = pending.pop().owner
        sources: Sequence[SSAValue]
        if isinstance(owner, arith.ExtFOp):
            if _lane(owner.operands[0]) != kind:
                return False
            continue
        if isinstance(owner, arith.ConstantOp):
            literal = owner.value
            if not isinstance(literal, FloatAttr) or not _has(kind, literal.value.data):
                return False
            continue
        if isinstance(owner, arith.SelectOp | SelectOp):
            sources = owner.operands[1:]
        elif isinstance(owner, vector.BroadcastOp) or _is_exact_function(owner):
            sources = owner.operands
        else:
            return False
        pending += [source for source in sources if source not in seen]
        seen.update(sources)
    return True


def has_nan_of_bf16(value: SSAValue) -> bool:
    """
    Whether the lower half of any NaN of an f32 is 0, as in a widened bf16.

    Arithmetic returns the NaN of an operand, made quiet, or the processor's own, 0x7fc00000 or
    0xffc00000. Values that loops carry have such NaN if the first one has, and each next one.
    """
    pending, seen = [value], {value}
    while pending:
        sources = _sources_of_nan(pending.pop())
        if sources is None:
            return False
        pending += [source for source in sources if source not in seen]
        seen.update(sources)
    return True


def _sources_of_nan(value: SSAValue) -> Sequence[SSAValue] | None:
    """The values from which `value` may have a NaN; None if it may have one of any other bits."""
    owner = value.owner
    if isinstance(owner, Block):
        loop = owner.parent_op()
        number = owner.args.index(value) - 1
        return _carried(loop, number) if isinstance(loop, scf.ForOp) and number >= 0 else None
    match owner:
        case arith.ExtFOp():
            return () if _lane(owner.operands[0]) == bf16 else None
        case arith.ConstantOp():
            literal = owner.value
            is_number = isinstance(literal, FloatAttr) and literal.value.data == literal.value.data
            return () if is_number else None
        case DotOp():
            return (owner.total,) if owner.words.data == bf16.name else None
        case arith.SelectOp() | SelectOp():
            return owner.operands[1:]
        case scf.ForOp():
            return _carried(owner, owner.results.index(value))
        case vector.BroadcastOp() | vector.FMAOp() | math.FmaOp():
            return owner.operands
        case arith.AddfOp() | arith.SubfOp() | arith.MulfOp() | arith.DivfOp():
            return owner.operands
    return owner.operands if _is_exact_function(owner) else None


def _carried(loop: scf.ForOp, number: int) -> Sequence[SSAValue]:
    """The first and the next value that a loop carries."""
    last = loop.body.block.last_op
    assert last is not None, "verified"
    return loop.iter_args[number], last.operands[number]


def _is_exact_function(owner: Operation | Block) -> TypeGuard[Operation]:
    record = SCALARS.get(type(owner)) if isinstance(owner, Operation) else None
    return record is not None and record.ulps == EXACT


def _lane(value: SSAValue) -> Attribute:
    """The type of a scalar, or of the lanes of a vector."""
    return value.type.element_type if isinstance(value.type, VectorType) else value.type


def _has(kind: Attribute, number: float) -> bool:
    """Whether a float type has a number; all have NaN."""
    with np.errstate(over="ignore"):
        rounded = float(np.asarray(number, element_types.from_ir(kind).numpy))
    return rounded == number or number != number


MASK_BYTES = 1
"""The bytes of a mask lane on its own; next to other elements it takes their width."""


def lane_bytes(kind: Attribute) -> int:
    """The bytes of a vector lane; 0 for types that no vector holds."""
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
