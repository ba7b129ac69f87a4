"""The memory of tiles: permanent data, and the liveness of all other tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from popgraph.dialects.program import ConstantOp, GraphOp, ReturnOp, UpdateOp, VariableOp
from popgraph.dialects.tile import MapOp
from popgraph.dialects.tile.affine import reads_whole
from popgraph.ipu.machine import Ipu
from popgraph.ipu.mapping import counts_by_tile
from popgraph.ipu.simulator import is_free
from popgraph.ipu.stages import held_bytes, mapping_of
from popgraph.support.arrays import Array


@dataclass(frozen=True)
class Moment:
    """The temporary memory while an operation runs."""

    op: Operation
    total: int
    """Bytes on all tiles together."""
    largest: int
    """Bytes on the fullest tile."""
    temporary: Array = field(repr=False)
    """Bytes on each tile that only this operation needs."""

    @property
    def name(self) -> str:
        return self.op.name


@dataclass(frozen=True)
class LiveTensor:
    """
    A tensor in tile memory, and its lifetime; tensors updated in place are one with their source.
    """

    value: SSAValue
    first: int
    """Index of the operation that computes it."""
    last: int
    """Index of the operation that reads it last."""
    category: str = ""
    """The category of permanent data."""

    def on(self, tiles: int) -> Array:
        """Bytes on each of `tiles` tiles."""
        found: Array = counts_by_tile(mapping_of(self.value), tiles) * held_bytes(self.value)
        return found


@dataclass
class Memory:
    """Bytes on each tile, by category."""

    ipu: Ipu
    by_category: dict[str, Array] = field(default_factory=dict)
    """Permanent bytes, from the first step to the last."""
    peak: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    """Peak of temporary bytes on each tile."""
    moments: list[Moment] = field(default_factory=list)
    """The operations of the main graph, in order."""
    tensors: list[LiveTensor] = field(default_factory=list)
    """Permanent tensors of all graphs, then other tensors of the main graph."""

    @property
    def persistent(self) -> Array:
        found: Array = sum(self.by_category.values(), np.zeros(self.ipu.total_tiles, np.int64))
        return found

    @property
    def by_tile(self) -> Array:
        """Peak bytes on each tile."""
        found: Array = self.persistent + self.peak
        return found

    @property
    def fullest(self) -> int:
        """The tile with the most bytes."""
        return int(np.argmax(self.by_tile))

    @property
    def overflowing(self) -> list[int]:
        """Tiles whose memory is exceeded."""
        return [int(tile) for tile in np.flatnonzero(self.by_tile > self.ipu.tile_bytes)]


_CATEGORIES = {ConstantOp: "constants", VariableOp: "variables"}


@dataclass
class Liveness:
    """Computes the lifetimes of the tensors of a graph."""

    graph: GraphOp
    ipu: Ipu
    temporary: Mapping[Operation, Array]
    """Temporary bytes on each tile while an operation runs."""

    def __post_init__(self) -> None:
        self._ops = list(self.graph.block.ops)
        self._places = {op: number for number, op in enumerate(self._ops)}
        self._roots: dict[SSAValue, SSAValue] = {}
        self._ends: dict[SSAValue, int] = {}
        for value in self._values():
            self._extend_lifetime(value)

    def _values(self) -> Iterator[SSAValue]:
        yield from self.graph.block.args
        for op in self._ops:
            yield from op.results

    def _extend_lifetime(self, value: SSAValue) -> None:
        """Records the buffer of a value, and extends that buffer's lifetime."""
        root = self._root_of(value)
        self._roots[value] = root
        last = max((self._places[use.operation] for use in value.uses), default=-1)
        if any(isinstance(use.operation, ReturnOp) for use in value.uses):
            last = len(self._ops)
        born = self._places[value.owner] if isinstance(value.owner, Operation) else 0
        self._ends[root] = max(self._ends.get(root, 0), last, born)

    def _root_of(self, value: SSAValue) -> SSAValue:
        op = value.owner
        if isinstance(op, Operation) and op.operands and op.results:
            if is_free(op) and not isinstance(op, UpdateOp):
                return self._roots[op.operands[0]]
            source = self._overwritten_operand(op, value)
            if source is not None:
                return self._roots[source]
        return value

    def _overwritten_operand(self, op: Operation, result: SSAValue) -> SSAValue | None:
        """The operand that an elementwise operation overwrites with its result."""
        if not isinstance(op, MapOp) or result is not op.outputs[0]:
            return None
        updated = {
            use.operation.variable for use in result.uses if isinstance(use.operation, UpdateOp)
        }
        for value, map_ in zip(op.inputs, op.input_maps, strict=True):
            assert isinstance(value.type, TensorType)
            alike = held_bytes(value) == held_bytes(result)
            if not alike or not reads_whole(value.type, map_, op.sizes):
                continue
            root = self._roots[value]
            owner = root.owner
            if mapping_of(value) != mapping_of(result):
                continue
            if isinstance(owner, VariableOp):
                if owner.variable in updated and self._is_last(root, op):
                    return value
            elif not isinstance(owner, ConstantOp) and self._is_last(root, op):
                return value
        return None

    def _is_last(self, root: SSAValue, op: Operation) -> bool:
        """Whether no later operation reads the memory of a value."""
        return self._ends.get(root, 0) <= self._places[op]

    def persistent_tensors(self) -> Iterator[LiveTensor]:
        """Constants and variables, which stay from step to step."""
        for op in self._ops:
            if isinstance(op, ConstantOp | VariableOp):
                yield LiveTensor(op.results[0], 0, len(self._ops), _CATEGORIES[type(op)])

    def temporary_tensors(self) -> Iterator[LiveTensor]:
        """All other tensors, in order of creation."""
        for value in self._values():
            owner = value.owner
            if self._roots[value] is value and not isinstance(owner, ConstantOp | VariableOp):
                born = self._places[owner] if isinstance(owner, Operation) else 0
                yield LiveTensor(value, born, self._ends[value])

    def moments(self) -> Iterator[tuple[Operation, Array]]:
        """The bytes on each tile while each operation runs, in order."""
        tiles = self.ipu.total_tiles
        live = np.zeros(tiles, np.int64)
        beginning: dict[int, list[LiveTensor]] = {}
        ending: dict[int, list[LiveTensor]] = {}
        for held in self.temporary_tensors():
            beginning.setdefault(held.first, []).append(held)
            ending.setdefault(held.last, []).append(held)
        for number, op in enumerate(self._ops):
            for held in beginning.get(number, ()):
                live = live + held.on(tiles)
            needed = self.temporary.get(op)
            yield op, live if needed is None else live + needed
            for held in ending.get(number, ()):
                live = live - held.on(tiles)
