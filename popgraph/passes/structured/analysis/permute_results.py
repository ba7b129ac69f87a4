"""Permutes the result axes of a contraction so that its reader reads in order."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr, AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import permutation, simplified, with_dims
from popgraph.dialects.tile.structured.ops import element, maps_attribute
from popgraph.passes.analysis.replace import replace_op
from popgraph.passes.structured.analysis.axis_orders import AxisOrder
from popgraph.support.laws import Proof, Rewrite
from popgraph.support.shapes import Shape

PERMUTE_RESULTS = Rewrite(
    "permute the loops of a contraction",
    "y = contract(...); z = map g(y[permuted])  ->  y = contract(...) permuted; z = map g(y)",
    Proof(construction="each sum has the same terms in the same order, at a permuted index"),
)


def read_in_order(map_: AffineMap, sizes: Shape) -> AxisOrder | None:
    """The axis of the operand that each loop covers; None if the map is not a permutation."""
    found = simplified(map_, sizes).results
    # Maps simplify such axes to 0. An axis of size 1 may be read along any loop of size 1.
    single = iter([dim for dim, size in enumerate(sizes) if size == 1])
    places = [
        result.position if isinstance(result, AffineDimExpr) else next(single, -1)
        for result in found
        if isinstance(result, AffineDimExpr) or result == AffineConstantExpr(0)
    ]
    if len(places) != len(found) or sorted(places) != list(range(len(sizes))):
        return None
    return tuple(places.index(dim) for dim in range(len(sizes)))


def permute_results(
    reader: tile.MapOp, number: int, op: tile.ReduceOp, order: AxisOrder
) -> tile.ReduceOp:
    """
    y = contract(...); z = map g(y[permuted])  ->  y = contract(...) permuted; z = map g(y)

    Axis `order[i]` of the contraction becomes axis i. Only operand `number` of the reader may read
    the contraction.
    """
    new = with_permuted_results(op, order)
    replace_op(op, new)
    maps = list(reader.input_maps)
    maps[number] = AffineMap.identity(len(reader.sizes))
    reader.properties["maps"] = maps_attribute(maps)
    return new


def with_permuted_results(op: tile.ReduceOp, order: AxisOrder) -> tile.ReduceOp:
    """The contraction with axis `order[i]` as axis i, without a schedule."""
    assert op.block is None, "operands of blocks depend on loop numbers, too"
    PERMUTE_RESULTS.fires()
    sequence = (*order, *range(op.parallel_rank, len(op.sizes)))
    new = tile.ReduceOp(
        op.inputs,
        renumbered(op.input_maps, sequence),
        [op.sizes[dim] for dim in sequence],
        op.parallel_rank,
        list(op.initial),
        op.body.clone(),
        op.epilogue.clone(),
        [element(value) for value in op.outputs],
        op.epilogue_inputs,
        renumbered(op.epilogue_input_maps, order),
        contracts=True,
    )
    new.location = op.location
    return new


def renumbered(maps: Sequence[AffineMap], sequence: AxisOrder) -> list[AffineMap]:
    """Maps over a domain whose dimension i is dimension `sequence[i]` of the old domain."""
    dims = permutation(sequence).results
    return [with_dims(map_, dims, len(dims)) for map_ in maps]
