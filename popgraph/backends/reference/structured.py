"""Interprets structured operations: parallel loops vectorized, reductions in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from xdsl.dialects.builtin import i64
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.backends.reference.bodies import Frame, Scope, Step, Vocabulary, steps_of, yielded
from popgraph.backends.reference.memory import (
    grid,
    literal_value,
    numpy_dtype,
    to_logical,
    to_physical,
)
from popgraph.dialects import tile
from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.tile.attributes import halo_of, layout_of, physical_shape
from popgraph.dialects.tile.running import Extent, running_of
from popgraph.dialects.tile.structured.ops import element
from popgraph.dialects.tile.structured.winograd import Tiling
from popgraph.support.arrays import Array
from popgraph.support.ranks.world import exchange_if
from popgraph.support.shapes import Shape, prod

Indices: TypeAlias = Sequence[Any]
"""An index along each dimension of a domain: ints, or arrays that broadcast together."""


class Body:
    """A region of scalar operations, applied to whole arrays."""

    def __init__(self, block: Block) -> None:
        scope = Scope()
        self._arguments = [scope.slot(argument) for argument in block.args]
        self._steps = steps_of(block, scope, BODY)
        self._results = yielded(block, scope)
        self._indices = scope.slot(INDICES)
        self._scope = scope

    def __call__(self, indices: Indices, arguments: Sequence[Any]) -> list[Any]:
        frame = self._scope.frame()
        frame[self._indices] = indices
        for slot, value in zip(self._arguments, arguments, strict=True):
            frame[slot] = value
        for step in self._steps:
            step(frame)
        return [frame[slot] for slot in self._results]


INDICES = "the current indices"


def index_step(op: tile.IndexOp, scope: Scope) -> Step:
    indices, result, dim = scope.slot(INDICES), scope.slot(op.result), op.dim.value.data

    def step(frame: Frame) -> None:
        frame[result] = frame[indices][dim]

    return step


def element_step(op: tile.ElementOp, scope: Scope) -> Step:
    table, result = scope.slot(op.table), scope.slot(op.result)
    indices = [scope.slot(index) for index in op.indices]

    def step(frame: Frame) -> None:
        frame[result] = take(op, frame[table], [frame[index] for index in indices])

    return step


BODY: Vocabulary = {tile.IndexOp: index_step, tile.ElementOp: element_step}
"""The non-scalar operations of bodies."""


def take(op: Operation, array: Array, indices: Indices) -> Any:
    """The elements at `indices`, which must be in range: NumPy would wrap negative ones."""
    for dim, (index, size) in enumerate(zip(indices, array.shape, strict=True)):
        index = np.asarray(index)
        if index.size and not (index.min() >= 0 and index.max() < size):
            raise AssertionError(
                f"index {index.min()} to {index.max()} is outside dimension {dim} of a tensor "
                f"of shape {list(array.shape)}: {op}"
            )
    return array[tuple(indices)]


class Access:
    """A reader of an operation's operands through their maps."""

    def __init__(
        self,
        op: Operation,
        values: Sequence[SSAValue],
        maps: Sequence[AffineMap],
        memories: Sequence[Array],
    ) -> None:
        self._op = op
        self._maps = list(maps)
        self._arrays = logical(values, memories)
        for number, (value, memory) in enumerate(zip(values, memories, strict=True)):
            layout = layout_of(value.type)  # type: ignore[arg-type]
            if layout is not None and halo_of(value.type) is not None:  # type: ignore[arg-type]
                self._arrays[number] = memory  # Maps may reach into the halo.
                self._maps[number] = layout.map.data.compose(maps[number])

    def __call__(self, indices: Indices) -> list[Any]:
        return [
            take(self._op, array, map_.eval(indices, ()))
            for array, map_ in zip(self._arrays, self._maps, strict=True)
        ]


def logical(values: Sequence[SSAValue], memories: Sequence[Array]) -> list[Array]:
    """The memories of values as arrays in logical order."""
    return [
        to_logical(memory, value.type)  # type: ignore[arg-type]
        for value, memory in zip(values, memories, strict=True)
    ]


