"""Splits a graph with gradients into a forward pass that returns residuals, and a backward pass."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import count

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from popgraph.dialects import tile
from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.program import ConstantOp, GraphOp, VariableOp, graphs_of
from popgraph.dialects.program.calls import calls_in
from popgraph.dialects.tile.scalars import is_costly
from popgraph.dialects.values import backward_slice
from popgraph.passes.analysis.cheapest_cut import CheapestCut
from popgraph.passes.analysis.growing_graph import GrowingGraph
from popgraph.passes.options import GRADIENT
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.support.shapes import prod

RESIDUAL = "Residual___"
"""Prefix of values that the forward pass returns only for the backward pass."""


@dataclass(frozen=True)
class Halves:
    """
    A forward and a backward pass.

    Each input of `backward` has the name of an input or output of `forward`, or of a cotangent.
    """

    forward: ModuleOp
    backward: ModuleOp

    @property
    def residuals(self) -> tuple[str, ...]:
        """Outputs that `forward` has only for `backward`."""
        outputs = main_graph(self.forward).outputs
        return tuple(name for name in outputs if name.startswith(RESIDUAL))


def split_backward(module: ModuleOp, cotangents: Collection[str]) -> Halves:
    """
    y, Gradient___x = f(x, dy)  ->  y, residuals = f1(x); Gradient___x = f2(residuals, dy).

    `cotangents` are the inputs dy: the backward pass consists of everything that depends on them.
    The residuals are a minimum cut by bytes: `f2` recomputes cheap values, and reads inputs and
    outputs of `f1` that it needs anyway.
    """
    return _Split(module, cotangents).halves()


def main_graph(module: ModuleOp) -> GraphOp:
    """The graph that no other graph calls."""
    graphs = graphs_of(module)
    called = {name for graph in graphs for name in calls_in(graph)}
    (main,) = (graph for graph in graphs if graph.sym_name.data not in called)
    return main


class _Split:
    def __init__(self, module: ModuleOp, cotangents: Collection[str]) -> None:
        self._module, self._graph = module, (graph := main_graph(module))
        self._names = {value: name for name, value in graph.inputs.items()}
        self._late = self._dependent(graph.inputs[name] for name in cotangents)
        self._checks = graph.return_op.index_checks
        outputs, checks = graph.outputs, {check.output for check in self._checks}
        self._gradients = {
            name: value
            for name, value in outputs.items()
            if name.startswith(GRADIENT) or (name in checks and value in self._late)
        }
        self._results = {n: v for n, v in outputs.items() if n not in self._gradients}
        self._returned = {value: name for name, value in self._results.items()}

    def halves(self) -> Halves:
        kept = self._kept()
        names = (f"{RESIDUAL}{number}" for number in count())
        passed = {
            value: self._names.get(value) or self._returned.get(value) or next(names)
            for value in kept
        }
        outputs = {
            **self._results,
            **{name: value for value, name in passed.items() if name.startswith(RESIDUAL)},
        }
        forward = self._part(outputs, self._early_inputs())
        return Halves(forward, self._part(self._gradients, passed))

    def _dependent(self, values: Iterable[SSAValue]) -> set[SSAValue]:
        found = set(values)
        for op in self._graph.block.ops:
            if not found.isdisjoint(op.operands):
                found.update(op.results)
        return found

    def _early_inputs(self) -> dict[SSAValue, str]:
        """All inputs except the cotangents, so that callers pass the same ones in each program."""
        return {value: name for value, name in self._names.items() if value not in self._late}

    def _kept(self) -> list[SSAValue]:
        """The early values that the backward pass reads."""
        backward = backward_slice(self._gradients.values())
        early = [
            value
            for value in (
                *self._graph.block.args,
                *(result for op in self._graph.block.ops for result in op.results),
            )
            if value in backward and value not in self._late and not is_known(value)
        ]
        costs = {value: self._cost(value) for value in early}
        readers: dict[SSAValue, list[SSAValue]] = {value: [] for value in early}
        sources, sinks = [], [v for v in self._gradients.values() if v in costs]
        for value in early:
            if isinstance(value.owner, Block) or not is_recomputed(value.owner):
                sources.append(value)
            else:
                for operand in value.owner.operands:
                    if operand in costs:
                        readers[operand].append(value)
            if any(
                result in self._late and result in backward
                for use in value.uses
                for result in use.operation.results
            ):
                sinks.append(value)
        return CheapestCut(costs, readers, sources, sinks).removed()

    def _cost(self, value: SSAValue) -> float:
        """Bytes moved to keep a value: read once, and written once unless it exists anyway."""
        type_ = tensor(value)
        size = prod(type_.get_shape()) * element_bytes(type_.element_type)
        exists = value in self._names or value in self._returned
        return float(size + 1 if exists else 2 * size + 1)

    def _part(self, outputs: Mapping[str, SSAValue], given: Mapping[SSAValue, str]) -> ModuleOp:
        """The graph that computes `outputs` from the values `given`, which are inputs."""
        part = GrowingGraph(Block())
        for value, name in given.items():
            part.values[value] = part.input(name, value)
        needed = self._needed(outputs.values(), part.values)
        for value, name in self._names.items():
            if value in needed and value not in part.values:
                part.values[value] = part.input(name, value)
        for op in self._graph.block.ops:
            if any(result in needed for result in op.results):
                copy = op.clone(part.values)
                part.add(copy)
                for mine, theirs in zip(op.results, copy.results, strict=True):
                    part.values.setdefault(mine, theirs)
        part.outputs.update({name: part.values[value] for name, value in outputs.items()})
        made = part.finished(one for one in self._checks if one.output in outputs)
        called = self._called(main_graph(made))
        for graph in graphs_of(self._module):
            if graph.sym_name.data in called:
                made.body.block.add_op(graph.clone())
        return made

    def _called(self, graph: GraphOp) -> set[str]:
        """The graphs that a graph calls, directly or not."""
        graphs = {one.sym_name.data: one for one in graphs_of(self._module)}
        found, waiting = set[str](), calls_in(graph)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += calls_in(graphs[name])
        return found

    def _needed(self, outputs: Iterable[SSAValue], given: Collection[SSAValue]) -> set[SSAValue]:
        """Values to compute or to read for the outputs, up to the given ones."""
        found: set[SSAValue] = set()
        waiting = list(outputs)
        while waiting:
            value = waiting.pop()
            if value in found or value in given:
                continue
            found.add(value)
            if isinstance(value.owner, Operation):
                waiting.extend(value.owner.operands)
        return found


def is_known(value: SSAValue) -> bool:
    """Whether both passes read a value where it is, without a residual."""
    return isinstance(value.owner, ConstantOp | VariableOp)


def is_recomputed(op: Operation) -> bool:
    """Whether recomputing an operation takes no longer than reading its result from memory."""
    if isinstance(op, tile.ViewOp | tile.AssembleOp):
        return True
    return isinstance(op, tile.MapOp) and not any(is_costly(inner) for inner in op.walk())
