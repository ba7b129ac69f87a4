"""Where does a program tell that data brought indices out of range? In outputs of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects import element_types
from popgraph.dialects.graphcore import (
    AddOp,
    CastOp,
    CheckIndicesOp,
    CompareOp,
    ReduceMaxOp,
    WhereOp,
)
from popgraph.dialects.graphcore.base import Operand, dtype_of, integer, shape_of
from popgraph.dialects.program import ConstantOp, DataAttr, GraphOp, ReturnOp
from popgraph.passes.base import Compilation, Pass
from popgraph.support import dtypes
from popgraph.support.dtypes import DType
from popgraph.support.index_checks import IndexCheck

WIDE = dtypes.BY_NAME["i64"]
"""The type in which all indices can be compared."""


@dataclass(frozen=True)
class CheckIndices(Pass):
    """
    Indices that data brings are used as they are; an output tells whether they are in range.

    y = gather(x, check_indices(i))  ->  y = gather(x, i), output reduce_max(unsigned(i - low))
    """

    name = "check-indices"

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for graph in [op for op in module.body.block.ops if isinstance(op, GraphOp)]:
            for op in [op for op in graph.block.ops if isinstance(op, CheckIndicesOp)]:
                _move_to_outputs(graph, op)


def _move_to_outputs(graph: GraphOp, op: CheckIndicesOp) -> None:
    before, outputs = graph.return_op, graph.outputs
    checks: list[IndexCheck] = [*before.index_checks]
    if 0 not in shape_of(op.indices):  # Where there are none, none is out of range.
        check = op.check(_free_name(op, outputs.keys()))
        with ImplicitBuilder(Builder(InsertPoint.before(op))):
            outputs[check.output] = largest(op)
        checks.append(check)
    op.result.replace_all_uses_with(op.indices)
    outputs = {name: op.indices if value is op.result else value for name, value in outputs.items()}
    Rewriter.erase_op(before)
    graph.block.add_op(ReturnOp(list(outputs.values()), list(outputs), checks))
    Rewriter.erase_op(op)


def _free_name(op: CheckIndicesOp, taken: object) -> str:
    """A name that no output has."""
    assert hasattr(taken, "__contains__")
    name = f"check of {op.place.text}"
    while name in taken:
        name += "'"
    return name


def largest(op: CheckIndicesOp) -> SSAValue:
    """For each of the bounds, the largest of `index - low` as an unsigned number."""
    indices: Operand = op.indices
    exact = op.ignored is None and dtype_of(indices).name == "i32"
    if not exact and dtype_of(indices).name != "i64":
        indices = CastOp(indices, to=element_types.to_ir(WIDE))
    if op.ignored is not None:
        counts = CompareOp(indices, _literal(integer(op.ignored), WIDE), "ne")
        indices = WhereOp(counts, indices, _literal(op.low.data[0], WIDE))
    unsigned = dtypes.BY_NAME["u32" if exact else "u64"]
    places: Operand = CastOp(indices, to=element_types.to_ir(unsigned))
    steps = [-low for low in op.low.data]
    if any(steps):
        places = AddOp(places, _literal(steps[0] if len(steps) == 1 else steps, unsigned))
    rank = len(shape_of(op.indices))
    axes = range(rank if len(steps) == 1 else rank - 1)
    return ReduceMaxOp(places, axes=axes, keepdims=False).result if axes else SSAValue.get(places)


def _literal(numbers: int | list[int], dtype: DType) -> ConstantOp:
    """Whole numbers as the type has them, which may be what they wrap around to."""
    return ConstantOp(DataAttr.of(np.asarray(np.array(numbers, np.int64).astype(dtype.numpy))))