def stored(op: Operation, results: Sequence[Any]) -> tuple[Array, ...]:
    """Results broadcast to the result types and stored in their layouts."""
    made = []
    for value, result in zip(op.results, results, strict=True):
        shape: Shape = value.type.get_shape()  # type: ignore[attr-defined]
        full = np.array(np.broadcast_to(result, shape))
        assert full.dtype == numpy_dtype(value.type), f"a body yields {full.dtype}: {op}"
        made.append(to_physical(full, value.type))  # type: ignore[arg-type]
    return tuple(made)


@contextmanager
def with_fewer_terms(op: Operation, sizes: Mapping[int, int]) -> Iterator[Operation]:
    """A copy whose reduction loops end at these sizes; parallel loops keep their bounds."""
    made = op.clone()
    for inner in made.walk():
        if isinstance(inner, tile.ReduceOp | tile.ScatterOp):
            ends = {at: end.at(sizes) for at, end in running_of(inner).items()}
            domain = [
                ends.get(at, size) if at >= inner.parallel_rank else size
                for at, size in enumerate(inner.sizes)
            ]
            inner.properties["domain"] = IntsAttr.of(domain)
    yield made
    made.drop_all_references()


def ends_of_results(op: Operation) -> list[Mapping[int, Extent]]:
    """For each result, the ends of the axes whose loop ends at a size."""
    ends = running_of(op)
    if isinstance(op, tile.FusedOp):
        loops = dict(zip(op.members, op.shared, strict=True))
        last = [one for value in op.yielded if isinstance(one := value.owner, tile.Member)]
        by_member = [
            {**running_of(one), **{loops[one][at]: end for at, end in ends.items()}} for one in last
        ]
        return [
            one.result_ends(ends) if isinstance(one, tile.TransformTilesOp) else ends
            for one, ends in zip(last, by_member, strict=True)
        ]
    if isinstance(op, tile.TransformTilesOp):
        return [op.result_ends(ends)]
    if isinstance(op, tile.ScatterOp):
        ends = {at: end for at, end in ends.items() if at < op.parallel_rank}
    return [ends] * len(op.results)


def up_to_ends(
    op: Operation, memories: Sequence[Array], sizes: Mapping[int, int]
) -> tuple[Array, ...]:
    """Results with arbitrary elements (NaN or 0) after the ends of loops at these sizes."""
    arrays = [np.array(array) for array in logical(op.results, memories)]
    for array, ends in zip(arrays, ends_of_results(op), strict=True):
        # Integers become 0: indices must be in range, since parallel loops run to their bounds.
        nothing = 0 if array.dtype.kind in "biu" else np.nan
        for axis, end in ends.items():
            if axis < array.ndim:
                array[(slice(None),) * axis + (slice(end.at(sizes), None),)] = nothing
    return stored(op, arrays)


def empty(op: Operation) -> tuple[Array, ...]:
    """Empty results."""
    return stored(op, [np.zeros((), numpy_dtype(result.type)) for result in op.results])


def run_map(op: tile.MapOp, *memories: Array) -> tuple[Array, ...]:
    count = len(op.inputs)
    if prod(op.sizes) == 0:
        return empty(op)
    read = Access(op, op.inputs, op.input_maps, memories[:count])
    tables = logical(op.tables, memories[count:])
    indices = grid(op.sizes)
    return stored(op, Body(op.body.block)(indices, [*read(indices), *tables]))


def finished(
    op: tile.ReduceOp | tile.TransformTilesOp,
    epilogue: Region,
    sizes: Shape,
    totals: Sequence[Any],
    memories: Sequence[Array],
) -> tuple[Array, ...]:
    """The results of the epilogue on final accumulators and epilogue inputs."""
    maps = op.epilogue_input_maps
    indices = grid(sizes)
    epilogue_inputs = Access(op, op.epilogue_inputs, maps, memories)(indices)
    return stored(op, Body(epilogue.block)(indices, [*totals, *epilogue_inputs]))


