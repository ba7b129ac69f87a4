"""Maps tensors and operations to the tiles of an IPU, linearly or in blocks of loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap

import popgraph.ipu.reference  # noqa: F401 (evaluates operations on tiles)
from popgraph.dialects.program import (
    ConstantOp,
    GraphOp,
    ReturnOp,
    UpdateOp,
    VariableOp,
    graphs_of,
)
from popgraph.dialects.tile import (
    AssembleOp,
    MapOp,
    ReduceOp,
    ScatterOp,
    TopKOp,
    ViewOp,
    is_contraction,
)
from popgraph.dialects.tile.affine import linear, reads_whole
from popgraph.dialects.tile.mapping import MappingAttr
from popgraph.ipu.machine import IPUS, Ipu
from popgraph.ipu.mapping import (
    NAME,
    grid_mapping,
    linear_mapping,
    moved,
    of_dims,
    of_loops,
    reshaped,
    tile_count,
)
from popgraph.ipu.partition import PartitionProblem
from popgraph.ipu.stages import (
    INPUTS,
    RESULTS,
    grain_of,
    held_bytes,
    is_widening,
    may_split_sums,
    own_loops,
    result_mapping,
)
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options
from popgraph.passes.outside import add_pass
from popgraph.passes.properties import DENSE
from popgraph.support.shapes import Shape, prod

SOURCES = (ConstantOp, VariableOp)
"""Operations whose results can be stored where their readers need them."""


CPU_ONLY = frozenset({"contract-quantized", "contract-in-words", "scale-sums", "merge-maps"})
"""Passes without gain on tiles, which have no packed integers and keep weights in local memory."""


@add_pass(before="assign-layouts")
@dataclass(frozen=True)
class MapToTiles(Pass):
    """
    Maps every element of a tensor, and every iteration of a loop, to a tile of an IPU.

    Contractions are mapped first: a cost model partitions their loops, and weights are stored on
    the tiles that multiply them. Elementwise operations and reductions follow their operands if
    these are mapped in blocks; everything else is distributed evenly, in runs.
    """

    name = "map-to-tiles"
    TOLERANCE = 1e-6
    IS_LAST = True
    NEEDS = (DENSE,)
    REASON = "operations are as they will run, and tensors not yet laid out for a CPU"
    ipu: str = "ipu2"
    """The generation."""
    count: int = 1
    """Number of IPUs."""
    tiles: int = 0
    """Tiles per IPU; 0: all."""
    least_tile_bytes: int = Ipu.least_tile_bytes
    """Minimal bytes of a tensor per tile."""

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        device = IPUS[self.ipu].of(self.count, self.tiles)
        mapper = _Mapper(replace(device, least_tile_bytes=self.least_tile_bytes))
        for graph in graphs_of(module):
            mapper.map_graph(graph)


def on_ipus(options: Options, ipu: Ipu) -> Options:
    """Options whose passes end with this mapping, instead of C for a CPU."""
    mapping = MapToTiles(ipu.name, ipu.count, ipu.tiles, ipu.least_tile_bytes)
    return replace(options, passes=(mapping, *options.passes), disabled=options.disabled | CPU_ONLY)


@dataclass
class _Mapper:
    """Maps graphs; a tensor on few tiles starts after the tiles of the previous one."""

    ipu: Ipu
    _next: int = 0
    _known: dict[SSAValue, MappingAttr] = field(default_factory=dict)

    def map_graph(self, graph: GraphOp) -> None:
        self._next = 0
        self._known = {}
        ops = list(graph.block.ops)
        for op in ops:
            if is_contraction(op):
                self._partition(op)
                self._place_factors(op)
        for op in ops:
            if not isinstance(op, UpdateOp | ReturnOp):
                self._map(op)
        for op in ops:
            if isinstance(op, SOURCES):
                self._mapping_of(op.results[0])  # Some that nobody reads are left.
        inputs = [self._mapping_of(value) for value in graph.block.args]
        graph.attributes[INPUTS] = ArrayAttr(inputs)

    def _map(self, op: Operation) -> None:
        """Maps an operation, and its operands without a mapping."""
        match op:
            case ReduceOp() if is_contraction(op):
                for value in op.operands:
                    self._mapping_of(value)
            case ReduceOp():
                if not self._map_like_operand(op, op.inputs, op.input_maps):
                    self._partition(op)
            case MapOp():
                if not self._map_like_operand(op, op.inputs, op.input_maps):
                    self._assign(op, self._linear(op.sizes, op.outputs[0]))
            case ViewOp():
                shape = _shape(op.output)
                same = reshaped(self._mapping_of(op.source), shape)
                self._assign(op, same or self._linear(shape, op.output))
            case ScatterOp():
                self._assign(op, self._of_scatter(op))
            case TopKOp():
                rows = min(self.ipu.total_tiles, max(1, op.sizes[0]))
                self._assign(op, self._shift_to_next(grid_mapping(_shape(op.output), (rows, 1))))
            case AssembleOp():
                self._assign(op, self._linear(_shape(op.output), op.output))
            case ConstantOp() | VariableOp():
                return  # Whoever reads it first says where it is.
            case _:
                op.attributes[RESULTS] = ArrayAttr(
                    [self._mapping_of(value) for value in op.results]
                )
        for value in op.operands:
            self._mapping_of(value)

    def _assign(self, op: Operation, mapping: MappingAttr) -> None:
        op.attributes[NAME] = mapping
        for result in op.results:
            self._known[result] = result_mapping(op)

    def _mapping_of(self, value: SSAValue) -> MappingAttr:
        """The mapping of a value; an unmapped source is distributed evenly."""
        if value not in self._known:
            mapping = self._linear(_shape(value), value, grain_of(value) * held_bytes(value))
            self._known[value] = mapping
            if isinstance(value.owner, SOURCES):
                value.owner.attributes[NAME] = mapping
        return self._known[value]

    def _partition(self, op: ReduceOp) -> None:
        parts = PartitionProblem(op, self.ipu).parts()
        self._assign(op, self._shift_to_next(grid_mapping(op.sizes, parts)))

    def _place_factors(self, op: ReduceOp) -> None:
        """
        Stores source operands on the tiles that multiply them, if their dimensions match loops.
        """
        own = op.attributes[NAME]
        assert isinstance(own, MappingAttr)
        for value, map_ in zip(map(_unwidened, (op.lhs, op.rhs)), op.input_maps, strict=True):
            if value in self._known or not _is_source(value):
                continue
            dims = _loops_along(map_, op.sizes, _shape(value))
            if dims is not None:
                mapping = of_dims(own, dims, _shape(value), grain_of(value))
                self._known[value] = mapping
                if isinstance(value.owner, SOURCES):
                    value.owner.attributes[NAME] = mapping

    def _map_like_operand(
        self, op: MapOp | ReduceOp, inputs: Sequence[SSAValue], maps: Sequence[AffineMap]
    ) -> bool:
        """Maps the loops like one of their operands, preferably a variable."""
        found = list(self._candidates(op, inputs, maps))
        if not found and isinstance(op, MapOp):
            found = [(self._mapping_of(value), value) for value in _elementwise_operands(op)]
        variables = [one for one, value in found if isinstance(value.owner, VariableOp)]
        for mapping in (*variables, *(one for one, _ in found)):
            self._assign(op, mapping)
            return True
        return False

    def _candidates(
        self, op: MapOp | ReduceOp, inputs: Sequence[SSAValue], maps: Sequence[AffineMap]
    ) -> Iterator[tuple[MappingAttr, SSAValue]]:
        for value, map_ in zip(inputs, maps, strict=True):
            assert isinstance(value.type, TensorType)
            if value not in self._known and _is_source(value):
                continue
            own = self._mapping_of(value)
            if isinstance(op, MapOp) and reads_whole(value.type, map_, op.sizes):
                yield own, value
                continue
            dims = _loops_along(map_, op.sizes, _shape(value))
            if dims is None or len(dims) - dims.count(None) < _count_long_loops(op.sizes):
                continue
            loops = of_loops(own, dims, op.sizes)
            if loops is None or tile_count(loops) < tile_count(own):
                continue
            if isinstance(op, MapOp) or may_split_sums(op) or _keeps_reductions_on_tile(op, loops):
                yield loops, value

    def _of_scatter(self, op: ScatterOp) -> MappingAttr:
        """
        Partitions first along dimensions with a loop of their own: a tile then reads fewer values.
        """
        shape, left = _shape(op.output), self._tile_count(_shape(op.output), op.output)
        parts = [1] * len(shape)
        own = [dim for dim, loop in enumerate(own_loops(op)) if loop is not None]
        for dim in (*own, *(dim for dim in range(len(shape)) if dim not in own)):
            parts[dim] = max(1, min(shape[dim], left))
            left //= parts[dim]
        return self._shift_to_next(grid_mapping(shape, parts))

    def _tile_count(self, shape: Shape, value: SSAValue, least: int = 0) -> int:
        """Number of tiles for a tensor, with at least `least` bytes per tile."""
        least = least or self.ipu.least_tile_bytes
        count = prod(shape) * held_bytes(value) // least
        return max(1, min(self.ipu.total_tiles, count))

    def _linear(self, shape: Shape, value: SSAValue, least: int = 0) -> MappingAttr:
        """Runs of equal length, in whole vectors."""
        grain = grain_of(value)
        each = ceil(prod(shape) / self._tile_count(shape, value, least) / grain) * grain
        return self._shift_to_next(linear_mapping(shape, max(grain, each)))

    def _shift_to_next(self, mapping: MappingAttr) -> MappingAttr:
        """
        Shifts a mapping to the tiles after the previous one, to spread small tensors.

        A mapping that fits one IPU stays on the first, so that small steps need no links.
        """
        count = tile_count(mapping)
        last = self.ipu.tiles if count <= self.ipu.tiles else self.ipu.total_tiles
        first = self._next if self._next + count <= last else 0
        self._next = (first + count) % last
        return moved(mapping, first)


def _elementwise_operands(op: MapOp) -> Iterator[SSAValue]:
    """Operands that are read elementwise: element i for result i."""
    for value, map_ in zip(op.inputs, op.input_maps, strict=True):
        assert isinstance(value.type, TensorType)
        if reads_whole(value.type, map_, op.sizes):
            yield value


def _unwidened(value: SSAValue) -> SSAValue:
    """The operand of a widening; other values unchanged."""
    op = value.owner
    return op.operands[0] if isinstance(op, Operation) and is_widening(op) else value


def _is_source(value: SSAValue) -> bool:
    return isinstance(value.owner, SOURCES) or not isinstance(value.owner, Operation)


def _shape(value: SSAValue) -> Shape:
    assert isinstance(value.type, TensorType)
    return value.type.get_shape()


def _count_long_loops(sizes: Shape) -> int:
    """Number of loops with more than one iteration."""
    return sum(size > 1 for size in sizes)


def _keeps_reductions_on_tile(op: ReduceOp, mapping: MappingAttr) -> bool:
    return prod(mapping.parts[op.parallel_rank :]) == 1


def _loops_along(map_: AffineMap, sizes: Shape, shape: Shape) -> list[int | None] | None:
    """
    The loop along each dimension of an operand; None for a dimension of size 1.

    Returns None if a dimension depends on several loops, or a loop covers only part of it.
    """
    found: list[int | None] = []
    for result, size in zip(map_.results, shape, strict=True):
        form = linear(result, sizes)
        atoms = list(form.terms.items())
        if size == 1 and not atoms:
            found.append(None)
            continue
        if len(atoms) != 1 or form.constant:
            return None
        ((atom, factor),) = atoms
        if not isinstance(atom, AffineDimExpr) or factor != 1 or sizes[atom.position] != size:
            return None
        found.append(atom.position)
    return found
