"""Binds loops to sizes of the call, by following each size from inputs to outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects import tile
from popgraph.dialects.program import CallCondOp, CallLoopOp, GraphOp, graphs_of
from popgraph.dialects.program.control_signatures import NUMBER
from popgraph.dialects.program.ops import names_attribute
from popgraph.dialects.program.sizes import set_sizes, sizes_of
from popgraph.dialects.tile.running import set_running
from popgraph.passes.analysis.replace import replace_op
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.properties import BOUND, UNCUT
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.operand_maps import movement
from popgraph.passes.structured.analysis.size_flow import Ends, SizeFlow, callers, unsized
from popgraph.passes.structured.to_loops import emitter_of, outermost
from popgraph.support.shapes import prod
from popgraph.support.sizes import Size, SizedAxis
from popgraph.support.tuning import Target


@dataclass(frozen=True)
class BindSizes(Pass):
    """
    End loops over a size of the call at that size, and add an input for each size.

    tile.map ... domain [64, 10] -> tile.map ... domain [64, 10] {running = loop 0 to 1 of size 0}

    Only when each operation that a size reaches computes a slice of its results from the same slice
    of its inputs. `UnsizedError` names the first other operation; each size then gets a program.
    """

    name = "bind-sizes"
    NEEDS = (UNCUT,)
    GIVES = (BOUND,)
    AFTER = ("fuse-attention", "fuse-channels", "schedule-contractions")
    target: Target = Target()

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
        Checks that the loops of an operation can end at sizes.

        Loops that pack may run up to the bound instead, if there is memory: a copy of the operand
        has it, where an array of the caller ends earlier.
        """
        if self._ends(op):
            return
        if isinstance(op, tile.PackOp):
            ends = flow.of(op.source)
            if self._packs(op, ends):
                return
            copy = _copy_operand(op, 0)
            set_running(copy, ends)
            if self._ends(copy) and self._packs(op, ends):
                return
        raise unsized("has no loop that can end at a size", op)

    def _packs(self, op: tile.PackOp, ends: Ends) -> bool:
        """Tries to end one loop, or none; the other loops need memory up to their bounds."""
        for loops in (*({axis: end} for axis, end in sorted(ends.items())), {}):
            set_running(op, loops)
            left = ends.keys() - loops.keys()
            if all(_has_memory(op.source, axis) for axis in left) and self._ends(op):
                return True
        return False

    def _ends(self, op: Operation) -> bool:
        return emitter_of(op, self.target).ends_at_sizes


def _bind(module: ModuleOp, graph: GraphOp, flow: SizeFlow) -> None:
    """Records the outputs that end at sizes, and adds an input for each size."""
    sizes = sizes_of(module)
    outputs = [
        (SizedAxis(name, axis, end.factor), end.size)
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
    """Appends inputs to a graph for the sizes that have none."""
    missing = [size.name for size in sizes if size.name not in graph.inputs]
    names = [*graph.inputs, *missing]
    for _ in missing:
        graph.block.insert_arg(NUMBER, len(graph.block.args))
    graph.properties["input_names"] = names_attribute(names)


def _limit(module: ModuleOp, flow: SizeFlow) -> None:
    """Limits loops over the rows of a tensor to its size."""
    outermost = callers(module)
    for op, end in flow.trips.items():
        graph = op.parent_op()
        if graph not in outermost:
            raise unsized("is a loop over a size inside another loop", op)
        assert isinstance(graph, GraphOp)
        add_size_inputs(graph, sizes_of(module))
        replace_op(op, op.limited(graph.inputs[sizes_of(module)[end.size].name]))


def _pass_on(graph: GraphOp, count: int, flow: SizeFlow) -> None:
    """Passes the sizes, the last inputs of a graph, to the loops and branches that it calls."""
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
    Copies outputs that share memory, by maps whose loops can end at sizes.

    return %x -> %y = tile.map %x; return %y

    These are inputs, outputs that are returned twice, and results of loops that end early. The
    program would copy them up to the bounds, beyond the end of the caller's arrays.
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
    Whether there is memory after the end of an axis.

    Arrays of the caller end there, unless they were copied: see `SizedExecutable`.
    """
    memory = _memory_of(value)
    if not isinstance(memory.owner, Block) or not isinstance(memory.owner.parent_op(), GraphOp):
        return True
    return memory is value and prod(tensor(value).get_shape()[:axis]) > 1


def _copy_carried(graph: GraphOp) -> None:
    """Copies inputs that a loop carries, as a loop without iterations returns them."""
    for op in list(graph.block.ops):
        if isinstance(op, CallLoopOp) and op.ends_early:
            for number, value in enumerate(op.operands):
                if value in op.carried and _memory_of(value) in graph.block.args:
                    _copy_operand(op, number)


def _copy_operand(op: Operation, number: int) -> tile.MapOp:
    """Replaces an operand of an operation by a copy."""
    value = op.operands[number]
    shape = tensor(value).get_shape()
    copy = movement(value, AffineMap.identity(len(shape)), shape)
    copy.location = op.location
    Rewriter.insert_op(copy, InsertPoint.before(op))
    op.operands[number] = copy.outputs[0]
    return copy


def _memory_of(value: SSAValue) -> SSAValue:
    """The tensor that owns the memory of a value."""
    while isinstance(value.owner, tile.ViewOp):
        value = value.owner.source
    return value
