"""Loop interchange: the candidate orders of a contraction's reduction loops."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from xdsl.ir.affine import AffineExpr, AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import permutation, simplified, with_dims
from popgraph.dialects.tile.running import running_of
from popgraph.support.memo import cached_property
from popgraph.support.shapes import Shape, prod
from popgraph.support.tuning import Target

LEAST_BLOCK = 8
"""Channels of the smallest block that is summed inside of a window."""


@dataclass(frozen=True)
class Order:
    """The domain of a contraction in one loop order, with the index maps of its operands."""

    sizes: Shape
    maps: tuple[AffineMap, ...]
    parallel: int

    @staticmethod
    def of(op: tile.ReduceOp) -> Order:
        """The current order of a contraction."""
        return Order(op.sizes, op.input_maps, op.parallel_rank)

    @property
    def without_single_steps(self) -> Order:
        """The same order without reduction loops of one step."""
        left = [*range(self.parallel), *self.reductions]
        dims: list[AffineExpr] = [AffineExpr.constant(0)] * len(self.sizes)
        for position, dim in enumerate(left):
            dims[dim] = AffineExpr.dimension(position)
        sizes = tuple(self.sizes[dim] for dim in left)
        maps = (with_dims(map_, dims, len(left)) for map_ in self.maps)
        return Order(sizes, tuple(simplified(map_, sizes) for map_ in maps), self.parallel)

    @cached_property
    def reductions(self) -> list[int]:
        """The reduction loops of more than one step, outermost first."""
        return [dim for dim in range(self.parallel, len(self.sizes)) if self.sizes[dim] > 1]

    @cached_property
    def innermost(self) -> int | None:
        """The innermost reduction loop, if any."""
        return next(reversed(self.reductions), None)


def orders(op: tile.ReduceOp, target: Target) -> Iterator[Order]:
    """
    Yields the current order and, for sliding windows, one with the window outside of channels.

    The window's loops then enclose a block of the innermost other reduction (channels), with
    window * block <= `chain_terms` if possible. Portable programs have settled their order before.
    """
    # With the window innermost, each step rereads an element of the neighbouring row. Compilers
    # keep these elements in registers that the sums need. 3x3 convolutions reach 90 % of peak with
    # channels innermost (3e997b3e).
    now = Order.of(op)
    yield now
    if target.portable:
        return
    if found := sliding_order(op, target) or _order_of_rows(op):
        yield found


def _order_of_rows(op: tile.ReduceOp) -> Order | None:
    """
    The order of a window with its rows innermost, if vectors run along its columns.

    A vector of pixels then serves one product in each row that the window covers.
    """
    now, pixels = Order.of(op), op.parallel_rank - 1
    columns = [dim for dim in now.reductions if _slides(now, dim, range(pixels, pixels + 1))]
    rows = [dim for dim in now.reductions if dim not in columns]
    if op.uses_loop_numbers or not columns or not rows or not all(_slides(now, d) for d in rows):
        return None
    sequence = [*range(op.parallel_rank), *columns, *rows]
    sequence += [dim for dim in range(len(now.sizes)) if dim not in sequence]
    maps = (with_dims(map_, permutation(sequence).results, len(sequence)) for map_ in now.maps)
    return Order(tuple(now.sizes[dim] for dim in sequence), tuple(maps), now.parallel)


def sliding_order(op: tile.ReduceOp, target: Target) -> Order | None:
    """The order of a sliding window outside of a block of channels, if there are both."""
    now = Order.of(op)
    if op.uses_loop_numbers:
        return None
    sliding = [dim for dim in now.reductions if _slides(now, dim)]
    others = [dim for dim in now.reductions if dim not in sliding]
    if not (sliding and others):
        return None
    return _blocked(now, sliding, others, target.tuning.chain_terms, running_of(op))


def _slides(order: Order, dim: int, along: Container[int] | None = None) -> bool:
    """Whether a reduction shares an index with a parallel loop, or one of the loops `along`."""
    loops = range(order.parallel) if along is None else along
    return any(
        dim in used and any(other in loops for other in used)
        for map_ in order.maps
        for used in (result.used_dims() for result in map_.results)
    )


def _blocked(
    order: Order, sliding: list[int], others: list[int], terms: int, running: Container[int]
) -> Order:
    """The order `[others...][last other / block][sliding...][block]`."""
    *before, inner = others
    size = order.sizes[inner]
    # Of 62 channels and a 3x3 window, 2 is the largest block up to 256 // 9: the window then
    # encloses all channels.
    most = max(LEAST_BLOCK, terms // prod(order.sizes[dim] for dim in sliding))
    block = max(part for part in range(1, size + 1) if size % part == 0 and part <= most)
    if inner in running:
        block = size  # No block divides every size that the loop may end at.
    if block < min(size, LEAST_BLOCK):
        block = size
    sequence = [*before, -1, *sliding, inner]
    first = order.parallel
    position = {dim: first + at for at, dim in enumerate(sequence)}
    lengths = [
        size // block if dim == -1 else block if dim == inner else order.sizes[dim]
        for dim in sequence
    ]
    dims: list[AffineExpr] = [AffineExpr.dimension(dim) for dim in range(first)]
    for dim in range(first, len(order.sizes)):
        if dim == inner:
            whole = AffineExpr.dimension(position[-1]) * block
            dims.append(whole + AffineExpr.dimension(position[inner]))
        elif dim in position:
            dims.append(AffineExpr.dimension(position[dim]))
        else:
            dims.append(AffineExpr.constant(0))
    sizes = (*order.sizes[:first], *lengths)
    maps = (with_dims(map_, dims, len(sizes)) for map_ in order.maps)
    return Order(sizes, tuple(simplified(map_, sizes) for map_ in maps), first)
