"""The bulk-synchronous steps of mapped operations: exchange, sync, compute of the slowest tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.locations import source
from popgraph.dialects.program import UpdateOp
from popgraph.dialects.tile import (
    AssembleOp,
    ElementOp,
    MapOp,
    ReduceOp,
    ScatterOp,
    TopKOp,
    ViewOp,
    is_contraction,
)
from popgraph.dialects.tile.mapping import MappingAttr
from popgraph.dialects.tile.program.work import flops_of
from popgraph.ipu.costs import (
    body_cycles,
    product_cycles,
    rounds,
    vector_cycles,
)
from popgraph.ipu.machine import Ipu
from popgraph.ipu.mapping import counts_by_tile, pieces_of, tile_count
from popgraph.ipu.partition import KINDS, kinds_of_loops
from popgraph.ipu.stages import (
    OperandRead,
    Stage,
    held_bytes,
    is_mapped,
    is_widening,
    mapping_of,
    own_mapping,
    stages,
)
from popgraph.support.arrays import Array
from popgraph.support.shapes import prod


@dataclass(frozen=True)
class Step:
    """A step of all tiles: exchange, sync, compute."""

    op: Operation = field(repr=False)
    """The operation that it belongs to."""
    compute: int
    """Cycles of the slowest tile."""
    exchange: int
    """Cycles until the last tile has received its operands."""
    sync: int
    """Cycles to synchronize, and to start workers."""
    tiles: int
    """Number of active tiles."""
    flops: int
    exchanged: int
    """Bytes received, all tiles together."""
    linked: int
    """Bytes received from other IPUs."""
    temporary: Array = field(repr=False)
    """Temporary bytes on each tile: received operands and partial results."""

    @property
    def kind(self) -> str:
        return self.op.name

    @property
    def source(self) -> str:
        """Source location of the operation."""
        return source(self.op.location)

    @property
    def cycles(self) -> int:
        return self.compute + self.exchange + self.sync


@dataclass(frozen=True)
class _StageWork:
    """The cost inputs of a stage, before they become a step."""

    received: Array
    sent: Array
    linked: Array
    """Bytes that each IPU receives from the others."""
    compute: float
    tiles: int
    partials: Array
    rounds: int = 1
    """Number of exchanges, if the operands do not fit at once."""


class Simulator:
    """Simulates the steps of operations mapped to some IPUs."""

    def __init__(self, ipu: Ipu) -> None:
        self._ipu = ipu

    def steps(self, op: Operation) -> list[Step]:
        """The steps of an operation; empty if it moves and computes nothing."""
        if isinstance(op, UpdateOp) or (is_mapped(op) and type(op) in _COSTS):
            if is_free(op):
                return []
            works = [self._work(op, number, stage) for number, stage in enumerate(stages(op))]
            if isinstance(op, ReduceOp) and stages(op)[1].joined == 1:
                works = [_merged(*works)]
            made = [self._step(op, work) for work in works]
            counted = replace(made[0], flops=_flops(op))
            return [step for step in (counted, *made[1:]) if step.cycles]
        return []

    def copy(self, op: Operation, value: SSAValue, target: MappingAttr) -> Step:
        """Copies a value to the mapping that a called graph requires."""
        width = held_bytes(value)
        if mapping_of(value) == target:
            width = 0
        received: Array = counts_by_tile(target, self._ipu.total_tiles) * width
        work = _StageWork(
            received,
            received,
            np.zeros(self._ipu.count),
            float(received.max(initial=0)) / self._ipu.vector_bytes,
            tile_count(target),
            np.zeros_like(received),
        )
        return self._step(op, work)

    def _step(self, op: Operation, work: _StageWork) -> Step:
        ipu = self._ipu
        most = max(work.received.max(initial=0), work.sent.max(initial=0))
        moves = bool(work.received.any())
        far = bool(work.linked.any())
        exchange = max(
            most / ipu.exchange_bytes, float(work.linked.max(initial=0)) / ipu.link_bytes
        )
        wait = (ipu.link_sync_cycles if far else ipu.sync_cycles) if moves else 0
        return Step(
            op=op,
            compute=ceil(work.compute),
            exchange=ceil(exchange) if moves else 0,
            sync=work.rounds * (wait + (ipu.launch_cycles if work.compute else 0)),
            tiles=work.tiles,
            flops=0,
            exchanged=int(work.received.sum()),
            linked=int(work.linked.sum()),
            temporary=-(-work.received // work.rounds) + work.partials,
        )

    def _work(self, op: Operation, number: int, stage: Stage) -> _StageWork:
        tiles, volumes = self._ipu.total_tiles, stage.pieces.volumes
        received, sent = np.zeros(tiles, np.int64), np.zeros(tiles, np.int64)
        linked, partials = np.zeros(self._ipu.count), np.zeros(tiles, np.int64)
        for read in stage.reads:
            operand = op.operands[read.operand]
            held, width = mapping_of(operand), held_bytes(operand)
            missing = read.missing(stage.pieces, held)
            np.add.at(received, stage.pieces.tiles, missing * width)
            sent += np.minimum(counts_by_tile(held, tiles), missing.sum()) * width
            if self._ipu.count > 1 and missing.any():
                linked += self._received_over_links(read, stage, held) * width
        for table in stage.looked_up:
            looked_up = volumes * _lookups(op, table) * held_bytes(op.operands[table])
            np.add.at(received, stage.pieces.tiles, looked_up)
        if stage.joined > 1:
            sums = volumes * (stage.joined - 1) * _sum_bytes(op)
            np.add.at(received, stage.pieces.tiles, sums)
            np.add.at(sent, stage.pieces.tiles, sums)
        if number == 0 and isinstance(op, ReduceOp) and stages(op)[1].joined > 1:
            inner = own_mapping(op).block.data[: op.parallel_rank]
            partials[stage.pieces.tiles] = prod(inner) * _sum_bytes(op)
        compute = _COSTS[type(op)](self._ipu, op, number, stage)
        busy, most = int(np.count_nonzero(volumes)), received.max(initial=0)
        times = 1
        if number == 0 and isinstance(op, ReduceOp):
            times = int(rounds(self._ipu, most))
        return _StageWork(received, sent, linked, compute, busy, partials, times)

    def _received_over_links(self, read: OperandRead, stage: Stage, held: MappingAttr) -> Array:
        """
        Upper bound of the elements that each IPU receives over its links.

        Elements read by several of its tiles are sent once: the bounding box of all reads, minus
        the elements stored on the IPU.
        """
        own = self._ipu.tiles
        around, pieces = read.bounding_box, pieces_of(held)
        found = np.zeros(self._ipu.count)
        for number in range(self._ipu.count):
            readers = (stage.pieces.tiles // own == number) & (around.volumes > 0)
            if not readers.any():
                continue
            low, high = around.low[readers].min(axis=0), around.high[readers].max(axis=0)
            here = pieces.tiles // own == number
            at_home = 0
            for box in pieces.boxes:
                meet = np.minimum(box.high[here], high) - np.maximum(box.low[here], low)
                at_home += int(np.maximum(meet, 0).prod(axis=1).sum())
            found[number] = max(0, int((high - low).prod()) - at_home)
        return found


def is_free(op: Operation) -> bool:
    """
    Whether an operation costs nothing on tiles.

    True for views that move nothing, and for padding and widening read only by contractions: tiles
    pad the operands they receive, and the matrix unit widens.
    """
    if isinstance(op, ViewOp):
        return not stages(op)[0].reads
    if isinstance(op, UpdateOp):
        (stage,) = stages(op)
        return not stage.reads[0].missing(stage.pieces, mapping_of(op.value)).any()
    pads = isinstance(op, AssembleOp) and len(op.pieces) == 1
    if not pads and not is_widening(op):
        return False
    return all(_feeds_products(use.operation) for use in op.results[0].uses)


def _feeds_products(op: Operation) -> bool:
    return is_contraction(op) or (bool(op.results) and is_mapped(op) and is_free(op))


def _merged(first: _StageWork, second: _StageWork) -> _StageWork:
    """Merges two stages into one step, if no partial results are combined between them."""
    return _StageWork(
        first.received + second.received,
        first.sent + second.sent,
        first.linked + second.linked,
        first.compute + second.compute,
        max(first.tiles, second.tiles),
        first.partials,
        first.rounds,
    )


def _widths(values: Sequence[SSAValue]) -> int:
    return sum(held_bytes(value) for value in values)


def _sum_bytes(op: Operation) -> int:
    """Bytes of a partial result."""
    assert isinstance(op, ReduceOp)
    if is_contraction(op):
        return max(4, element_bytes(op.sum_type))
    return sum(element_bytes(initial.type) for initial in op.initial)


def _lookups(op: Operation, table: int) -> int:
    """Number of lookups in a table per element."""
    assert isinstance(op, MapOp)
    argument = op.body.block.args[table]
    return sum(isinstance(use.operation, ElementOp) for use in argument.uses)


def _largest(stage: Stage) -> Array:
    found: Array = stage.pieces.volumes.max(keepdims=True, initial=0)
    return found


def _vectors(ipu: Ipu, elements: Array, body: Block | None, loaded: float, stored: float) -> float:
    cycles = body_cycles(ipu, body) if body is not None else 0.0
    return float(vector_cycles(ipu, elements, cycles, loaded, stored)[0])


def _map_cycles(ipu: Ipu, op: MapOp, number: int, stage: Stage) -> float:
    stored = _widths(op.outputs)
    return _vectors(ipu, _largest(stage), op.body.block, _widths(op.operands), stored)


def _reduce_cycles(ipu: Ipu, op: ReduceOp, number: int, stage: Stage) -> float:
    if is_contraction(op):
        return _contract_cycles(ipu, op, number, stage)
    if number == 0:
        return _vectors(ipu, _largest(stage), op.body.block, _widths(op.inputs), 0)
    return _finish_cycles(ipu, op, op.epilogue.block, stage)


def _contract_cycles(ipu: Ipu, op: ReduceOp, number: int, stage: Stage) -> float:
    if number:
        return _finish_cycles(ipu, op, op.epilogue.block, stage)
    block, kinds = own_mapping(op).block.data, kinds_of_loops(op)
    extents = {
        kind: np.array([prod(each for each, own in zip(block, kinds, strict=True) if own == kind)])
        for kind in KINDS
    }
    width = max(held_bytes(op.lhs), held_bytes(op.rhs))
    return float(product_cycles(ipu, width, **extents)[0])


def _finish_cycles(ipu: Ipu, op: ReduceOp, epilogue: Block, stage: Stage) -> float:
    """Cycles to reduce partial results and to run the epilogue."""
    sums = _sum_bytes(op)
    stored = _widths(op.outputs)
    loaded = stage.joined * sums + _widths(op.epilogue_inputs)
    added = (stage.joined - 1) * sums / ipu.vector_bytes
    each = added + body_cycles(ipu, epilogue)
    return float(vector_cycles(ipu, _largest(stage), each, loaded, stored)[0])


def _scatter_cycles(ipu: Ipu, op: ScatterOp, number: int, stage: Stage) -> float:
    visited = max(
        (int(box.volumes.max(initial=0)) for read in stage.reads for box in read.boxes), default=0
    )
    return _vectors(ipu, np.array([visited]), op.body.block, _widths(op.inputs), 0)


def _top_k_cycles(ipu: Ipu, op: TopKOp, number: int, stage: Stage) -> float:
    length = max(2, op.sizes[1])
    rows = ceil(int(_largest(stage)[0]) / max(1, op.count))
    return float(rows * length * np.log2(length)) * body_cycles(ipu, op.body.block)


def _copy_cycles(ipu: Ipu, op: Operation, number: int, stage: Stage) -> float:
    width = held_bytes(op.operands[0]) if op.operands else 0
    return _vectors(ipu, _largest(stage), None, width, width)


_COSTS: dict[type[Operation], Callable[..., float]] = {
    MapOp: _map_cycles,
    ReduceOp: _reduce_cycles,
    ScatterOp: _scatter_cycles,
    TopKOp: _top_k_cycles,
    AssembleOp: _copy_cycles,
    ViewOp: _copy_cycles,
    UpdateOp: _copy_cycles,
}
"""Cycles of the slowest tile in a stage, by operation."""


def _flops(op: Operation) -> int:
    """Floating-point operations, all tiles together."""
    match op:
        case MapOp():
            return prod(op.sizes) * _block_flops(op.body.block)
        case ReduceOp() if is_contraction(op):
            outer = prod(op.sizes[: op.parallel_rank])
            return 2 * prod(op.sizes) + outer * _block_flops(op.epilogue.block)
        case ReduceOp():
            inner, outer = prod(op.sizes), prod(op.sizes[: op.parallel_rank])
            return inner * _block_flops(op.body.block) + outer * _block_flops(op.epilogue.block)
    return 0


def _block_flops(block: Block) -> int:
    return sum(map(flops_of, block.ops))