def run_reduce(op: tile.ReduceOp, *memories: Array) -> tuple[Array, ...]:
    count, outer = len(op.inputs), op.sizes[: op.parallel_rank]
    if prod(outer) == 0:
        return empty(op)
    read, body = Access(op, op.inputs, op.input_maps, memories[:count]), Body(op.body.block)
    start = [
        np.full(outer, literal_value(initial, initial.type), numpy_dtype(initial.type))
        for initial in op.initial
    ]
    parallel = grid(outer)

    def fold(*before: int) -> list[Any]:
        """The accumulators after a reduction with its first loops fixed at these indices."""
        totals: list[Any] = start
        for rest in np.ndindex(*op.sizes[op.parallel_rank + len(before) :]):
            indices = (*parallel, *before, *rest)
            totals = body(indices, [*read(indices), *totals])
        return totals

    last = len(op.operands) - len(op.block_inputs)
    totals = fold() if op.block is None else [in_blocks(op, fold, memories[last:])]
    return finished(op, op.epilogue, outer, totals, memories[count:last])


def in_blocks(
    op: tile.ReduceOp, fold: Callable[..., list[Any]], memories: Sequence[Array]
) -> Array:
    """The total over blocks of a contraction, with the block region applied to each sum."""
    assert op.block is not None
    body, outer = Body(op.block.block), op.sizes[: op.parallel_rank]
    read = Access(op, op.block_inputs, op.block_input_maps, memories)
    total: Array = np.zeros(outer, numpy_dtype(op.total_type))
    for block in np.ndindex(*op.sizes[op.parallel_rank : op.blocked_rank]):
        indices = (*grid(outer), *block)
        (added,) = body(indices, [*fold(*block), *read(indices)])
        total = total + added
    return total


def run_scatter(op: tile.ScatterOp, *memories: Array) -> tuple[Array, ...]:
    type_ = op.output.type
    count, total = len(op.inputs), np.zeros(type_.get_shape(), numpy_dtype(type_))
    if op.initial is not None:
        total[...] = logical([op.initial], memories[count:])[0]
    if prod(op.sizes):
        indices = grid(op.sizes)
        read = Access(op, op.inputs, op.input_maps, memories[:count])
        *places, value = (
            np.broadcast_to(result, op.sizes).reshape(-1)
            for result in Body(op.body.block)(indices, read(indices))
        )
        check_leading(op, places)
        take(op, total, places)  # checks bounds
        combine_at(op, total, places, value)
    return (to_physical(total, type_),)


def combine_at(op: tile.ScatterOp, total: Array, places: Sequence[Array], values: Array) -> None:
    """Combines every value into the element at its index, in order."""
    if op.combine is None:
        at: Any = tuple(places)
        np.add.at(total, at, values)
        return
    combine = Body(op.combine.block)
    for *place, value in zip(*places, values, strict=True):
        (total[tuple(place)],) = combine((), [total[tuple(place)], value])


def check_leading(op: tile.ScatterOp, places: Sequence[Array]) -> None:
    """Asserts that parallel loops write at their own index: otherwise they would race."""
    own = np.indices(op.sizes).reshape(len(op.sizes), -1)
    for dim in range(op.parallel_rank):
        assert np.array_equal(places[dim], own[dim]), f"index {dim} is not the loop's own: {op}"


def run_top_k(op: tile.TopKOp, memory: Array) -> tuple[Array, ...]:
    (rows,) = logical([op.rows], [memory])
    order = in_order(op, rows)[:, : op.count]
    return (to_physical(order, op.output.type),)


def in_order(op: tile.TopKOp, rows: Array) -> Array:
    """The positions of each row's elements, by descending key."""
    (keys,) = Body(op.body.block)((), [rows])
    unsigned = np.ascontiguousarray(keys).view(np.uint64 if op.key == i64 else np.uint32)
    found: Array = np.argsort(np.invert(unsigned), axis=-1, kind="stable").astype(np.int64)
    return found


