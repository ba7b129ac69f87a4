"""Which scalar operations may stand in bodies, what do they cost, and how do they run on lanes?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import (
    BFloat16Type,
    Float16Type,
    Float32Type,
    Float64Type,
    IndexType,
    IntegerType,
    i1,
)
from xdsl.ir import Attribute, Operation, SSAValue

from popgraph.dialects.tile.lanes import CompareOp, ConvertOp, RemainderOp, SelectOp, vector_of

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


def _convert(op: Operation, operands: Sequence[SSAValue], lanes: int) -> Operation:
    (operand,) = operands
    return ConvertOp(op.name, operand, vector_of(op.results[0].type, lanes))


@dataclass(frozen=True)
class Scalar:
    """What passes know about one operation on scalars."""

    on_lanes: OnLanes = _same
    costly: bool = False
    """It must not be computed twice."""
    trapping: bool = False
    """It may not run where the program would not have run it."""


_PLAIN, _COSTLY, _CONVERSION = Scalar(), Scalar(costly=True), Scalar(_convert)
_DIVISION = Scalar(costly=True, trapping=True)

SCALARS: Mapping[type[Operation], Scalar] = {
    arith.AddfOp: _PLAIN,
    arith.SubfOp: _PLAIN,
    arith.MulfOp: _PLAIN,
    arith.DivfOp: _COSTLY,
    arith.NegfOp: _PLAIN,
    arith.MaximumfOp: _PLAIN,
    arith.MinimumfOp: _PLAIN,
    arith.CmpfOp: Scalar(_compare),
    arith.SelectOp: Scalar(_select),
    arith.AddiOp: _PLAIN,
    arith.SubiOp: _PLAIN,
    arith.MuliOp: _PLAIN,
    arith.DivSIOp: _DIVISION,
    arith.DivUIOp: _DIVISION,
    arith.RemSIOp: _DIVISION,
    arith.RemUIOp: _DIVISION,
    arith.AndIOp: _PLAIN,
    arith.OrIOp: _PLAIN,
    arith.XOrIOp: _PLAIN,
    arith.ShLIOp: _PLAIN,
    arith.ShRSIOp: _PLAIN,
    arith.ShRUIOp: _PLAIN,
    arith.CmpiOp: Scalar(_compare),
    arith.MaxSIOp: _PLAIN,
    arith.MinSIOp: _PLAIN,
    arith.MaxUIOp: _PLAIN,
    arith.MinUIOp: _PLAIN,
    arith.IndexCastOp: _CONVERSION,
    arith.SIToFPOp: _CONVERSION,
    arith.UIToFPOp: _CONVERSION,
    arith.FPToSIOp: _CONVERSION,
    arith.FPToUIOp: _CONVERSION,
    arith.ExtFOp: _PLAIN,
    arith.TruncFOp: _PLAIN,
    arith.ExtSIOp: _CONVERSION,
    arith.ExtUIOp: _CONVERSION,
    arith.TruncIOp: _CONVERSION,
    arith.BitcastOp: _PLAIN,
    math.AbsFOp: _PLAIN,
    math.AbsIOp: _PLAIN,
    math.ExpOp: _COSTLY,
    math.ExpM1Op: _COSTLY,
    math.LogOp: _COSTLY,
    math.Log1pOp: _COSTLY,
    math.SqrtOp: _COSTLY,
    math.SinOp: _COSTLY,
    math.CosOp: _COSTLY,
    math.TanOp: _COSTLY,
    math.AtanOp: _COSTLY,
    math.Atan2Op: _COSTLY,
    math.AsinOp: _COSTLY,
    math.AcosOp: _COSTLY,
    math.SinhOp: _COSTLY,
    math.CoshOp: _COSTLY,
    math.AsinhOp: _COSTLY,
    math.AcoshOp: _COSTLY,
    math.AtanhOp: _COSTLY,
    math.TanhOp: _COSTLY,
    math.ErfOp: _COSTLY,
    math.PowFOp: _COSTLY,
    RemainderOp: _COSTLY,
    math.FloorOp: _PLAIN,
    math.CeilOp: _PLAIN,
    math.RoundEvenOp: _PLAIN,
    math.FmaOp: _PLAIN,
}
"""Every operation of scalar bodies but constants and what asks for an index or an element."""


def is_costly(op: Operation) -> bool:
    """Whether an operation must not be computed twice."""
    return type(op) in SCALARS and SCALARS[type(op)].costly


def is_trapping(op: Operation) -> bool:
    return type(op) in SCALARS and SCALARS[type(op)].trapping


def on_lanes(op: Operation, operands: Sequence[SSAValue], lanes: int) -> Operation:
    """What does to vectors (all operands are) what `op` does to scalars."""
    return SCALARS[type(op)].on_lanes(op, operands, lanes)


MASK_BYTES = 4
"""A lane of a vector of booleans, whatever it was made of."""


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
