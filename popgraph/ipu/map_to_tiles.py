"""Maps tensors and operations onto the tiles of an IPU: linear runs, and blocks of loops."""

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
from popgraph.ipu.partition import Work
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
from popgraph.support.shapes import Shape, prod

SOURCES = (ConstantOp, VariableOp)
"""Operations whose results may be wherever those who read them want them."""


CPU_ONLY = frozenset({"contract-quantized", "contract-in-words", "scale-sums"})
"""Passes without gain on tiles: these have no packed integers, and weights in local memory."""


@add_pass(before="assign-layouts")
@dataclass(frozen=True)
class MapToTiles(Pass):
    """
    Says on which tile of an IPU every element is, and which tile computes what.

    Contractions come first: their loops are cut by a cost model, and weights are where they are
    multiplied. Element-wise operations and reductions follow what they read, where that is cut into
    blocks; all else is shared out evenly, in runs.
    """

    name = "map-to-tiles"
    TOLERANCE = 1e-6
    IS_LAST = True
    REASON = "operations are as they will run, and tensors not yet laid out for a CPU"
    ipu: str = "ipu2"
    """The generation."""
    count: int = 1
    """How many IPUs there are."""
    tiles: int = 0
    """Tiles of each of them; 0: as many as it has."""
    least_tile_bytes: int = Ipu.least_tile_bytes
    """Bytes of a tensor per tile, at least."""

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        device = IPUS[self.ipu].of(self.count, self.tiles)
        mapper = _Mapper(replace(device, least_tile_bytes=self.least_tile_bytes))
        for graph in graphs_of(module):
            mapper.map_graph(graph)


def on_ipus(options: Options, ipu: Ipu) -> Options:
    """Options whose passes end with the mapping onto these IPUs, instead of code for a CPU."""
    mapping = MapToTiles(ipu.name, ipu.count, ipu.tiles, ipu.least_tile_bytes)
    return replace(options, passes=(mapping, *options.passes), disabled=options.disabled | CPU_ONLY)


