"""Places in a pipeline: the stage that computes each operation, and the device that has it."""

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
    """A graph has no form as stages that run side by side."""


@dataclass(frozen=True)
class Pipeline:
    """The stages of a pipeline, in the order in which a batch goes through them."""

    homes: Mapping[int, int]
    """The device of each stage, those of gradients among them."""
    back: Mapping[int, int] = field(default_factory=dict)
    """For each stage on the way to the loss: where gradients of what it computes are computed."""
    delays: Mapping[str, int] = field(default_factory=dict)
    """How many batches are begun between the reading of a weight and its update."""

    @property
    def count(self) -> int:
        return len(self.homes)

    @property
    def devices(self) -> tuple[int, ...]:
        return tuple(sorted(set(self.homes.values())))


@dataclass(frozen=True, order=True)
class Place:
    """A stage on a device. Behind the last stage each device has further ones, for updates."""

    stage: int
    device: int


class Places:
    """
    Where a graph's operations are computed.

    What depends on neither an input nor a place has no place: it is computed wherever it is read.
    What is not noted, such as an update rule, is computed behind what it reads, and on the device
    of the variables that it reads.
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
        """Where a value is computed; inputs are there from the beginning."""
        owner = value.owner
        return self._first if isinstance(owner, Block) else self._found.get(owner)

    def at(self, op: Operation) -> Place | None:
        return self._found.get(op)

    @property
    def _first(self) -> Place:
        return Place(0, self._pipeline.homes[0])

    def _reader(self, variable: VariableOp) -> Place | None:
        """The first of the stages that are noted on what reads a variable."""
        readers = [staged(use.operation.location) for use in variable.result.uses]
        ahead = (one.stage for one in readers if one is not None and not one.is_gradient)
        first = min(ahead, default=None)
        return None if first is None else Place(first, self._pipeline.homes[first])

    def _begin(self, graph: GraphOp) -> None:
        """Places what goes with the batches: delayed weights, and variables that count them."""
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
        behind = [place for place in map(self.of, op.operands) if place is not None]
        if not behind:
            return None
        last = max(behind).stage
        note = staged(op.location)
        if note is not None and last < self._pipeline.count:
            back = self._pipeline.back if note.is_gradient else {}
            return self._stage(max(back.get(note.stage, note.stage), last))
        reads = op.variable.text if isinstance(op, UpdateOp) else self._read(op)
        home = None if reads is None else self._homes.get(reads)
        return self._after(behind, (home or max(behind)).device)

    def _stage(self, number: int) -> Place:
        return Place(number, self._pipeline.homes[number])

    def _read(self, op: Operation) -> str | None:
        """A variable that an operation reads, by way of nothing that has a place."""
        floating = [value for value in op.operands if self.of(value) is None]
        return next((name for name in variables_behind(floating) if self._homes[name]), None)

    def _after(self, behind: Sequence[Place], device: int) -> Place:
        """The first place of a device where all these have been."""
        last, count = max(behind).stage, self._pipeline.count
        if last < count:
            same = self._pipeline.homes[last] == device
            return Place(last if same else count, device)
        return Place(max(one.stage + (one.device != device) for one in behind), device)


def variables_behind(values: Iterable[SSAValue]) -> Iterator[str]:
    """The variables that values are computed from, the nearest first."""
    waiting, seen = deque(value.owner for value in values), set[Operation | Block]()
    while waiting:
        owner = waiting.popleft()
        if owner in seen or isinstance(owner, Block):
            continue
        seen.add(owner)
        if isinstance(owner, VariableOp):
            yield owner.variable.text
        waiting.extend(value.owner for value in owner.operands)