def run_positions(op: tile.PositionsOp, memory: Array) -> tuple[Array, ...]:
    (mask,) = logical([op.mask], [memory])
    found = np.zeros(mask.shape, np.int64)
    positions = np.flatnonzero(mask)
    found[: len(positions)] = positions
    return stored(op, [found, np.int64(len(positions))])


def run_compress(op: tile.CompressOp, *memories: Array) -> tuple[Array, ...]:
    data, positions, count = logical([*op.operands], memories)
    kept = np.take(data, positions[: int(count)], op.axis.value.data).reshape(-1)
    return (np.concatenate([kept, np.zeros(prod(op.sizes) - len(kept), kept.dtype)]),)


def run_segments(op: tile.SegmentsOp, *memories: Array) -> tuple[Array, ...]:
    rows, starts, ends = logical([*op.operands], memories)
    body, kind = Body(op.body.block), element(op.rows)
    found = np.full(op.sizes, literal_value(op.initial, kind), numpy_dtype(kind))
    for number, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        for row in rows[start:end]:
            (found[number],) = body((), [row, found[number]])
    return (to_physical(found, op.output.type),)


def run_order(op: tile.OrderOp, memory: Array) -> tuple[Array, ...]:
    (keys,) = logical([op.keys], [memory])
    spare = [np.zeros((), numpy_dtype(value.type)) for value in (op.sorting, op.places)]
    return stored(op, [np.argsort(keys, kind="stable").astype(np.int64), *spare])


def run_suppress(op: tile.SuppressOp, *memories: Array) -> tuple[Array, ...]:
    boxes, keys, limit, threshold = logical([*op.operands], memories)
    suppresses, (batches, rows, _) = Body(op.body.block), op.sizes
    boxes = np.stack(Body(op.corners.block)((), [*np.moveaxis(boxes, -1, 0)]), axis=-1)
    found = np.full((batches, rows, op.count), -1, np.int64)
    for batch, row in np.ndindex(batches, rows):
        kept: list[int] = []
        order = np.argsort(~keys[batch, row], kind="stable")[: np.count_nonzero(keys[batch, row])]
        for at in order.tolist():
            if len(kept) >= min(op.count, int(limit)):
                break
            sides = [*boxes[batch, kept].T, *boxes[batch, [at] * len(kept)].T]
            (over,) = suppresses((), [*sides, np.broadcast_to(threshold, len(kept))])
            if not np.any(over):
                kept.append(at)
        found[batch, row, : len(kept)] = kept
    spare = [np.zeros((), numpy_dtype(value.type)) for value in (op.heap, op.kept)]
    return stored(op, [found, *spare])


def run_assemble(op: tile.AssembleOp, *memories: Array) -> tuple[Array, ...]:
    type_ = op.output.type
    dtype = numpy_dtype(type_)
    whole = np.full(type_.get_shape(), literal_value(op.fill, type_.element_type), dtype)
    pieces = logical(op.pieces, memories)
    for piece, (_, offsets, steps) in zip(pieces, op.placements(), strict=True):
        window = tuple(
            slice(offset, offset + (size - 1) * step + 1 if size else offset, step)
            for offset, step, size in zip(offsets, steps, piece.shape, strict=True)
        )
        whole[window] = piece
    return (to_physical(whole, type_),)


def run_view(op: tile.ViewOp, memory: Array) -> tuple[Array, ...]:
    kind = numpy_dtype(op.output.type)
    seen = memory if memory.dtype == kind else np.ascontiguousarray(memory).reshape(-1).view(kind)
    return (seen.reshape(physical_shape(op.output.type)),)


def run_relayout(op: tile.PackOp, memory: Array) -> tuple[Array, ...]:
    elements = to_logical(memory, op.source.type)  # type: ignore[arg-type]
    return (to_physical(elements, op.output.type),)


