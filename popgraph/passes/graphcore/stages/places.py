"""Assigns each operation of a pipeline to a stage and a device."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Block, Operation, SSAValue

from popgraph.dialects.program import GraphOp, ReturnOp, UpdateOp, VariableOp
from popgraph.passes.analysis.stage_notes import staged
from popgraph.passes.graphcore.training.autodiff import DELAYED
from popgraph.support.errors import PopgraphError


class UncutError(PopgraphError):
    """A graph cannot be cut into stages that run in parallel."""


@dataclass(frozen=True)
class Pipeline:
    """The stages of a pipeline, in the order in which a batch passes them."""

    homes: Mapping[int, int]
    """The device of each stage, forward and backward."""
    back: Mapping[int, int] = field(default_factory=dict)
    """For each forward stage, the stage that computes its gradients."""
    delays: Mapping[str, int] = field(default_factory=dict)
    """For each weight, the number of batches that start between its read and its update."""

    @property
    def count(self) -> int:
        return len(self.homes)

    @property
    def devices(self) -> tuple[int, ...]:
        return tuple(sorted(set(self.homes.values())))


@dataclass(frozen=True, order=True)
class Place:
    """A stage on a device. After the last stage, each device has further stages for updates."""

    stage: int
    device: int


class Places:
    """
    The place of each operation of a graph.

    Operations that depend on no input and no placed value have no place: each reader recomputes
    them. Operations without a stage note, such as update rules, follow their operands, on the
    device of the variables that they read.
    """

    def __init__(self, graph: GraphOp, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._found: dict[Operation, Place] = {}
        self._variables = {op.variable.text: op for op in graph.variables()}
        readers = {name: self._reader(op) for name, op in self._variables.items()}
        # A state `Accl1___w` is where its weight is: update rules have no notes.
        self._homes = {
            name: home or readers.get(name.partition("___")[2]) for name, home in readers.items()
        }
        self._begin(graph)
        for op in graph.block.ops:
            if op not in self._found and not isinstance(op, ReturnOp):
                place = self._place(op)
                if place is not None:
                    self._found[op] = place
        self.updates = {op.variable.text: self._found[op] for op in graph.updates()}

    def of(self, value: SSAValue) -> Place | None:
        """The place of a value; inputs belong to the first stage."""
        owner = value.owner
        return self._first if isinstance(owner, Block) else self._found.get(owner)

    def at(self, op: Operation) -> Place | None:
        return self._found.get(op)

    @property
    def _first(self) -> Place:
        return Place(0, self._pipeline.homes[0])

    def _reader(self, variable: VariableOp) -> Place | None:
        """The first forward stage that reads a variable, according to stage notes."""
        readers = [staged(use.operation.location) for use in variable.result.uses]
        ahead = (one.stage for one in readers if one is not None and not one.is_gradient)
        first = min(ahead, default=None)
        return None if first is None else Place(first, self._pipeline.homes[first])

    def _begin(self, graph: GraphOp) -> None:
        """Places delayed weights and variables that do not depend on inputs, such as counters."""
        moving = set[SSAValue](graph.block.args)
        for op in graph.block.ops:
            if isinstance(op, VariableOp) and op.variable.text.startswith(DELAYED):
                self._found[op] = self._home_of_delayed(op.variable.text)
                moving.update(op.results)
            elif not moving.isdisjoint(op.operands):
                moving.update(op.results)
        for update in graph.updates():
            if update.value not in moving:
                self._found[update] = self._first
                if (counter := self._variables.get(update.variable.text)) is not None:
                    self._found[counter] = self._first

    def _home_of_delayed(self, name: str) -> Place:
        home = self._homes[name]
        if home is None:
            raise UncutError(f"no stage of the pipeline reads {name.removeprefix(DELAYED)!r}")
        return home

    def _place(self, op: Operation) -> Place | None:
        before = [place for place in map(self.of, op.operands) if place is not None]
        if not before:
            return None
        last = max(before).stage
        note = staged(op.location)
        if note is not None and last < self._pipeline.count:
            back = self._pipeline.back if note.is_gradient else {}
            return self._stage(max(back.get(note.stage, note.stage), last))
        reads = op.variable.text if isinstance(op, UpdateOp) else self._read(op)
        home = None if reads is None else self._homes.get(reads)
        return self._after(before, (home or max(before)).device)

    def _stage(self, number: int) -> Place:
        return Place(number, self._pipeline.homes[number])

    def _read(self, op: Operation) -> str | None:
        """A variable that an operation reads, directly or through operations without a place."""
        floating = [value for value in op.operands if self.of(value) is None]
        return next((name for name in variables_read(floating) if self._homes[name]), None)

    def _after(self, before: Sequence[Place], device: int) -> Place:
        """The first place of a device that follows all these places."""
        last, count = max(before).stage, self._pipeline.count
        if last < count:
            same = self._pipeline.homes[last] == device
            return Place(last if same else count, device)
        return Place(max(one.stage + (one.device != device) for one in before), device)


def variables_read(values: Iterable[SSAValue]) -> Iterator[str]:
    """The variables that values depend on, nearest first."""
    waiting, seen = deque(value.owner for value in values), set[Operation | Block]()
    while waiting:
        owner = waiting.popleft()
        if owner in seen or isinstance(owner, Block):
            continue
        seen.add(owner)
        if isinstance(owner, VariableOp):
            yield owner.variable.text
        waiting.extend(value.owner for value in owner.operands)
