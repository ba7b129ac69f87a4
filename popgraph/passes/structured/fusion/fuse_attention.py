"""Fusion of attention: both products and the softmax between them, some rows at a time."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.rewriter import Rewriter

from popgraph.dialects import tile
from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.program import graphs_of
from popgraph.dialects.tile.affine import selection
from popgraph.dialects.tile.attributes import ScheduleAttr
from popgraph.dialects.tile.structured.fused import keeps_leading, readings
from popgraph.passes.analysis.replace import insert_made_for
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options
from popgraph.passes.structured.analysis.axis_orders import AxisOrder
from popgraph.passes.structured.analysis.loops import is_cut_evenly, tensor
from popgraph.passes.structured.analysis.operand_maps import movement
from popgraph.passes.structured.analysis.permute_results import renumbered, with_permuted_results
from popgraph.passes.structured.fusion.join import join
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target


@dataclass(frozen=True)
class FuseAttention(Pass):
    """
    Attention keeps the scores of a few rows at a time: both products join the softmax between them.

    s = q k; p = fused { softmax s }; y = p v  ->  y = fused steps n { s = q k; softmax; y = p v }
    """

    name = "fuse-attention"
    TOLERANCE = 1e-5
    target: Target = Target()

    @classmethod
    def of(cls, options: Options) -> FuseAttention:
        return cls(options.target)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for graph in graphs_of(module):
            for op in list(graph.block.ops):
                if isinstance(op, tile.FusedOp):
                    found = attention_of(op, self.target)
                    if found is not None:
                        found.join()


@dataclass(frozen=True)
class Attention:
    """A product, the softmax of its rows, and a product of that."""

    scores: tile.ReduceOp
    softmax: tile.FusedOp
    mixed: tile.ReduceOp
    order: AxisOrder
    """The parallel loops of the second product, those of the softmax first."""
    step: int
    """How many rows run together."""

    def join(self) -> None:
        """Fuses the products with the softmax; a result in another order is copied after it."""
        mixed = _with_order(self.mixed, self.order)
        rows = self.softmax.sizes
        join((self.scores, self.softmax, mixed), rows, (*[1] * (len(rows) - 1), self.step))


def _with_order(op: tile.ReduceOp, order: AxisOrder) -> tile.ReduceOp:
    """Replaces a product by one of rows, whose result is copied if it has other axes."""
    new, old = _of_rows(op, order), op.outputs[0]
    if new is op:
        return op
    insert_made_for(op, new)
    (result,) = new.outputs
    if order != tuple(range(len(order))):
        copied = movement(result, selection(order), tensor(old).get_shape())
        insert_made_for(op, copied)
        (result,) = copied.outputs
    result.name_hint = old.name_hint
    old.replace_all_uses_with(result)
    Rewriter.erase_op(op)
    return new


def attention_of(softmax: tile.FusedOp, target: Target) -> Attention | None:
    """The attention around a softmax, if it pays to fuse it."""
    shared = len(softmax.sizes)
    if softmax.loops is not None or len(softmax.outputs) != 1 or shared < 2:
        return None
    if not softmax.outputs[0].has_one_use():
        return None
    (use,) = softmax.outputs[0].uses
    mixed = use.operation
    makers = [value.owner for value in softmax.inputs if tile.is_contraction(value.owner)]
    if not tile.is_contraction(mixed) or use.index > 1:
        return None
    for scores in makers:
        order = _order(mixed, use.index, softmax)
        if order is not None and _is_row_product(scores, softmax, target):
            step = _step(scores, mixed, softmax, target)
            if step and _is_cut(scores, range(shared)) and _is_cut(mixed, order[:shared]):
                return Attention(scores, softmax, mixed, order, step)
    return None


def _is_row_product(scores: tile.ReduceOp, softmax: tile.FusedOp, target: Target) -> bool:
    """Whether a product makes rows that only the softmax reads."""
    (value,) = scores.outputs
    shared = len(softmax.sizes)
    argument = softmax.body.block.args[list(softmax.inputs).index(value)]
    return (
        value.has_one_use()
        and scores.sizes[:shared] == softmax.sizes
        and scores.parallel_rank == shared + 1
        and list(softmax.inputs).count(value) == 1
        and all(
            keeps_leading(map_, op.sizes, shared)
            for op in softmax.members
            for operand, map_ in readings(op)
            if operand is argument
        )
        and prod(scores.sizes[: shared + 1]) * element_bytes(value.type)
        > target.l2(target.tuning.attention_scores_l2)
        and _is_whole(scores)
        and not _is_k_outer(scores)
    )


def _order(mixed: tile.ReduceOp, number: int, softmax: tile.FusedOp) -> AxisOrder | None:
    """The parallel loops of a product of rows with those of the softmax first."""
    map_ = mixed.input_maps[number]
    shared = len(softmax.sizes)
    used = [sorted(result.used_dims()) for result in map_.results[:shared]]
    parallel = range(mixed.parallel_rank)
    singles = [dim for dim in parallel if mixed.sizes[dim] == 1]
    first = [dims[0] if len(dims) == 1 else (singles or [-1])[0] for dims in used]
    if len(set(first)) != shared or not set(first) <= set(parallel):
        return None
    order = (*first, *[dim for dim in parallel if dim not in first])
    if not _is_whole(mixed) or mixed.schedule is None or mixed.schedule.n_dim.data in first:
        return None
    sequence = (*order, *range(len(order), len(mixed.sizes)))
    (permuted_map,) = renumbered([map_], sequence)
    sizes = tuple(mixed.sizes[dim] for dim in sequence)
    return order if keeps_leading(permuted_map, sizes, shared) else None


def _is_whole(op: tile.ReduceOp) -> bool:
    """Whether all panels of a product are full, so that a part of it reads nothing beyond."""
    schedule = op.schedule
    return (
        schedule is not None
        and not op.numbers_loops
        and schedule.m_outer_dim.data < 0
        and op.sizes[schedule.n_dim.data] % schedule.nr == 0
        and len(op.outputs) == 1
    )


def _is_k_outer(op: tile.ReduceOp) -> bool:
    """Whether a product goes through all rows for each chunk of terms."""
    return op.schedule is not None and bool(op.schedule.k_outer.data)


def _step(
    scores: tile.ReduceOp, mixed: tile.ReduceOp, softmax: tile.FusedOp, target: Target
) -> int:
    """
    How many rows fit into local memory: whole blocks of them; 0 when there is no gain.

    Of long rows a block may take more, if such blocks are all: factors go by once for each one.
    """
    row = scores.sizes[len(softmax.sizes)] * element_bytes(scores.outputs[0].type)
    tuning = target.tuning
    fitting = min(target.l2(tuning.attention_rows_l2), tuning.most_local_bytes // 2) // (2 * row)
    block = max(_block(scores), _block(mixed))
    if fitting < block:
        local = min(target.l2(tuning.attention_block_l2), tuning.most_local_bytes)
        even = [rows for rows in range(1, block + 1) if softmax.sizes[-1] % rows == 0]
        fitting = max(fitting, *[rows for rows in even if 2 * rows * row <= local], 0)
    rows = min(softmax.sizes[-1], fitting)
    return rows // block * block if rows > block else rows


def _block(op: tile.ReduceOp) -> int:
    assert op.schedule is not None
    return op.schedule.mr.data


def _is_cut(op: tile.ReduceOp, loops: range | AxisOrder) -> bool:
    """Whether iterations of these loops are evenly apart in every operand."""
    return is_cut_evenly(op.mapped[: len(op.operands)], op.sizes, dict.fromkeys(loops, 1))


def _of_rows(op: tile.ReduceOp, order: AxisOrder) -> tile.ReduceOp:
    """The same product with its parallel loops in another order, for few rows at a time."""
    schedule = op.schedule
    assert schedule is not None
    is_in_order = order == tuple(range(len(order)))
    if is_in_order and not _is_k_outer(op):
        return op
    new = op.clone() if is_in_order else with_permuted_results(op, order)
    numbers = schedule.numbers
    for name in ("n_dim", "m_dim"):
        if numbers[name] >= 0:
            numbers[name] = order.index(numbers[name])
    new.properties["schedule"] = ScheduleAttr.of(**{**numbers, "k_outer": 0})
    return new