@dataclass
class _Mapper:
    """Maps one graph after the other; what does not fill all tiles begins behind the last."""

    ipu: Ipu
    _next: int = 0
    _known: dict[SSAValue, MappingAttr] = field(default_factory=dict)

    def map_graph(self, graph: GraphOp) -> None:
        self._next = 0
        self._known = {}
        ops = list(graph.block.ops)
        for op in ops:
            if is_contraction(op):
                self._cut(op)
                self._place_factors(op)
        for op in ops:
            if not isinstance(op, UpdateOp | ReturnOp):
                self._map(op)
        for op in ops:
            if isinstance(op, SOURCES):
                self._of(op.results[0])  # Some that nobody reads are left.
        inputs = [self._of(value) for value in graph.block.args]
        graph.attributes[INPUTS] = ArrayAttr(inputs)

    def _map(self, op: Operation) -> None:
        """Gives an operation its mapping, and those of its operands that have none."""
        match op:
            case ReduceOp() if is_contraction(op):
                for value in op.operands:
                    self._of(value)
            case ReduceOp():
                if not self._follow(op, op.inputs, op.input_maps):
                    self._cut(op)
            case MapOp():
                if not self._follow(op, op.inputs, op.input_maps):
                    self._set(op, self._linear(op.sizes, op.outputs[0]))
            case ViewOp():
                shape = _shape(op.output)
                same = reshaped(self._of(op.source), shape)
                self._set(op, same or self._linear(shape, op.output))
            case ScatterOp():
                self._set(op, self._of_scatter(op))
            case TopKOp():
                rows = min(self.ipu.total_tiles, max(1, op.sizes[0]))
                self._set(op, self._from_next(grid_mapping(_shape(op.output), (rows, 1))))
            case AssembleOp():
                self._set(op, self._linear(_shape(op.output), op.output))
            case ConstantOp() | VariableOp():
                return  # Whoever reads it first says where it is.
            case _:
                op.attributes[RESULTS] = ArrayAttr([self._of(value) for value in op.results])
        for value in op.operands:
            self._of(value)

    def _set(self, op: Operation, mapping: MappingAttr) -> None:
        op.attributes[NAME] = mapping
        for result in op.results:
            self._known[result] = result_mapping(op)

    def _of(self, value: SSAValue) -> MappingAttr:
        """Where a value is; a source that nobody has placed is shared out evenly."""
        if value not in self._known:
            mapping = self._linear(_shape(value), value, grain_of(value) * held_bytes(value))
            self._known[value] = mapping
            if isinstance(value.owner, SOURCES):
                value.owner.attributes[NAME] = mapping
        return self._known[value]

    def _cut(self, op: ReduceOp) -> None:
        parts = Work(op, self.ipu).parts()
        self._set(op, self._from_next(grid_mapping(op.sizes, parts)))

    def _place_factors(self, op: ReduceOp) -> None:
        """Sources are on the tiles that multiply them, if they are cut as the loops are."""
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

    def _follow(
        self, op: MapOp | ReduceOp, inputs: Sequence[SSAValue], maps: Sequence[AffineMap]
    ) -> bool:
        """Cuts the loops as the operand is cut that they go along, a variable before others."""
        found = list(self._candidates(op, inputs, maps))
        if not found and isinstance(op, MapOp):
            found = [(self._of(value), value) for value in _read_whole(op)]
        variables = [one for one, value in found if isinstance(value.owner, VariableOp)]
        for mapping in (*variables, *(one for one, _ in found)):
            self._set(op, mapping)
            return True
        return False

    def _candidates(
        self, op: MapOp | ReduceOp, inputs: Sequence[SSAValue], maps: Sequence[AffineMap]
    ) -> Iterator[tuple[MappingAttr, SSAValue]]:
        for value, map_ in zip(inputs, maps, strict=True):
            assert isinstance(value.type, TensorType)
            if value not in self._known and _is_source(value):
                continue
            own = self._of(value)
            if isinstance(op, MapOp) and reads_whole(value.type, map_, op.sizes):
                yield own, value
                continue
            dims = _loops_along(map_, op.sizes, _shape(value))
            if dims is None or len(dims) - dims.count(None) < _long(op.sizes):
                continue
            loops = of_loops(own, dims, op.sizes)
            if loops is None or tile_count(loops) < tile_count(own):
                continue
            if isinstance(op, MapOp) or may_split_sums(op) or _keeps_sums_whole(op, loops):
                yield loops, value

    def _of_scatter(self, op: ScatterOp) -> MappingAttr:
        """Along loops of its own where it has some, for then a tile need not look at all values."""
        shape, left = _shape(op.output), self._worth(_shape(op.output), op.output)
        parts = [1] * len(shape)
        own = [dim for dim, loop in enumerate(own_loops(op)) if loop is not None]
        for dim in (*own, *(dim for dim in range(len(shape)) if dim not in own)):
            parts[dim] = max(1, min(shape[dim], left))
            left //= parts[dim]
        return self._from_next(grid_mapping(shape, parts))

    def _worth(self, shape: Shape, value: SSAValue, least: int = 0) -> int:
        """How many tiles a tensor is worth, each with so many bytes or more."""
        least = least or self.ipu.least_tile_bytes
        count = prod(shape) * held_bytes(value) // least
        return max(1, min(self.ipu.total_tiles, count))

    def _linear(self, shape: Shape, value: SSAValue, least: int = 0) -> MappingAttr:
        """Runs of equal length, of whole vectors."""
        grain = grain_of(value)
        each = ceil(prod(shape) / self._worth(shape, value, least) / grain) * grain
        return self._from_next(linear_mapping(shape, max(grain, each)))

    def _from_next(self, mapping: MappingAttr) -> MappingAttr:
        """
        The same on the tiles behind those of the last one, so that all get their share.

        What fits onto one IPU is on the first, so that small steps need no links.
        """
        count = tile_count(mapping)
        last = self.ipu.tiles if count <= self.ipu.tiles else self.ipu.total_tiles
        first = self._next if self._next + count <= last else 0
        self._next = (first + count) % last
        return moved(mapping, first)


def _read_whole(op: MapOp) -> Iterator[SSAValue]:
    """The operands of which every element meets the result of its place."""
    for value, map_ in zip(op.inputs, op.input_maps, strict=True):
        assert isinstance(value.type, TensorType)
        if reads_whole(value.type, map_, op.sizes):
            yield value


def _unwidened(value: SSAValue) -> SSAValue:
    """What is widened for a product."""
    op = value.owner
    return op.operands[0] if isinstance(op, Operation) and is_widening(op) else value


def _is_source(value: SSAValue) -> bool:
    return isinstance(value.owner, SOURCES) or not isinstance(value.owner, Operation)


def _shape(value: SSAValue) -> Shape:
    assert isinstance(value.type, TensorType)
    return value.type.get_shape()


def _long(sizes: Shape) -> int:
    """How many loops have more than one turn."""
    return sum(size > 1 for size in sizes)


def _keeps_sums_whole(op: ReduceOp, mapping: MappingAttr) -> bool:
    return prod(mapping.parts[op.parallel_rank :]) == 1


def _loops_along(map_: AffineMap, sizes: Shape, shape: Shape) -> list[int | None] | None:
    """
    The loop along each dimension of an operand; None for one of length 1.

    None for all where a dimension goes along several loops, or not from one end to the other.
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
