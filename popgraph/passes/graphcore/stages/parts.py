"""Cuts a graph into parts, one graph for each stage of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from popgraph.dialects.program import GraphOp, VariableOp
from popgraph.passes.analysis.graph import only_graph
from popgraph.passes.analysis.growing_graph import GrowingGraph
from popgraph.passes.graphcore.stages.places import (
    Pipeline,
    Place,
    Places,
    UncutError,
    variables_read,
)
from popgraph.passes.graphcore.training.autodiff import DELAYED

EDGE = "Edge___"
"""Prefix of values that one part computes and another one reads."""


@dataclass(frozen=True)
class Part:
    """The graph that one stage computes for each batch."""

    place: Place
    module: ModuleOp

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(only_graph(self.module).inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(only_graph(self.module).outputs)


@dataclass(frozen=True)
class Parts:
    """The parts of a graph, in the order in which a batch passes them."""

    parts: tuple[Part, ...]
    updates: Mapping[str, Place]
    """The place of each variable's update."""


def cut(module: ModuleOp, pipeline: Pipeline, settled: Mapping[str, Place] | None = None) -> Parts:
    """
    The parts of a module whose operations have stage notes.

    All parts in sequence equal the graph. Variables in `settled` change only at these places, and
    only when no other batch is in flight.
    """
    made = Cut(only_graph(module), pipeline, settled or {})
    return Parts(tuple(made.parts()), made.places.updates)


def cut_micro_batches(others: ModuleOp, last: ModuleOp, pipeline: Pipeline) -> tuple[Parts, Parts]:
    """
    The parts of a program for micro-batches and of the program for the last one.

    Variables that only the latter updates are settled: no other batch is in flight then.
    """
    _drop_still(others)
    moving = {op.variable.text for op in only_graph(others).updates()}
    updates = Places(only_graph(last), pipeline).updates
    settled = {name: place for name, place in updates.items() if name not in moving}
    return cut(others, pipeline, settled), cut(last, pipeline, settled)


def _drop_still(module: ModuleOp) -> None:
    """Erases updates of variables to their current values."""
    for op in list(only_graph(module).updates()):
        owner = op.value.owner
        if isinstance(owner, VariableOp) and owner.variable == op.variable:
            Rewriter.erase_op(op)


class Cut:
    """Copies the operations of a graph into parts."""

    def __init__(self, graph: GraphOp, pipeline: Pipeline, settled: Mapping[str, Place]) -> None:
        self._graph, self._pipeline, self._settled = graph, pipeline, settled
        self.places = Places(graph, pipeline)
        self._parts: dict[Place, GrowingGraph] = {}
        self._edges: dict[SSAValue, str] = {}
        self._names = {value: name for name, value in graph.inputs.items()}
        taken = {*graph.inputs, *graph.outputs}
        names = (f"{EDGE}{number}" for number in count())
        self._fresh = (name for name in names if name not in taken)

    def parts(self) -> Iterator[Part]:
        for op in self._graph.block.ops:
            place = self.places.at(op)
            if place is not None and not isinstance(op, VariableOp):
                self._clone(op, place)
        for name, value in self._graph.outputs.items():
            place = self.places.of(value) or self._home(value)
            self._part(place).outputs[name] = self._value(value, place)
        for place in sorted(self._parts):
            yield Part(place, self._parts[place].finished())

    def _part(self, place: Place) -> GrowingGraph:
        return self._parts.setdefault(place, GrowingGraph(Block()))

    def _clone(self, op: Operation, place: Place) -> None:
        part = self._part(place)
        for operand in op.operands:
            part.values[operand] = self._value(operand, place)
        copy = op.clone(part.values)
        part.add(copy)
        part.values.update(zip(op.results, copy.results, strict=True))

    def _value(self, value: SSAValue, place: Place) -> SSAValue:
        """A part's copy of a value: an input, a variable, an edge or a recomputation."""
        part, owner = self._part(place), value.owner
        if value in part.values:
            return part.values[value]
        if isinstance(owner, Block):
            found = part.input(self._names[value], value)
        elif (source := self.places.at(owner)) not in (None, place):
            assert source is not None
            found = self._passed_on(value, source, place)
        elif isinstance(owner, VariableOp):
            found = self._variable(owner, place)
        else:
            assert isinstance(owner, Operation)
            self._clone(owner, place)
            return part.values[value]
        part.values[value] = found
        return found

    def _passed_on(self, value: SSAValue, source: Place, place: Place) -> SSAValue:
        """The input of this part for a value that another part computes."""
        if source.stage >= place.stage:
            raise UncutError(f"stage {place.stage} of the pipeline reads a value of a later stage")
        if value not in self._edges:
            self._edges[value] = name = next(self._fresh)
            self._part(source).outputs[name] = self._value(value, source)
        return self._part(place).input(self._edges[value], value)

    def _variable(self, op: VariableOp, place: Place) -> SSAValue:
        name = op.variable.text
        if name.startswith(DELAYED):
            name = name.removeprefix(DELAYED)
            self.check_delay(name, place)
        elif not self.is_direct(name, place):
            raise UncutError(f"variable {name!r} changes on one stage and is read on another")
        return self._part(place).variable(name, op)

    def is_direct(self, name: str, place: Place) -> bool:
        """Whether a part reads the value of a variable that its batch requires."""
        settled = self._settled.get(name)
        if settled is not None:
            return settled.device == place.device and place.stage <= settled.stage
        return self.places.updates.get(name, place) == place

    def check_delay(self, name: str, place: Place) -> None:
        updated = self.places.updates.get(name)
        delay = None if updated is None else updated.stage - place.stage
        if delay != self._pipeline.delays[name]:
            raise UncutError(f"variable {name!r} is updated later than a stage can wait")

    def _home(self, value: SSAValue) -> Place:
        """The place of an output that depends on variables only."""
        updates = {**self.places.updates, **self._settled}
        moved = (updates[name] for name in variables_read([value]) if name in updates)
        return next(moved, Place(0, self._pipeline.homes[0]))
