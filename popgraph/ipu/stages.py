"""The stages of a mapped operation: the work of each tile, and the elements that it reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import ArrayAttr, TensorType
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue
from xdsl.ir.affine import AffineBinaryOpKind, AffineDimExpr, AffineMap

from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.locations import source
from popgraph.dialects.program import GraphOp, UpdateOp, VariableOp
from popgraph.dialects.tile.affine import Linear, linear, reads_whole
from popgraph.dialects.tile.mapping import MappingAttr
from popgraph.dialects.tile.structured.combiners import combiners_of
from popgraph.dialects.tile.structured.layouts import AssembleOp, ViewOp
from popgraph.dialects.tile.structured.ops import (
    IndexOp,
    MapOp,
    ScatterOp,
    TopKOp,
    yielded,
)
from popgraph.dialects.tile.structured.reduce import ReduceOp, is_contraction
from popgraph.ipu.mapping import (
    NAME,
    Boxes,
    Pieces,
    interval_boxes,
    is_linear,
    of_leading,
    pieces_of,
    reshaped,
)
from popgraph.support.arrays import Array
from popgraph.support.errors import UnsupportedError
from popgraph.support.shapes import Shape

INPUTS = "input_mappings"
"""Graph attribute with the mappings of its inputs."""
RESULTS = "result_mappings"
"""Attribute of a branch or loop with the mappings of its results."""

WORD = 4
"""Bytes of the widest number on an IPU."""
GRAIN_BYTES = 8
"""Runs are multiples of a vector, so that no vector is written by two tiles."""


@dataclass(frozen=True)
class OperandRead:
    """The elements of an operand that each piece of work reads: a union of boxes."""

    operand: int
    boxes: tuple[Boxes, ...]

    def missing(self, pieces: Pieces, held: MappingAttr) -> Array:
        """Upper bound of the elements that each piece reads and its tile does not store."""
        have = _stored_on(held, pieces.tiles)
        alone = sum((_count_outside(box, have) for box in self.boxes), np.zeros(1, np.int64))
        around = self.bounding_box
        return np.minimum(alone, _count_outside(around, have))

    @property
    def bounding_box(self) -> Boxes:
        """The bounding box of the elements that each piece reads."""
        if len(self.boxes) == 1:
            return self.boxes[0]
        full = [box.volumes[:, None] > 0 for box in self.boxes]
        lows = [
            np.where(some, box.low, np.iinfo(np.int64).max)
            for some, box in zip(full, self.boxes, strict=True)
        ]
        highs = [np.where(some, box.high, 0) for some, box in zip(full, self.boxes, strict=True)]
        low, high = np.minimum.reduce(lows), np.maximum.reduce(highs)
        return Boxes(np.minimum(low, high), high)


@dataclass(frozen=True)
class Stage:
    """Work of all tiles after one exchange, over one index space."""

    pieces: Pieces
    reads: tuple[OperandRead, ...]
    looked_up: tuple[int, ...] = ()
    """Operands that are indexed by data."""
    joined: int = 1
    """Number of partial results per index, each on its own tile."""


def mapping_of(value: SSAValue) -> MappingAttr:
    """The mapping of a value."""
    if isinstance(value, BlockArgument):
        return _listed(value.block.parent_op(), INPUTS, value.index)
    assert isinstance(value, OpResult)
    if RESULTS in value.op.attributes:
        return _listed(value.op, RESULTS, value.index)
    return result_mapping(value.op)


def _listed(op: Operation | None, name: str, index: int) -> MappingAttr:
    """A mapping from the list of a graph's inputs or of a call's results."""
    assert op is not None
    mappings = op.attributes[name]
    assert isinstance(mappings, ArrayAttr)
    found = mappings.data[index]
    assert isinstance(found, MappingAttr)
    return found


def is_mapped(op: Operation) -> bool:
    return NAME in op.attributes


def own_mapping(op: Operation) -> MappingAttr:
    """The mapping attribute of an operation: of its loops, or of its result."""
    found = op.attributes[NAME]
    assert isinstance(found, MappingAttr), f"{op.name} has no mapping"
    return found


def result_mapping(op: Operation) -> MappingAttr:
    """The mapping of an operation's results."""
    own = own_mapping(op)
    if isinstance(op, ReduceOp):
        return of_leading(own, op.parallel_rank, grain_of(op.results[0]))
    return own


