"""Merging of operations over the same elements into one that has several results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects import tile
from popgraph.dialects.program import UpdateOp, graphs_of
from popgraph.dialects.tile.affine import reads_whole
from popgraph.dialects.tile.structured.combiners import combiners_of
from popgraph.dialects.tile.structured.ops import element
from popgraph.passes.analysis.replace import located
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.properties import UNCUT, UNSCHEDULED
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.operand_maps import (
    MappedOperands,
    is_movement,
    moved,
    without_repeats,
)
from popgraph.passes.structured.fusion.join import dependants
from popgraph.support.laws import Proof, Rewrite
from popgraph.support.tuning import Tuning

MERGE = Rewrite(
    "merge maps",
    "y = map f(x); z = map g(y, e)  ->  y, z = map { f(x), g(f(x), e) }",
    Proof(construction="g gets the element of y that its index map, the identity, reads"),
)

EXTREMES = frozenset({arith.MinimumfOp, arith.MaximumfOp})
MERGE_EXTREMES = Rewrite(
    "merge extremes",
    "a = min x; b = max x  ->  a, b = reduce { min x, max x }",
    Proof(construction="each accumulator takes the same numbers as before"),
)


@dataclass(frozen=True)
class MergeMaps(Pass):
    """
    Merges a map that computes the next value of a variable with a map that reads this value.

    y = map f(x); z = map g(y, e)  ->  y, z = map { f(x), g(f(x), e) }

    The state of an optimizer and its weight are then updated in one pass over memory: Adam reads
    and writes seven tensors instead of ten. Both extremes of a tensor, from which
    DynamicQuantizeLinear computes its scale, are found in one pass, too.
    """

    name = "merge-maps"
    NEEDS = (UNSCHEDULED, UNCUT)
    AFTER = ("fuse-epilogue",)
    BEFORE = ("assign-layouts",)
    tuning: Tuning = Tuning()

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for graph in graphs_of(module):
            for op in list(graph.block.ops):
                reader = op if isinstance(op, tile.MapOp) else None
                while reader is not None:
                    found = next(self._mergeable(reader), None)
                    reader = None if found is None else merge(found, reader)
            _merge_extremes(graph.block)

    def _mergeable(self, reader: tile.MapOp) -> Iterator[tile.MapOp]:
        """Producers of the operands that may be merged with their reader."""
        for value in dict.fromkeys(reader.inputs):
            producer = value.owner
            if (
                isinstance(producer, tile.MapOp)
                and producer.parent is reader.parent
                and self._is_small(producer, reader)
                and _may_merge(producer, reader)
            ):
                yield producer

    def _is_small(self, producer: tile.MapOp, reader: tile.MapOp) -> bool:
        inputs = len({*producer.inputs, *reader.inputs})
        length = sum(len(one.body.block.ops) for one in (producer, reader))
        return inputs <= self.tuning.most_inputs and length <= self.tuning.longest_body


def _may_merge(producer: tile.MapOp, reader: tile.MapOp) -> bool:
    """Whether a reader has the elements of its producer, which nothing between them reads."""
    both = (producer, reader)
    return (
        all(map(_is_stored, producer.outputs))
        and producer.sizes == reader.sizes
        and 0 not in reader.sizes
        and not any(one.tables or is_movement(one) for one in both)
        and all(
            reads_whole(tensor(value), map_, reader.sizes)
            for value, map_ in zip(reader.inputs, reader.input_maps, strict=True)
            if value.owner is producer
        )
        and not any(dependants(both))
    )


def _is_stored(value: SSAValue) -> bool:
    return any(isinstance(use.operation, UpdateOp) for use in value.uses)


def merge(producer: tile.MapOp, reader: tile.MapOp) -> tile.MapOp:
    """Replaces two maps by one, at the position of the reader."""
    MERGE.fires()
    values, maps, body = _joined(
        producer,
        _Body(producer.body.block, producer.inputs, producer.input_maps),
        _Body(reader.body.block, reader.inputs, reader.input_maps),
    )
    operands = without_repeats(MappedOperands(reader.sizes, values, maps, body))
    assert operands.body is not None
    kinds = [element(value) for value in (*producer.outputs, *reader.outputs)]
    new = tile.MapOp(operands.values, operands.maps, reader.sizes, Region(operands.body), kinds)
    _replace_both(producer, reader, new, InsertPoint.before(reader))
    return new


def _merge_extremes(block: Block) -> None:
    """Merges reductions of the same tensor to its minimum and its maximum."""
    seen = dict[tuple[object, ...], tile.ReduceOp]()
    for op in list(block.ops):
        if isinstance(op, tile.ReduceOp) and _finds_extremes(op):
            key = *op.inputs, *op.input_maps, op.sizes
            earlier = seen.get(key)
            is_ready = earlier is not None and _is_ready(op, earlier)
            seen[key] = merge_reductions(earlier, op) if earlier and is_ready else op


def _finds_extremes(op: tile.ReduceOp) -> bool:
    """Whether a reduction finds extremes of whole tensors. They do not depend on their order."""
    combiners = combiners_of(op.body.block, len(op.inputs))
    return op.parallel_rank == 0 and EXTREMES.issuperset(combiners)


def _is_ready(op: tile.ReduceOp, earlier: tile.ReduceOp) -> bool:
    """Whether a reduction can be computed together with an earlier one."""
    return all(
        value.owner is earlier
        or not isinstance(value.owner, Operation)
        or value.owner.is_before_in_block(earlier)
        for value in op.epilogue_inputs
    )


def merge_reductions(earlier: tile.ReduceOp, op: tile.ReduceOp) -> tile.ReduceOp:
    """Replaces two reductions of the same tensors by one, at the position of the earlier one."""
    MERGE_EXTREMES.fires()
    count, both = len(op.inputs), (earlier, op)
    totals = [[total.type for total in one.body.block.args[count:]] for one in both]
    body = Block(arg_types=[*map(element, op.inputs), *totals[0], *totals[1]])
    ends = count + len(totals[0])
    found = moved(body, earlier.body.block, body.args[:ends])
    found += moved(body, op.body.block, (*body.args[:count], *body.args[ends:]))
    body.add_op(tile.YieldOp(*found))
    values, maps, epilogue = _joined(
        earlier,
        *(
            _Body(one.epilogue.block, one.epilogue_inputs, one.epilogue_input_maps, kinds)
            for one, kinds in zip(both, totals, strict=True)
        ),
    )
    new = tile.ReduceOp(
        op.inputs,
        op.input_maps,
        op.sizes,
        0,
        [*earlier.initial, *op.initial],
        Region(body),
        Region(epilogue),
        [element(value) for value in (*earlier.outputs, *op.outputs)],
        values,
        maps,
    )
    _replace_both(earlier, op, new, InsertPoint.before(earlier))
    return new


@dataclass(frozen=True)
class _Body:
    """A body, the operands whose elements it takes, and the types of totals before these."""

    block: Block
    inputs: Sequence[SSAValue]
    maps: Sequence[AffineMap]
    totals: Sequence[Attribute] = ()


def _joined(
    producer: Operation, first: _Body, second: _Body
) -> tuple[tuple[SSAValue, ...], tuple[AffineMap, ...], Block]:
    """
    The operands of both bodies, their maps, and the body that yields the results of both.

    The second body takes results of the first one where it reads those of the `producer`.
    """
    read = zip(second.inputs, second.maps, strict=True)
    others = [one for one in read if one[0].owner is not producer]
    values = (*first.inputs, *(value for value, _ in others))
    maps = (*first.maps, *(map_ for _, map_ in others))
    body = Block(arg_types=[*first.totals, *second.totals, *map(element, values)])
    fresh = iter(body.args)
    early, late, own = (
        list(islice(fresh, len(one))) for one in (first.totals, second.totals, first.inputs)
    )
    made = moved(body, first.block, (*early, *own))
    # A use of the results: `moved` erases a rounding that loses its last one.
    held = tile.YieldOp(*made)
    made_of = dict[SSAValue, SSAValue](zip(producer.results, made, strict=True))
    arguments = [made_of.get(value) or next(fresh) for value in second.inputs]
    results = moved(body, second.block, (*late, *arguments))
    body.add_op(tile.YieldOp(*held.operands, *results))
    held.erase()
    return values, maps, body


def _replace_both(first: Operation, second: Operation, new: Operation, place: InsertPoint) -> None:
    """Replaces two operations by another one. The second operation may read the first one."""
    located(new, second, first)
    Rewriter.insert_op(new, place)
    for old, result in zip((*first.results, *second.results), new.results, strict=True):
        result.name_hint = old.name_hint
        old.replace_uses_with_if(result, lambda use: use.operation is not second)
    for op in (second, first):
        op.detach()
        op.erase()
