"""The flow of sizes: the axes and loops that end at sizes of the call, followed from inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
)

from popgraph.dialects import tile
from popgraph.dialects.locations import source
from popgraph.dialects.program import (
    CallCondOp,
    CallLoopOp,
    ConstantOp,
    GraphOp,
    PrepareOp,
    ReturnOp,
    graphs_of,
)
from popgraph.dialects.program.calls import calls_in
from popgraph.dialects.program.sizes import sizes_of
from popgraph.dialects.tile.affine import Linear, linear
from popgraph.dialects.tile.attributes import layout_of
from popgraph.dialects.tile.running import Extent
from popgraph.dialects.tile.structured.fused import readings
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.support.errors import UnsizedError
from popgraph.support.shapes import Shape, prod

Looped = tile.Member | tile.ScatterOp
"""Operations that read by index maps."""

Ends = Mapping[int, Extent]
"""{number: end} of the axes of a tensor, or loops of an operation, that end at a size."""


def callers(module: ModuleOp) -> list[GraphOp]:
    """The graphs that no other graph calls."""
    bodies = {name for graph in graphs_of(module) for name in calls_in(graph)}
    return [graph for graph in graphs_of(module) if graph.sym_name.data not in bodies]


@dataclass
class SizeFlow:
    """The ends of axes and loops at sizes, for the operations that were followed so far."""

    graphs: Mapping[str, GraphOp]
    """The graphs of the module by name, including bodies of loops and branches."""
    bounds: Sequence[int]
    """The bounds of the sizes by number."""
    calls: set[Operation] = field(default_factory=set)
    """The loops and branches that a size has reached."""
    trips: dict[CallLoopOp, Extent] = field(default_factory=dict)
    """The loops whose number of iterations is a size."""
    numbers: list[SSAValue] = field(default_factory=list)
    """The inputs that hold the sizes, if they exist already."""
    ends: dict[SSAValue, dict[int, Extent]] = field(default_factory=dict)
    loops: dict[Operation, Ends] = field(default_factory=dict)
    """The loops of each operation that end at sizes."""

    @staticmethod
    def of_module(module: ModuleOp) -> SizeFlow:
        """Follows the sizes of a module; raises `UnsizedError` if an operation stops one."""
        bounds = [size.bound for size in sizes_of(module)]
        flow = SizeFlow({graph.sym_name.data: graph for graph in graphs_of(module)}, bounds)
        for graph in callers(module) if bounds else ():
            for number, size in enumerate(sizes_of(module)):
                if size.name in graph.inputs:
                    flow.numbers.append(graph.inputs[size.name])
                for place in size.inputs:
                    if place.tensor not in graph.inputs:
                        raise UnsizedError(f"the program has no input {place.tensor!r}", "")
                    end = Extent(number, place.factor)
                    flow.begin(graph.inputs[place.tensor], place.axis, end)
            flow.follow(graph.block)
        return flow

    def begin(self, value: SSAValue, axis: int, end: Extent) -> None:
        """Notes that an axis of an input ends at a size."""
        self.ends.setdefault(value, {})[axis] = end

    def of(self, value: SSAValue) -> Ends:
        """The axes of a tensor that end at sizes."""
        return self.ends.get(value, {})

    def follow(self, block: Block) -> None:
        """Follows sizes through the operations of a block."""
        for op in block.ops:
            match op:
                case ConstantOp() | PrepareOp() | ReturnOp():
                    continue
                case _ if not any(map(self.of, op.operands)):
                    continue
                case tile.MapOp() | tile.ReduceOp() | tile.TransformTilesOp():
                    self._run(op, self._loops(op, readings(op)))
                case tile.ScatterOp():
                    self._scatter(op)
                case tile.TopKOp():
                    self._top_k(op)
                case tile.PositionsOp():
                    self._run(op, self.of(op.mask))
                case tile.CompressOp():
                    self._compress(op)
                case tile.SegmentsOp():
                    self._segments(op)
                case CallCondOp():
                    self._branch(op)
                case CallLoopOp():
                    self._repeat(op)
                case tile.FusedOp():
                    self._fused(op)
                case tile.ViewOp():
                    self._note(op.output, _viewed(op, self.of(op.source)))
                case tile.PackOp():
                    self._relayout(op)
                case tile.AssembleOp():
                    self._assemble(op)
                case _:
                    raise unsized("does not support sizes of the call", op)

    def _note(self, value: SSAValue, ends: Ends) -> None:
        """Notes the axes of a tensor that end at sizes; at the bounds, these are the whole axes."""
        shape = tensor(value).get_shape()
        if any(end.factor * self.bounds[end.size] != shape[axis] for axis, end in ends.items()):
            raise unsized("covers only a part of a size", value.owner)
        if ends:
            self.ends[value] = dict(ends)

    def _run(self, op: Operation, loops: Ends) -> None:
        """Notes that loops of an operation, and the same axes of its results, end at sizes."""
        self._mark(op, loops)
        self._note_results(op, loops)

    def _note_results(self, op: Operation, loops: Ends) -> None:
        """Notes that axes of results end with the loops of the same number, or with all images."""
        if isinstance(op, tile.TransformTilesOp):
            loops = op.result_ends(loops)
        for result in op.results:
            axes = range(tensor(result).get_num_dims())
            self._note(result, {axis: loops[axis] for axis in axes if axis in loops})

    def _mark(self, op: Operation, loops: Ends) -> None:
        """Notes the loops of an operation that end at sizes."""
        if not loops:
            return
        self.loops[op] = loops

    def _loops(
        self,
        op: Looped,
        read: Iterable[tuple[SSAValue, AffineMap | None]],
        known: Ends | None = None,
    ) -> dict[int, Extent]:
        """The loops of an operation that end at sizes, according to its operands."""
        loops = dict(known or {})
        for value, map_ in read:
            for axis, end in self.of(value).items():
                if isinstance(op, tile.TransformTilesOp):
                    found = _tiles_of_images(op, value, map_, axis, end)
                elif map_ is None:
                    found = _loops_of_table(op, value, axis, end)
                else:
                    found = loops_over(map_, axis, end, op)
                if not found and is_factor(op, value):
                    # Vectors may read beyond, into the next index, which only the bound has.
                    raise unsized("multiplies by the first index of a size only", op)
                _join(loops, found, "loop", op)
        return loops

    def _fused(self, op: tile.FusedOp) -> None:
        for argument, value in zip(op.body.block.args, op.inputs, strict=True):
            self._note(argument, self.of(value))
        shared, own = dict[int, Extent](), dict[Operation, Ends]()
        before = -1
        while before < len(shared):  # Ends of shared loops hold for all operations.
            before = len(shared)
            for inner, common in zip(op.members, op.shared, strict=True):
                known = {common[at]: end for at, end in shared.items()}
                loops = self._loops(inner, readings(inner), known)
                own[inner] = {loop: end for loop, end in loops.items() if loop not in common}
                shared |= {common.index(loop): loops[loop] for loop in loops if loop in common}
                self._note_results(inner, loops)
        if op.transforms_tiles:
            if [*shared] != [op.shared[-1].index(0)] or any(own.values()):
                raise unsized("has images that end at a size", op)
        elif shared and op.loops is not None:  # Panels and windows have fixed sizes.
            raise unsized("has panels or windows along a size", op)
        for part, ends in own.items():
            self._mark(part, ends)
        self._mark(op, shared)
        for result, value in zip(op.outputs, op.yielded, strict=True):
            self._note(result, self.of(value))

    def _scatter(self, op: tile.ScatterOp) -> None:
        """
        Axes of the result along parallel loops end with these.

        Other axes are complete up to their bounds: indices come from data, and elements begin as 0.
        """
        loops = self._loops(op, read_by(op))
        if op.initial is not None:
            if any(axis >= op.parallel_rank for axis in self.of(op.initial)):
                raise unsized("scatters along a size", op)
            _join(loops, self.of(op.initial), "loop", op)
        self._mark(op, loops)
        rows = {axis: end for axis, end in loops.items() if axis < op.parallel_rank}
        self._note(op.output, rows)

    def _top_k(self, op: tile.TopKOp) -> None:
        ends = self.of(op.rows)
        if 1 in ends:
            raise unsized("sorts along a size", op)
        self._run(op, ends)

    def _compress(self, op: tile.CompressOp) -> None:
        """Follows sizes into the list of kept slices, which can end at one size only."""
        axis, data = op.axis.value.data, self.of(op.data)
        loops = {dim: end for dim, end in data.items() if dim != axis}
        ends = dict(loops)
        if 0 in self.of(op.positions):
            ends[axis] = self.of(op.positions)[0]
        if len(ends) > 1:
            raise unsized("joins two sizes in one list", op)
        self._mark(op, loops)
        for dim, end in ends.items():
            self._note(op.output, {0: end.scaled(prod(op.sizes) // op.sizes[dim])})

    def _segments(self, op: tile.SegmentsOp) -> None:
        if 1 in self.of(op.rows):
            raise unsized("has rows that end at a size", op)
        ends = dict(self.of(op.starts))
        _join(ends, self.of(op.ends), "loop", op)
        self._run(op, ends)

    def _branch(self, op: CallCondOp) -> None:
        self.calls.add(op)
        for name in op.graphs:
            body = self.graphs[name]
            for argument, value in zip(body.block.args, op.captured, strict=True):
                self._note(argument, self.of(value))
            self.follow(body.block)
            self._assign(op.outputs, body.return_op.values, op)

    def _repeat(self, op: CallLoopOp) -> None:
        """A carried value ends at a size if its initial value or that of an iteration does."""
        self.calls.add(op)
        body = self.graphs[op.graph.string_value()]
        _, _, carried, scanned, captured = op.split([*op.operands])
        _, *arguments = body.block.args
        rows, held = arguments[len(carried) :], arguments[len(carried) + len(scanned) :]
        for argument, value in zip(held, captured, strict=True):
            self._note(argument, self.of(value))
        for argument, value in zip(rows, scanned, strict=False):
            if 0 in self.of(value):
                self._count(op, self.of(value)[0])
            self._note(argument, {axis - 1: end for axis, end in self.of(value).items() if axis})
        arguments = arguments[: len(carried)]
        self._assign(arguments, carried, op)
        while True:  # To a fixed point, as each iteration takes the results of the last one.
            before = [self.of(argument) for argument in arguments]
            self.follow(body.block)
            made = body.return_op.values[op.go is not None :]
            self._assign(arguments, made[: len(carried)], op)
            if before == [self.of(argument) for argument in arguments]:
                break
        self._assign(op.finals, arguments, op)
        for stacked, row in zip(op.stacked, made[len(carried) :], strict=True):
            ends = {axis + 1: end for axis, end in self.of(row).items()}
            if op in self.trips:
                ends[0] = self.trips[op]
            self._note(stacked, ends)

    def _count(self, op: CallLoopOp, end: Extent) -> None:
        """Notes that a loop over the rows of a tensor ends with them."""
        if op.reverse is not None:
            raise unsized("runs backwards over a size", op)
        if end.factor > 1 or (op.limit is not None and op.limit not in self.numbers):
            raise unsized("has another limit besides a size", op)
        if self.trips.setdefault(op, end) != end:
            raise unsized("joins two sizes in one loop", op)

    def _assign(
        self, targets: Sequence[SSAValue], values: Sequence[SSAValue], op: Operation
    ) -> None:
        """Passes values to targets, which join the ends of all values that they can have."""
        for target, value in zip(targets, values, strict=True):
            ends = dict(self.of(target))
            _join(ends, self.of(value), "axis", op)
            self._note(target, ends)

    def _relayout(self, op: tile.PackOp) -> None:
        ends = self.of(op.source)
        self._run(op, ends)

    def _assemble(self, op: tile.AssembleOp) -> None:
        loops: dict[int, Extent] = {}
        for piece, _, _ in op.placements():
            _join(loops, self.of(piece), "axis", op)
        shape = tensor(op.output).get_shape()
        for piece, offsets, steps in op.placements():
            for axis in loops:
                size = tensor(piece).get_shape()[axis]
                if (offsets[axis], steps[axis], size) != (0, 1, shape[axis]):
                    raise unsized("concatenates along a size", op)
        self._run(op, loops)


def read_by(op: tile.Member | tile.ScatterOp) -> list[tuple[SSAValue, AffineMap | None]]:
    """The operands of an operation with their maps; None for tables."""
    if isinstance(op, tile.ScatterOp):
        return list(zip(op.inputs, op.input_maps, strict=True))
    return list(readings(op))


def _join(ends: dict[int, Extent], more: Ends, where: str, op: Operation) -> None:
    """Adds `more` ends to `ends`; two ends of one loop or axis must be equal."""
    for number, end in more.items():
        if ends.setdefault(number, end) != end:
            raise unsized(f"joins two sizes in one {where}", op)


def _loops_of_table(op: Looped, table: SSAValue, axis: int, end: Extent) -> dict[int, Extent]:
    """
    The loops that index an axis of a table directly.

    Indices from data need no loop: they are clamped to the size.
    """
    assert isinstance(op, tile.MapOp)
    arguments = op.body.block.args[len(op.inputs) :]
    loops = dict[int, Extent]()
    for argument, value in zip(arguments, op.tables, strict=True):
        for use in argument.uses if value is table else ():
            element = use.operation
            assert isinstance(element, tile.ElementOp)
            index = element.indices[axis].owner
            if isinstance(index, tile.IndexOp):
                _join(loops, {index.dim.value.data: end}, "loop", op)
    return loops


def _tiles_of_images(
    op: tile.TransformTilesOp, value: SSAValue, map_: AffineMap | None, axis: int, end: Extent
) -> dict[int, Extent]:
    """The loop over tiles, if an axis that ends at a size numbers tiles or images."""
    grid = prod(op.tiling.grid)
    if value is op.x and map_ is not None:
        images = axis == 1 and end.divided(grid) is not None
        tiles = end
    else:
        images = axis == 0 if map_ is None else map_.results[axis] == AffineExpr.dimension(0)
        tiles = end.scaled(grid)
    if not images:
        raise unsized("has images that end at a size", op)
    return {0: tiles}


def is_factor(op: Looped, value: SSAValue) -> bool:
    """Whether a value is an operand of the sums of a contraction."""
    return tile.is_contraction(op) and value in (op.lhs, op.rhs, *op.block_inputs)


def loops_over(map_: AffineMap, axis: int, end: Extent, op: Looped) -> dict[int, Extent]:
    """The loops over an axis that ends at a size, with their ends."""
    form = linear(map_.results[axis], op.sizes)
    if not form.terms and form.constant == 0:
        return {}  # Only index 0, which every size has.
    if form.constant:
        raise unsized("reads and writes different parts of a size", op)
    dims = _plain(form)
    if dims is None:
        return _counted(form, end, op)
    if len(dims) == 1:
        ((loop, factor),) = dims
        if factor == 1:
            return {loop: end}
    found = _split(dims, end, op.sizes)
    if found is None:
        raise unsized("strides along a size", op)
    return found


def _plain(form: Linear) -> list[tuple[int, int]] | None:
    """(loop, factor) of each term, the largest factor first; None if there are divisions."""
    if not all(isinstance(atom, AffineDimExpr) for atom in form.terms):
        return None
    found = [
        (atom.position, factor)
        for atom, factor in form.terms.items()
        if isinstance(atom, AffineDimExpr)
    ]
    return sorted(found, key=lambda pair: -pair[1])


def _counted(form: Linear, end: Extent, op: Looped) -> dict[int, Extent]:
    """The end of a loop with `by` iterations per index of an axis: index = loop floordiv by."""
    match [*form.terms.items()]:
        case [(AffineBinaryOpExpr(AffineBinaryOpKind.FloorDiv, AffineDimExpr() as loop, by), 1)]:
            assert isinstance(by, AffineConstantExpr)
            return {loop.position: end.scaled(by.value)}
    raise unsized("strides along a size", op)


def _split(dims: Sequence[tuple[int, int]], end: Extent, sizes: Shape) -> dict[int, Extent] | None:
    """The end of the outermost of several loops that are the digits of an axis."""
    step = 1
    for loop, factor in reversed(dims):
        if factor != step:
            return None
        step *= sizes[loop]
    outer, factor = dims[0]
    outermost = end.divided(factor)
    return None if outermost is None else {outer: outermost}


def _viewed(op: tile.ViewOp, ends: Ends) -> dict[int, Extent]:
    """The axes of a view that begin with a sized axis of its source, with their ends."""
    source, output = tensor(op.source).get_shape(), tensor(op.output).get_shape()
    found = {}
    for axis, end in ends.items():
        around, inside = prod(source[:axis]), prod(source[axis + 1 :])
        target = next(
            (at for at, size in enumerate(output) if size > 1 and prod(output[:at]) == around),
            None,
        )
        if target is None or layout_of(tensor(op.source)) is not None:
            raise unsized("splits an axis that ends at a size", op)
        mine = prod(output[target + 1 :])
        whole = end.scaled(inside).divided(mine)
        if whole is None:
            raise unsized("splits an axis that ends at a size", op)
        found[target] = whole
    return found


def unsized(what: str, op: Operation | Block) -> UnsizedError:
    if isinstance(op, Block):
        return UnsizedError(f"a loop or branch {what}", "")
    return UnsizedError(f"{op.name} {what}", source(op.location))
