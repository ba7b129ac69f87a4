"""The lowering from graphcore to structured operations, one rule per kind of operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects import tile
from popgraph.dialects.graphcore.base import GraphcoreOp
from popgraph.passes.analysis.repeats import Repeats
from popgraph.passes.analysis.replace import made_for
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.graphcore.to_structured import (
    contractions,
    elementwise,
    exchange,
    lookup,
    lower_movement,
    lower_reductions,
    order,
    outline_bodies,
    phases,
    random,
    windows,
)
from popgraph.passes.properties import (
    CHECKED,
    DENSE,
    EXPANDED,
    ONE_GRAPH,
    SPREAD,
    UNCUT,
    UNSCHEDULED,
)
from popgraph.support.tuning import Tuning

__all__ = ["GraphcoreToStructured"]

RULES: Mapping[type, Callable[[Any], SSAValue]] = {
    gc.Elementwise: elementwise.lower_elementwise,
    gc.ReduceSumOp: lower_reductions.lower_reduction,
    gc.ReduceMaxOp: lower_reductions.lower_reduction,
    gc.ReduceMinOp: lower_reductions.lower_reduction,
    gc.ReduceProdOp: lower_reductions.lower_reduction,
    gc.ArgMaxOp: lower_reductions.lower_position,
    gc.ArgMinOp: lower_reductions.lower_position,
    gc.ArgTopKOp: order.lower_arg_top_k,
    gc.CompressOp: order.lower_compress,
    gc.SuppressOp: order.lower_suppress,
    gc.ReduceSegmentsOp: order.lower_reduce_segments,
    gc.ArgSortOp: lambda op: tile.OrderOp(op.keys, op.bits.value.data).positions,
    gc.MatMulOp: contractions.lower_mat_mul,
    gc.ConvOp: contractions.lower_conv,
    gc.DotMatMulOp: contractions.lower_mat_mul,
    gc.DotConvOp: contractions.lower_conv,
    gc.DotConvWeightGradOp: contractions.lower_conv_weight_grad,
    gc.MatMulInPairsOp: contractions.lower_mat_mul_in_pairs,
    gc.ConvInPairsOp: contractions.lower_conv_in_pairs,
    gc.PartsOp: contractions.lower_parts,
    gc.ConvWeightGradOp: contractions.lower_conv_weight_grad,
    gc.MaxPoolOp: windows.lower_max_pool,
    gc.MaxPoolGradOp: windows.lower_max_pool_grad,
    gc.AveragePoolOp: windows.lower_average_pool,
    gc.AveragePoolGradOp: windows.lower_average_pool_grad,
    gc.ReshapeOp: lower_movement.lower_reshape,
    gc.TransposeOp: lower_movement.lower_transpose,
    gc.BroadcastOp: lower_movement.lower_broadcast,
    gc.SliceOp: lower_movement.lower_slice,
    gc.InsertOp: lower_movement.lower_insert,
    gc.ConcatOp: lower_movement.lower_concat,
    gc.PadOp: lower_movement.lower_pad,
    gc.CheckIndicesOp: lambda op: op.indices,
    gc.LaterOp: lambda op: op.x,
    gc.GatherOp: lookup.lower_gather,
    gc.GatherGradOp: lookup.lower_gather_grad,
    gc.ScatterOp: lookup.lower_scatter,
    gc.IotaOp: lookup.lower_iota,
    gc.ExchangeOp: exchange.lower_exchange,
    gc.RandomUniformOp: random.lower_random_uniform,
}
"""The lowering of each operation or kind of operations (under an implicit builder)."""

TUNED: Mapping[type, Callable[[Any, Tuning], SSAValue]] = {
    gc.ConvInputGradOp: phases.lower_by_phases,
    gc.DotConvInputGradOp: phases.lower_by_phases,
}
"""Lowerings that choose between several forms by `Tuning`."""

REPEATED = (
    *(gc.Elementwise, gc.ReduceSumOp, gc.ReduceMaxOp, gc.MatMulOp, gc.ConvOp),
    *(gc.TransposeOp, gc.ReshapeOp, gc.BroadcastOp, gc.SliceOp, gc.ConcatOp, gc.PadOp),
)
"""Operations that are often equal: of the 527 operations of ConvNeXt-tiny, 111 differ."""


@dataclass(frozen=True)
class GraphcoreToStructured(Pass):
    """
    graphcore.add, mat_mul, conv, ...  ->  tile.map, tile.reduce, tile.scatter, tile.assemble, ...

    Only composites that expand kept stay unchanged. Bodies of branches and loops become graphs of
    the module, which are called.
    """

    name = "graphcore-to-structured"
    TOLERANCE = 1e-5
    NEEDS = (EXPANDED, SPREAD, CHECKED)
    GIVES = (UNSCHEDULED, DENSE, UNCUT)
    LOSES = (ONE_GRAPH,)

    tuning: Tuning = Tuning()

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        outliner = outline_bodies.Outliner(module)
        for op in list(module.walk()):
            if isinstance(op, gc.Control):
                outliner.outline(op)
        repeats = Repeats(REPEATED)
        for op in list(module.walk()):
            if isinstance(op, GraphcoreOp) and not isinstance(op, gc.Composite):
                lower(op, self.tuning, repeats)


def lower(op: GraphcoreOp, tuning: Tuning, repeats: Repeats) -> None:
    """Replaces `op` by tile operations."""
    copied = repeats.copied(op)
    if copied is not None:
        (value,) = copied
    else:
        with made_for(op) as made:
            value = lowered(op, tuning)
        for new in made:
            for inner in new.walk():
                inner.location = op.location
        repeats.note(op, made, [value])
    (result,) = op.results
    assert value.type == result.type, f"{op.name} became {value.type}, not {result.type}"
    if result.name_hint and not value.name_hint:
        value.name_hint = result.name_hint
    result.replace_all_uses_with(value)
    op.detach()
    op.erase()


def lowered(op: GraphcoreOp, tuning: Tuning) -> SSAValue:
    if type(op) in TUNED:
        return TUNED[type(op)](op, tuning)
    return next(RULES[kind] for kind in type(op).__mro__ if kind in RULES)(op)
