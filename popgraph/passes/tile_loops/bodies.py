"""How does a scalar body become part of a kernel, on scalars or on vectors?"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import Float32Type, Float64Type, TensorType
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.traits import is_side_effect_free

from popgraph.dialects import tile
from popgraph.passes.tile_loops.access import Place, element_index
from popgraph.passes.tile_loops.vectors import in_lanes, lanes_of
from popgraph.passes.tile_loops.writer import Writer, vector_of

LANEWISE: tuple[type[Operation], ...] = (
    arith.AddfOp,
    arith.SubfOp,
    arith.MulfOp,
    arith.DivfOp,
    arith.NegfOp,
    arith.MaximumfOp,
    arith.MinimumfOp,
    math.AbsFOp,
    math.ExpOp,
    math.ExpM1Op,
    math.LogOp,
    math.Log1pOp,
    math.SqrtOp,
    math.SinOp,
    math.CosOp,
    math.TanOp,
    math.AtanOp,
    math.TanhOp,
    math.ErfOp,
    math.PowFOp,
    math.FloorOp,
    math.CeilOp,
    math.RoundEvenOp,
    math.FmaOp,
)
"""What works on vectors as on scalars."""


def lane_type(types: Sequence[Attribute]) -> Attribute | None:
    """The one float type that vectors of these are made of, if there is one."""
    kinds = set(types)
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    return kind if isinstance(kind, Float32Type | Float64Type) else None


def lane_bytes(kind: Attribute) -> int:
    return 8 if isinstance(kind, Float64Type) else 4


def works_on_lanes(block: Block, kind: Attribute) -> bool:
    """Whether every operation of a body works on vectors of `kind`."""
    return all(_works_on_lanes(op, kind) for op in block.ops)


def _works_on_lanes(op: Operation, kind: Attribute) -> bool:
    match op:
        case tile.YieldOp():
            return True
        case arith.CmpfOp():
            return op.lhs.type == kind
        case arith.ConstantOp() | arith.SelectOp():
            return op.results[0].type == kind
    return isinstance(op, LANEWISE) and op.results[0].type == kind


def indexed_dims(block: Block) -> frozenset[int]:
    """The dimensions whose index a body asks for."""
    return frozenset(op.dim.value.data for op in block.ops if isinstance(op, tile.IndexOp))


def inline(place: Place, block: Block, arguments: Sequence[SSAValue]) -> list[SSAValue]:
    """
    Writes a body with these values for its arguments; gives what it yields.

    Operations with a vector among their operands work on vectors; the others stay scalar, and
    are written as far out as they can be.
    """
    writer = place.writer
    values: dict[SSAValue, SSAValue] = dict(zip(block.args, arguments, strict=True))
    for op in block.ops:
        operands = [values[operand] for operand in op.operands]
        match op:
            case tile.YieldOp():
                return operands
            case tile.IndexOp():
                values[op.result] = writer.value(place.where[op.dim.value.data])
            case tile.ElementOp():
                memory, *indices = operands
                type_ = op.table.type
                assert isinstance(type_, TensorType)
                index = element_index(writer, type_, indices)
                values[op.result] = writer.load_input(memory, index)
            case _:
                for old, new in zip(op.results, _written(writer, op, operands), strict=True):
                    values[old] = new
    raise AssertionError("a body ends with tile.yield")


def _written(writer: Writer, op: Operation, operands: Sequence[SSAValue]) -> list[SSAValue]:
    lanes = max(map(lanes_of, operands), default=0)
    if lanes and isinstance(op, arith.CmpfOp):
        lhs, rhs = (in_lanes(writer, value, lanes) for value in operands)
        return [writer.once(tile.CompareOp(op.predicate.value.data, lhs, rhs))]
    if lanes and isinstance(op, arith.SelectOp):
        condition, lhs, rhs = (in_lanes(writer, value, lanes) for value in operands)
        return [writer.once(tile.SelectOp(condition, lhs, rhs))]
    if lanes:
        operands = [in_lanes(writer, value, lanes) for value in operands]
    types = [vector_of(old.type, lanes) if lanes else old.type for old in op.results]
    clone = type(op).create(
        operands=operands,
        result_types=types,
        properties=op.properties.copy(),
        attributes=op.attributes.copy(),
    )
    if len(types) == 1 and is_side_effect_free(clone) and not isinstance(clone, _TRAPPING):
        return [writer.once(clone)]
    writer.do(clone)
    for result in clone.results:
        writer.depths[result] = len(writer.levels) - 1
    return list(clone.results)


_TRAPPING = (arith.DivSIOp, arith.DivUIOp, arith.RemSIOp, arith.RemUIOp)
