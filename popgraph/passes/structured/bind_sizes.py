"""Loops that run to sizes of the call: found by following each size from inputs to outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects import tile
from popgraph.dialects.program import CallCondOp, CallLoopOp, GraphOp, graphs_of
from popgraph.dialects.program.control import NUMBER
from popgraph.dialects.program.ops import names_attribute
from popgraph.dialects.program.sizes import set_sizes, sizes_of
from popgraph.dialects.tile.running import set_running
from popgraph.passes.analysis.replace import replace_op
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.operand_maps import movement
from popgraph.passes.structured.analysis.size_flow import Ends, SizeFlow, callers, unsized
from popgraph.passes.structured.to_loops import emitter_of, outermost
from popgraph.support.shapes import prod
from popgraph.support.sizes import Place, Size
from popgraph.support.tuning import Target


@dataclass(frozen=True)
class BindSizes(Pass):
    """
    Loops over a size of the call end there: the graph gets an input for each size.

    tile.map ... domain [64, 10] -> tile.map ... domain [64, 10] {running = loop 0 to 1 of size 0}

    Only when every operation that a size reaches computes each part of its results from the same
    part of its inputs. Others make it a size of the program: `UnsizedError` names the first.
    """

    name = "bind-sizes"
    target: Target = Target()

    @classmethod
    def of(cls, options: Options) -> BindSizes:
        return cls(options.target)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        if not sizes_of(module):
            return
        _limit(module, SizeFlow.of_module(module))
        for graph in graphs_of(module):
            _copy_carried(graph)
            _copy_returned(graph)
        flow = SizeFlow.of_module(module)
        for op, loops in flow.loops.items():
            set_running(op, loops)
        for op in dict.fromkeys(map(outermost, flow.loops)):
            self._check(op, flow)
        for graph in callers(module):
            _bind(module, graph, flow)

    def _check(self, op: Operation, flow: SizeFlow) -> None:
        """
        The loops of an operation can end at sizes.

        Those that pack may go up to some bounds instead: of a copy, where the caller has no more.
        """
        if self._ends(op):
            return
        if isinstance(op, tile.PackOp | tile.UnpackOp):
            ends = flow.of(op.source)
            if self._packs(op, ends):
                return
            copy = _copy_operand(op, 0)
            set_running(copy, ends)
            if self._ends(copy) and self._packs(op, ends):
                return
        raise unsized("has no loop that can end anywhere", op)

    def _packs(self, op: tile.PackOp | tile.UnpackOp, ends: Ends) -> bool:
        """Whether some loops end, and there is memory for the others to go up to the bounds."""
        for loops in (*({axis: end} for axis, end in sorted(ends.items())), {}):
            set_running(op, loops)
            left = ends.keys() - loops.keys()
            if all(_has_memory(op.source, axis) for axis in left) and self._ends(op):
                return True
        return False

    def _ends(self, op: Operation) -> bool:
        return emitter_of(op, self.target).ends_at_sizes


def _bind(module: ModuleOp, graph: GraphOp, flow: SizeFlow) -> None:
    """Notes which outputs end at sizes, and gives the graph an input for each size."""
    sizes = sizes_of(module)
    outputs = [
        (Place(name, axis, end.factor), end.size)
        for name, value in graph.outputs.items()
        for axis, end in flow.of(value).items()
    ]
    set_sizes(
        module,
        [
            replace(size, outputs=tuple(place for place, of in outputs if of == number))
            for number, size in enumerate(sizes)
        ],
    )
    add_size_inputs(graph, sizes)
    _pass_on(graph, len(sizes), flow)


def add_size_inputs(graph: GraphOp, sizes: Sequence[Size]) -> None:
    """Adds inputs to a graph, after its others, for the sizes that have none."""
    missing = [size.name for size in sizes if size.name not in graph.inputs]
    names = [*graph.inputs, *missing]
    for _ in missing:
        graph.block.insert_arg(NUMBER, len(graph.block.args))
    graph.properties["input_names"] = names_attribute(names)


def _limit(module: ModuleOp, flow: SizeFlow) -> None:
    """Gives loops that run as often as a size says this size as their limit."""
    outermost = callers(module)
    for op, end in flow.trips.items():
        graph = op.parent_op()
        if graph not in outermost:
            raise unsized("runs as often as a size says, inside of another loop", op)
        assert isinstance(graph, GraphOp)
        add_size_inputs(graph, sizes_of(module))
        replace_op(op, op.limited(graph.inputs[sizes_of(module)[end.size].name]))


def _pass_on(graph: GraphOp, count: int, flow: SizeFlow) -> None:
    """Gives the sizes, the last inputs of a graph, to the loops and branches that it runs."""
    sizes = graph.block.args[-count:]
    for op in list(graph.block.ops):
        if isinstance(op, CallCondOp | CallLoopOp) and op in flow.calls:
            made = op.capturing(sizes)
            replace_op(op, made)
            for name in made.graphs:
                body = flow.graphs[name]
                for _ in range(count):
                    body.block.insert_arg(NUMBER, len(body.block.args))
                body.properties["input_names"] = names_attribute(made.argument_names)
                _pass_on(body, count, flow)


def _copy_returned(graph: GraphOp) -> None:
    """
    Copies inputs that are outputs, outputs that are returned twice, and results of loops that end
    early, by loops that can end.

    return %x -> %y = tile.map %x; return %y

    Programs would copy them, too, but up to the bounds: more than the caller has.
    """
    end, taken = graph.return_op, set[SSAValue](graph.block.args)
    for op in graph.block.ops:
        if isinstance(op, CallLoopOp) and op.ends_early:
            taken |= {*op.results}
    for number, value in enumerate(end.values):
        memory = _memory_of(value)
        if memory in taken:
            _copy_operand(end, number)
        taken.add(memory)


def _has_memory(value: SSAValue, axis: int) -> bool:
    """
    Whether there is memory after the end of an axis, whatever it holds.

    Arrays of the caller end there, unless they were copied: see `SizedExecutable`.
    """
    memory = _memory_of(value)
    if not isinstance(memory.owner, Block) or not isinstance(memory.owner.parent_op(), GraphOp):
        return True
    return memory is value and prod(tensor(value).get_shape()[:axis]) > 1


def _copy_carried(graph: GraphOp) -> None:
    """Copies inputs that loops begin with, and give back if they have no iterations."""
    for op in list(graph.block.ops):
        if isinstance(op, CallLoopOp) and op.ends_early:
            for number, value in enumerate(op.operands):
                if value in op.carried and _memory_of(value) in graph.block.args:
                    _copy_operand(op, number)


def _copy_operand(op: Operation, number: int) -> tile.MapOp:
    """Gives an operation a copy of an operand."""
    value = op.operands[number]
    shape = tensor(value).get_shape()
    copy = movement(value, AffineMap.identity(len(shape)), shape)
    copy.location = op.location
    Rewriter.insert_op(copy, InsertPoint.before(op))
    op.operands[number] = copy.outputs[0]
    return copy


def _memory_of(value: SSAValue) -> SSAValue:
    """The tensor whose memory a value is in."""
    while isinstance(value.owner, tile.ViewOp):
        value = value.owner.source
    return value
