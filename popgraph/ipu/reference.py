"""Interprets mapped operations: each tile computes only from its own and received elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.backends.reference.graph import RUNNERS, Run
from popgraph.backends.reference.memory import literal_value, numpy_dtype, unwritten
from popgraph.backends.reference.scalars import function_of
from popgraph.backends.reference.structured import (
    Body,
    Indices,
    combine_at,
    in_order,
    take,
)
from popgraph.dialects import tile
from popgraph.dialects.tile.structured.combiners import combiners_of, identity_of
from popgraph.dialects.tile.structured.ops import element, yielded
from popgraph.ipu.mapping import Boxes, pieces_of
from popgraph.ipu.stages import (
    Stage,
    is_mapped,
    mapping_of,
    own_loops,
    own_mapping,
    result_mapping,
    stages,
)
from popgraph.support.arrays import Array
from popgraph.support.shapes import Shape, prod

Window = tuple[slice, ...]


class TileOperands:
    """The elements that one tile can read in a stage: its own, and those it receives."""

    def __init__(self, op: Operation, memories: Sequence[Array], stage: Stage, piece: int) -> None:
        self._op, self._memories = op, memories
        self._masks = [
            self._stored_mask(operand, int(stage.pieces.tiles[piece])) for operand in op.operands
        ]
        for read in stage.reads:
            for box in read.boxes:
                self._masks[read.operand][box.window(piece)] = True
        for operand in stage.looked_up:
            self._masks[operand][...] = True

    def _stored_mask(self, operand: SSAValue, tile_: int) -> Array:
        """Mask of the elements of an operand that a tile stores."""
        held = mapping_of(operand)
        assert held.sizes == operand.type.get_shape(), f"the mapping of another shape: {self._op}"  # type: ignore[attr-defined]
        mask = np.zeros(held.sizes, np.bool_)
        pieces = pieces_of(held)
        for piece in np.flatnonzero(pieces.tiles == tile_).tolist():
            for box in pieces.boxes:
                mask[box.window(piece)] = True
        return mask

    def at(self, operand: int, indices: Indices) -> Any:
        """The elements of an operand at indices; asserts that the tile has all of them."""
        here = take(self._op, self._masks[operand], indices)
        assert np.all(here), f"operand {operand} is read where no tile sent it: {self._op}"
        return self._memories[operand][tuple(indices)]

    def read_by_maps(
        self, operands: Sequence[int], maps: Sequence[AffineMap], at: Indices
    ) -> list[Any]:
        return [
            self.at(operand, map_.eval(at, ()))
            for operand, map_ in zip(operands, maps, strict=True)
        ]

    def checked(
        self, operands: Sequence[int], maps: Sequence[AffineMap], at: Indices
    ) -> Callable[[Indices], list[Any]]:
        """Reads like `through`, but checks all indices at once in advance."""
        self.read_by_maps(operands, maps, at)
        arrays = [self._memories[operand] for operand in operands]

        def read(indices: Indices) -> list[Any]:
            return [
                array[tuple(map_.eval(indices, ()))]
                for array, map_ in zip(arrays, maps, strict=True)
            ]

        return read

    def whole_table(self, operand: int) -> Array:
        """A table that is indexed by data, so that the tile needs all of it."""
        assert self._masks[operand].all()
        return self._memories[operand]

    def window(self, operand: int, window: Window) -> Array:
        return np.asarray(self.at(operand, _grid(window)))


class TileResults:
    """Results that tiles write piece by piece; each element must be written exactly once."""

    def __init__(self, op: Operation) -> None:
        self._op = op
        shape = op.results[0].type.get_shape()  # type: ignore[attr-defined]
        assert result_mapping(op).sizes == shape, f"the mapping of another shape: {op}"
        self.arrays = [
            unwritten(result.type.get_shape(), numpy_dtype(result.type))  # type: ignore[attr-defined]
            for result in op.results
        ]
        self._written = np.zeros(shape, np.int64)

    def write(self, window: Window, values: Sequence[Any]) -> None:
        self._written[window] += 1
        for array, value in zip(self.arrays, values, strict=True):
            assert np.asarray(value).dtype == array.dtype, f"a tile makes another type: {self._op}"
            array[window] = value

    def done(self) -> list[Array]:
        assert np.all(self._written == 1), f"an element is on no tile, or on two: {self._op}"
        return self.arrays


def _grid(window: Window) -> tuple[Array, ...]:
    """The indices of a box, as arrays that broadcast together."""
    return tuple(np.ogrid[window]) if window else ()


def _windows(boxes: Sequence[Boxes], piece: int) -> list[Window]:
    """The nonempty boxes of a piece."""
    return [box.window(piece) for box in boxes if box.volumes[piece]]


def run_map(op: tile.MapOp, *memories: Array) -> list[Array]:
    (stage,) = stages(op)
    results, body = TileResults(op), Body(op.body.block)
    inputs = range(len(op.inputs))
    for piece in range(len(stage.pieces.tiles)):
        held = TileOperands(op, memories, stage, piece)
        tables = [held.whole_table(number) for number in stage.looked_up]
        for window in _windows(stage.pieces.boxes, piece):
            indices = _grid(window)
            read = held.read_by_maps(inputs, op.input_maps, indices)
            results.write(window, body(indices, [*read, *tables]))
    return results.done()


def run_reduce(op: tile.ReduceOp, *memories: Array) -> list[Array]:
    assert not op.uses_loop_numbers, "tiles keep integers, and sum them at once"
    count = len(op.inputs)
    body, combiners = Body(op.body.block), combiners_of(op.body.block, count)

    def start(first: bool, shape: Shape) -> list[Any]:
        return [
            np.full(
                shape,
                literal_value(
                    initial if first or combiner is None else identity_of(combiner, initial),
                    initial.type,
                ),
                numpy_dtype(initial.type),
            )
            for initial, combiner in zip(op.initial, combiners, strict=True)
        ]

    def step(indices: Indices, read: Sequence[Any], totals: Sequence[Any]) -> list[Any]:
        return body(indices, [*read, *totals])

    def join(totals: Sequence[Any], others: Sequence[Any]) -> list[Any]:
        if tile.is_contraction(op):
            return [totals[0] + others[0]]
        assert None not in combiners, f"partial results cannot be combined: {op}"
        return [
            function_of(value.owner)(total, other)  # type: ignore[arg-type]
            for value, total, other in zip(yielded(op.body.block), totals, others, strict=True)
        ]

    return _run_reducing(op, memories, count, start, step, join)


def _run_reducing(
    op: tile.ReduceOp,
    memories: Sequence[Array],
    count: int,
    start: Callable[[bool, Shape], list[Any]],
    step: Callable[[Indices, Sequence[Any], Sequence[Any]], list[Any]],
    join: Callable[[Sequence[Any], Sequence[Any]], list[Any]],
) -> list[Array]:
    """Computes partial results on the tiles of the domain, then reduces them in runs."""
    partial, finish = stages(op)
    rank, boxes = op.parallel_rank, partial.pieces.boxes[0]
    partials = []
    for piece in range(len(partial.pieces.tiles)):
        held = TileOperands(op, memories, partial, piece)
        window = boxes.window(piece)
        parallel = _grid(window[:rank])
        shape = tuple(side.stop - side.start for side in window[:rank])
        totals = start(piece % finish.joined == 0, shape)
        read = held.checked(range(count), op.input_maps, _grid(window))
        for reduction in np.ndindex(*(side.stop - side.start for side in window[rank:])):
            at = (side.start + i for side, i in zip(window[rank:], reduction, strict=True))
            indices = (*parallel, *at)
            if prod(shape):
                totals = step(indices, read(indices), totals)
        partials.append(totals)
    results, epilogue = TileResults(op), Body(op.epilogue.block)
    epilogue_inputs = range(count, len(op.operands))
    runs = len(finish.pieces.tiles) * finish.joined // len(partials)
    for piece in range(len(finish.pieces.tiles)):
        group = piece // runs * finish.joined
        origin = boxes.low[group][:rank].tolist()
        held = TileOperands(op, memories, finish, piece)
        for window in _windows(finish.pieces.boxes, piece):
            inner = tuple(
                slice(side.start - low, side.stop - low)
                for side, low in zip(window, origin, strict=True)
            )
            parts = partials[group : group + finish.joined]
            totals, *others = [[np.asarray(one)[inner] for one in each] for each in parts]
            for other in others:
                totals = join(totals, other)
            indices = _grid(window)
            beside = held.read_by_maps(epilogue_inputs, op.epilogue_input_maps, indices)
            results.write(window, epilogue(indices, [*totals, *beside]))
    return results.done()


def run_scatter(op: tile.ScatterOp, *memories: Array) -> list[Array]:
    (stage,) = stages(op)
    results, body, count = TileResults(op), Body(op.body.block), len(op.inputs)
    shape = op.output.type.get_shape()
    for piece in range(len(stage.pieces.tiles)):
        held = TileOperands(op, memories, stage, piece)
        for window in _windows(stage.pieces.boxes, piece):
            total = np.zeros(shape, numpy_dtype(op.output.type))
            if op.initial is not None:
                total[window] = held.window(count, window)
            domain = _domain(op, window)
            indices = _grid(domain)
            if all(side.stop > side.start for side in domain):
                read = held.read_by_maps(range(count), op.input_maps, indices)
                extent = tuple(side.stop - side.start for side in domain)
                *places, value = (
                    np.broadcast_to(result, extent).reshape(-1) for result in body(indices, read)
                )
                here = np.logical_and.reduce(
                    [
                        (place >= side.start) & (place < side.stop)
                        for place, side in zip(places, window, strict=True)
                    ],
                    initial=True,
                )
                here = np.broadcast_to(here, value.shape)
                combine_at(op, total, [place[here] for place in places], value[here])
            results.write(window, [total[window]])
    return results.done()


def _domain(op: tile.ScatterOp, window: Window) -> Window:
    """The iterations that may write to a box of the result."""
    domain = [slice(0, size) for size in op.sizes]
    for side, loop in zip(window, own_loops(op), strict=True):
        if loop is not None:
            start, end = domain[loop].start, domain[loop].stop
            domain[loop] = slice(max(start, side.start), min(end, side.stop))
    return tuple(domain)


def run_top_k(op: tile.TopKOp, memory: Array) -> list[Array]:
    (stage,) = stages(op)
    results = TileResults(op)
    for piece in range(len(stage.pieces.tiles)):
        held = TileOperands(op, [memory], stage, piece)
        for window in _windows(stage.pieces.boxes, piece):
            rows = held.window(0, (window[0], slice(0, op.sizes[1])))
            results.write(window, [in_order(op, rows)[:, window[1]]])
    return results.done()


def run_assemble(op: tile.AssembleOp, *memories: Array) -> list[Array]:
    (stage,) = stages(op)
    results = TileResults(op)
    fill = literal_value(op.fill, element(op.output))
    for piece in range(len(stage.pieces.tiles)):
        held = TileOperands(op, memories, stage, piece)
        for window in _windows(stage.pieces.boxes, piece):
            whole = np.full(
                [side.stop - side.start for side in window], fill, numpy_dtype(op.output.type)
            )
            for number, (value, offsets, steps) in enumerate(op.placements()):
                _insert(held, number, value, offsets, steps, window, whole)
            results.write(window, [whole])
    return results.done()


def _insert(
    held: TileOperands,
    number: int,
    value: SSAValue,
    offsets: Shape,
    steps: Shape,
    window: Window,
    whole: Array,
) -> None:
    """Copies the part of a piece that lies in a box of the result."""
    assert isinstance(value.type, TensorType)
    sources, targets = [], []
    for size, offset, step, side in zip(
        value.type.get_shape(), offsets, steps, window, strict=True
    ):
        places = offset + np.arange(size) * step
        inside = np.flatnonzero((places >= side.start) & (places < side.stop))
        sources.append(inside)
        targets.append(places[inside] - side.start)
    if all(len(source) for source in sources):
        whole[np.ix_(*targets)] = held.at(number, np.ix_(*sources))
    elif not sources:
        whole[()] = held.at(number, ())


def run_view(op: tile.ViewOp, memory: Array) -> list[Array]:
    (stage,) = stages(op)
    results = TileResults(op)
    shape = own_mapping(op).sizes
    assert isinstance(op.source.type, TensorType)
    for piece in range(len(stage.pieces.tiles)):
        held = TileOperands(op, [memory], stage, piece)
        for window in _windows(stage.pieces.boxes, piece):
            if shape:
                numbers = np.ravel_multi_index(np.broadcast_arrays(*_grid(window)), shape)
            else:
                numbers = np.array(0)
            source = op.source.type.get_shape()
            places = np.unravel_index(numbers, source) if source else ()
            results.write(window, [held.at(0, places)])
    return results.done()


_MAPPED: dict[type[Operation], Callable[..., list[Array]]] = {
    tile.MapOp: run_map,
    tile.ReduceOp: run_reduce,
    tile.ScatterOp: run_scatter,
    tile.TopKOp: run_top_k,
    tile.AssembleOp: run_assemble,
    tile.ViewOp: run_view,
}


def runner_on_tiles(op: Operation) -> Run | None:
    """The interpreter of a mapped operation; None for sources, which compute nothing."""
    run = _MAPPED.get(type(op)) if is_mapped(op) else None
    return None if run is None else partial(run, op)


RUNNERS.append(runner_on_tiles)