def grain_of(value: SSAValue) -> int:
    """Elements per vector of a tile."""
    return max(1, GRAIN_BYTES // held_bytes(value))


def held_bytes(value: SSAValue) -> int:
    """
    Bytes of an element in memory; a widened f16 is stored as f16.

    Matmuls of f16 are expressed as widening and an f32 matmul, which the matrix unit does at once.
    64-bit numbers are stored in 32 bits, as in PopART on IPUs.
    """
    assert isinstance(value.type, TensorType)
    own, op = min(WORD, element_bytes(value.type.element_type)), value.owner
    if isinstance(op, ViewOp):
        return held_bytes(op.source)
    if isinstance(op, AssembleOp) and op.pieces:
        return max(map(held_bytes, op.pieces))
    if isinstance(op, MapOp | ReduceOp):
        body = op.body.block if isinstance(op, MapOp) else op.epilogue.block
        scalar = yielded(body)[value.index]  # type: ignore[attr-defined]
        if isinstance(scalar.owner, arith.ExtFOp):
            return element_bytes(scalar.owner.input.type)
    return own


def is_widening(op: Operation) -> bool:
    """Whether an operation only converts each element to a wider float."""
    if not isinstance(op, MapOp) or len(op.inputs) != 1 or len(op.outputs) != 1 or op.tables:
        return False
    (end,) = yielded(op.body.block)
    maker = end.owner
    if not isinstance(maker, arith.ExtFOp) or maker.input is not op.body.block.args[0]:
        return False
    (value,) = op.inputs
    assert isinstance(value.type, TensorType)
    return reads_whole(value.type, op.input_maps[0], op.sizes)


def may_split_sums(op: ReduceOp) -> bool:
    """Whether partial results of several tiles can be combined."""
    return is_contraction(op) or None not in combiners_of(op.body.block, len(op.inputs))


def stages(op: Operation) -> tuple[Stage, ...]:
    """The stages of a mapped operation, in order."""
    match op:
        case MapOp():
            pieces = pieces_of(own_mapping(op))
            reads = _reads_through(op.inputs, op.input_maps, pieces.boxes, op.sizes)
            return (Stage(pieces, reads, tuple(range(len(op.inputs), len(op.operands)))),)
        case ReduceOp():
            return _reduce_stages(op, op.inputs)
        case ScatterOp():
            return (_scatter_stage(op),)
        case TopKOp():
            pieces = pieces_of(own_mapping(op))
            return (Stage(pieces, (OperandRead(0, tuple(_whole_rows(op, pieces))),)),)
        case AssembleOp():
            pieces = pieces_of(own_mapping(op))
            return (Stage(pieces, tuple(_assemble_reads(op, pieces))),)
        case ViewOp():
            return (_view_stage(op),)
        case UpdateOp():
            pieces = pieces_of(variable_mapping(op))
            return (Stage(pieces, (OperandRead(0, pieces.boxes),)),)
    raise UnsupportedError(
        f"{op.name} is not mapped to tiles",
        source(op.location),
        "compile the model for this machine: IPUs of the model have no selections by data",
    )


def variable_mapping(update: UpdateOp) -> MappingAttr:
    """The mapping of the updated variable; if nothing reads the variable, of its new value."""
    graph = update.parent_op()
    assert isinstance(graph, GraphOp)
    for op in graph.block.ops:
        if isinstance(op, VariableOp) and op.variable == update.variable:
            return own_mapping(op)
    return mapping_of(update.value)


def _reads_through(
    values: Sequence[SSAValue],
    maps: Sequence[AffineMap],
    boxes: Iterable[Boxes],
    sizes: Shape,
    first: int = 0,
) -> tuple[OperandRead, ...]:
    """The elements that boxes of a domain read through index maps."""
    return tuple(
        OperandRead(
            first + number, tuple(region_of(map_, box, sizes, _shape(value)) for box in boxes)
        )
        for number, (value, map_) in enumerate(zip(values, maps, strict=True))
    )


def _reduce_stages(op: ReduceOp, inputs: Sequence[SSAValue]) -> tuple[Stage, Stage]:
    """Partial results by blocks of the domain, then results by runs."""
    own, count = own_mapping(op), len(inputs)
    partial = pieces_of(own)
    parallel = op.sizes[: op.parallel_rank]
    results = pieces_of(result_mapping(op))
    joined = int(np.prod(own.parts[op.parallel_rank :], dtype=np.int64))
    return (
        Stage(partial, _reads_through(inputs, op.input_maps, partial.boxes, op.sizes)),
        Stage(
            results,
            _reads_through(
                op.operands[count:], op.epilogue_input_maps, results.boxes, parallel, count
            ),
            joined=joined,
        ),
    )


def own_loops(op: ScatterOp) -> list[int | None]:
    """For each dimension of the result, the loop whose index is the position along it, or None."""
    block = op.body.block
    places = yielded(block)[:-1]
    return [
        place.owner.dim.value.data if isinstance(place.owner, IndexOp) else None for place in places
    ]


def _scatter_stage(op: ScatterOp) -> Stage:
    """The tile of a result element reads all values that may be scattered to it."""
    pieces, loops = pieces_of(own_mapping(op)), own_loops(op)
    domains = []
    for box in pieces.boxes:
        low = np.zeros((len(box.low), len(op.sizes)), np.int64)
        high = low + np.array(op.sizes, np.int64)
        for dim, loop in enumerate(loops):
            if loop is not None:
                low[:, loop] = np.maximum(low[:, loop], box.low[:, dim])
                high[:, loop] = np.minimum(high[:, loop], box.high[:, dim])
        empty = box.volumes[:, None] == 0
        domains.append(Boxes(low, np.where(empty, low, high)))
    reads = _reads_through(op.inputs, op.input_maps, domains, op.sizes)
    if op.initial is not None:
        reads = (*reads, OperandRead(len(op.inputs), pieces.boxes))
    return Stage(pieces, reads)


def _whole_rows(op: TopKOp, pieces: Pieces) -> Iterator[Boxes]:
    """Reads whole rows: each is sorted on one tile."""
    for box in pieces.boxes:
        low, high = box.low.copy(), box.high.copy()
        low[:, 1] = 0
        high[:, 1] = np.where(box.volumes > 0, op.sizes[1], 0)
        yield Boxes(low, high)


def _assemble_reads(op: AssembleOp, pieces: Pieces) -> Iterator[OperandRead]:
    """The part of each piece that lies in a box of the result."""
    for number, (piece, offsets, steps) in enumerate(op.placements()):
        shape, step = np.array(_shape(piece)), np.array(steps)
        found = []
        for box in pieces.boxes:
            low = np.clip(-((np.array(offsets) - box.low) // step), 0, shape)
            high = np.clip(-((np.array(offsets) - box.high) // step), 0, shape)
            empty = box.volumes[:, None] == 0
            found.append(Boxes(low, np.where(empty, low, np.maximum(low, high))))
        yield OperandRead(number, tuple(found))


def _view_stage(op: ViewOp) -> Stage:
    """Row-major intervals are the same in both shapes."""
    own = own_mapping(op)
    pieces = pieces_of(own)
    if reshaped(mapping_of(op.source), own.sizes) == own:
        return Stage(pieces, ())
    assert is_linear(own), "a view that moves elements leaves them in rows"
    shape = np.array(_shape(op.source), np.int64)
    volumes = pieces.volumes
    end = np.cumsum(volumes)
    whole = Boxes(
        np.zeros((len(end), len(shape)), np.int64), np.broadcast_to(shape, (len(end), len(shape)))
    )
    return Stage(pieces, (OperandRead(0, tuple(interval_boxes(end - volumes, end, whole))),))


def _shape(value: SSAValue) -> Shape:
    assert isinstance(value.type, TensorType)
    return value.type.get_shape()


def region_of(map_: AffineMap, box: Boxes, sizes: Shape, shape: Shape) -> Boxes:
    """A bounding box of the image of a box under an index map."""
    low = np.zeros((len(box.low), len(shape)), np.int64)
    high = np.zeros_like(low)
    for dim, result in enumerate(map_.results):
        least, most = _span(linear(result, sizes), box, sizes)
        low[:, dim], high[:, dim] = least, most + 1
    limit = np.array(shape, np.int64)
    low, high = np.clip(low, 0, limit), np.clip(high, 0, limit)
    return Boxes(low, np.where(box.volumes[:, None] == 0, low, high))


def _span(form: Linear, box: Boxes, sizes: Shape) -> tuple[Array, Array]:
    """Interval arithmetic: bounds of a linear form over each box."""
    low = np.full(len(box.low), form.constant, np.int64)
    high = low.copy()
    for atom, factor in form.terms.items():
        if isinstance(atom, AffineDimExpr):
            least, most = box.low[:, atom.position], box.high[:, atom.position] - 1
        else:
            inner, by = _span(linear(atom.lhs, sizes), box, sizes), atom.rhs.value  # type: ignore[attr-defined]
            least, most = _quotient_bounds(atom.kind, *inner, by)  # type: ignore[attr-defined]
        low = low + factor * (least if factor > 0 else most)
        high = high + factor * (most if factor > 0 else least)
    return low, high


def _quotient_bounds(
    kind: AffineBinaryOpKind, low: Array, high: Array, by: int
) -> tuple[Array, Array]:
    if kind == AffineBinaryOpKind.FloorDiv:
        return low // by, high // by
    same = low // by == high // by
    return np.where(same, low % by, 0), np.where(same, high % by, by - 1)


def _stored_on(held: MappingAttr, tiles: Array) -> tuple[Boxes, ...]:
    """The elements of a tensor on the given tiles."""
    pieces = pieces_of(held)
    most = int(max(tiles.max(initial=0), pieces.tiles.max(initial=0)))
    place = np.full(most + 1, -1)
    place[pieces.tiles] = np.arange(len(pieces.tiles))
    at = place[tiles]
    return tuple(
        Boxes(box.low[at], np.where(at[:, None] < 0, box.low[at], box.high[at]))
        for box in pieces.boxes
    )


def _count_outside(box: Boxes, have: Sequence[Boxes]) -> Array:
    """The number of indices of each box outside the others, which are disjoint."""
    found: Array = box.volumes - sum(
        (box.meet(other).volumes for other in have), np.zeros(1, np.int64)
    )
    return found