def run_transform_tiles(op: tile.TransformTilesOp, x: Array, *others: Array) -> tuple[Array, ...]:
    matrix = np.array(op.matrix.data).astype(x.dtype)
    if op.epilogue is None:
        tiles = _image_tiles(op, x)
        made = np.asarray(np.einsum("ai,bj,tijc->abtc", matrix, matrix, tiles))
        return stored(op, [made.reshape(op.output.type.get_shape())])
    tiles = to_logical(x, op.x.type).reshape(op.side, op.side, *op.sizes[:2])  # type: ignore[arg-type]
    made = np.asarray(np.einsum("ia,jb,abtk->tijk", matrix, matrix, tiles))
    shape = op.output.type.get_shape()
    return finished(op, op.epilogue, shape, [_joined_tiles(op, shape, made)], others)


def _image_tiles(op: tile.TransformTilesOp, x: Array) -> Array:
    """The source tiles of images, `[tile, row, column, channel]`."""
    number, *inside = grid((op.tiling.count, op.side, op.side, op.channels))
    indices: list[Any] = [*_corner(op.tiling, number), *inside]
    (tiles,) = Access(op, [op.x], [op.window], [x])(indices)
    if op.shares_elements:
        return np.asarray(tiles)
    first = _first_with_element(op.tiling)[..., None]
    return np.asarray(np.where(first, tiles, tiles.dtype.type(0)))


def _joined_tiles(op: tile.TransformTilesOp, shape: Shape, tiles: Array) -> Array:
    """Assembles tiles into images; where tiles overlap, the first one wins."""
    tiling = op.tiling
    number, row, column = grid((tiling.count, tiling.size, tiling.size))
    n, y, x = _corner(tiling, number)
    indices = np.broadcast_arrays(n, y + row, x + column)
    first = _first_with_element(tiling)
    images = np.zeros(shape, tiles.dtype)
    images[tuple(index[first] for index in indices)] = tiles[first]
    return images


def _first_with_element(tiling: Tiling) -> Array:
    """Whether a tile is the first that covers an element, by tile, row and column."""
    number: Any
    number, row, column = grid((tiling.count, tiling.size, tiling.size))
    _, *corner = _corner(tiling, number)
    _, *steps = tiling.steps.eval([number], ())
    down, right = (step * tiling.size - at for step, at in zip(steps, corner, strict=True))
    return np.asarray((row >= down) & (column >= right))


def _corner(tiling: Tiling, number: Any) -> tuple[Any, ...]:
    """The image, first row and first column of each tile."""
    image, *steps = tiling.steps.eval([number], ())
    starts = zip(steps, tiling.last, strict=True)
    return image, *(np.minimum(step * tiling.size, last) for step, last in starts)


def run_fused(op: tile.FusedOp, *memories: Array) -> tuple[Array, ...]:
    values: dict[SSAValue, Array] = dict(zip(op.body.block.args, memories, strict=True))
    for inner in op.members:
        results = STRUCTURED[type(inner)](inner, *(values[operand] for operand in inner.operands))
        values |= zip(inner.results, results, strict=True)
    return tuple(values[value] for value in op.yielded)


def run_start_exchange(
    op: tile.StartExchangeOp, memory: Array, when: Array | None = None
) -> tuple[Array, ...]:
    return (exchange_if(op.exchange, memory.reshape(-1), when),)


def run_finish_exchange(op: tile.FinishExchangeOp, memory: Array, *_: Array) -> tuple[Array, ...]:
    return (memory,)


STRUCTURED: dict[type[Operation], Callable[..., tuple[Array, ...]]] = {
    tile.MapOp: run_map,
    tile.ReduceOp: run_reduce,
    tile.ScatterOp: run_scatter,
    tile.TopKOp: run_top_k,
    tile.PositionsOp: run_positions,
    tile.CompressOp: run_compress,
    tile.SuppressOp: run_suppress,
    tile.OrderOp: run_order,
    tile.SegmentsOp: run_segments,
    tile.AssembleOp: run_assemble,
    tile.ViewOp: run_view,
    tile.PackOp: run_relayout,
    tile.FusedOp: run_fused,
    tile.TransformTilesOp: run_transform_tiles,
    tile.StartExchangeOp: run_start_exchange,
    tile.FinishExchangeOp: run_finish_exchange,
}
