"""Which neighbouring loops of a contraction are one loop in disguise?"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineExpr, AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import simplified
from popgraph.dialects.tile.attributes import layout_of
from popgraph.dialects.tile.structured import element
from popgraph.passes.readings import retype
from popgraph.passes.tile_loops.access import tensor
from popgraph.support.shapes import Shape


class Operand:
    """An operand with its index map, both changing as loops are joined."""

    def __init__(self, value: SSAValue, map_: AffineMap, sizes: Shape) -> None:
        self.value = value
        self.shape: Shape = tensor(value).get_shape()
        self.fixed = layout_of(tensor(value)) is not None
        self.results = list(simplified(map_, sizes[: map_.num_dims]).results)

    def pair(self, dim: int, sizes: Shape) -> int | None:
        """Where `dim` and the next stand side by side, whole and alone; -1 if neither is used."""
        users = [
            at for at, result in enumerate(self.results) if {dim, dim + 1} & result.used_dims()
        ]
        if not users:
            return -1
        first = users[0]
        alone = users == [first, first + 1] and not self.fixed
        if not alone or [_dim(self.results[at]) for at in users] != [dim, dim + 1]:
            return None
        return first if self.shape[first : first + 2] == sizes[dim : dim + 2] else None

    def join(self, dim: int, at: int, rank: int) -> None:
        """`dim` and the next of `rank` become one."""
        if at >= 0:
            size = self.shape[at] * self.shape[at + 1]
            self.shape = (*self.shape[:at], size, *self.shape[at + 2 :])
            del self.results[at + 1]
        renumbered = [AffineExpr.dimension(old if old <= dim else old - 1) for old in range(rank)]
        self.results = [result.replace_dims_and_symbols(renumbered, ()) for result in self.results]


def _dim(result: AffineExpr) -> int | None:
    return result.position if isinstance(result, AffineDimExpr) else None


def collapse(op: tile.ContractOp) -> tile.ContractOp:
    """
    Joins loops that every operand walks through as one, by views of the operands.

    A 1x1 convolution over 56 rows of 56 pixels becomes a product over 3136 pixels.
    """
    sizes, parallel = op.sizes, op.parallel_rank
    identity = AffineMap.identity(parallel)
    extra_maps = [attribute.data for attribute in op.extra_maps]
    values = [op.lhs, op.rhs, *op.extras, *op.outputs]
    maps = [*op.input_maps, *extra_maps, *[identity] * len(op.outputs)]
    operands = [Operand(value, map_, sizes) for value, map_ in zip(values, maps, strict=True)]
    laid_out = any(layout_of(tensor(value)) for value in op.outputs)
    dim = parallel if laid_out else 0
    while dim + 1 < len(sizes):
        places = [operand.pair(dim, sizes) for operand in operands]
        if dim + 1 == parallel or None in places:
            dim += 1
            continue
        for operand, at in zip(operands, places, strict=True):
            assert at is not None
            operand.join(dim, at, len(sizes))
        sizes = (*sizes[:dim], sizes[dim] * sizes[dim + 1], *sizes[dim + 2 :])
        parallel -= dim + 1 < parallel
    return op if sizes == op.sizes else _rebuilt(op, operands, sizes, parallel)


def _rebuilt(
    op: tile.ContractOp, operands: Sequence[Operand], sizes: Shape, parallel: int
) -> tile.ContractOp:
    inputs = 2 + len(op.extras)
    before: list[Operation] = []
    values = []
    for operand in operands[:inputs]:
        value = operand.value
        if tensor(value).get_shape() != operand.shape:
            view = tile.ViewOp(value, operand.shape)
            before.append(view)
            value = view.output
        values.append(value)
    maps = [AffineMap(len(sizes), 0, tuple(operand.results)) for operand in operands[:2]]
    extra_maps = [AffineMap(parallel, 0, tuple(o.results)) for o in operands[2:inputs]]
    new = tile.ContractOp(
        values[0],
        values[1],
        maps,
        sizes,
        parallel,
        op.finish.clone(),
        [element(value) for value in op.outputs],
        values[2:],
        extra_maps,
    )
    after = [
        tile.ViewOp(value, tensor(old).get_shape())
        for value, old in zip(new.outputs, op.outputs, strict=True)
    ]
    for old, output, view in zip(op.outputs, new.outputs, after, strict=True):
        if layout_of(tensor(old)):  # Its dimensions are as they were.
            retype(output, tensor(old))
            retype(view.output, tensor(old))
    for made in (*before, new, *after):
        made.location = op.location
        Rewriter.insert_op(made, InsertPoint.before(op))
    for old, view in zip(op.outputs, after, strict=True):
        view.output.name_hint = old.name_hint
        old.replace_all_uses_with(view.output)
    op.detach()
    op.erase()
    return new
