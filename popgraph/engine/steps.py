"""Steps: read micro-batches from the data source, run them, write the outputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Protocol

import numpy as np

from popgraph.engine.replicas import Inputs, Results, RunStacked, stack_and_run
from popgraph.engine.shares import StepShard
from popgraph.engine.streams import ReturnPolicy, Stream
from popgraph.support.arrays import Array
from popgraph.support.memo import cached_property

RunReplicas = Callable[[Sequence[Inputs]], Sequence[Results]]
"""Runs a micro-batch on every replica."""

MOST_BYTES = 1 << 20
"""Limit of the size of outputs in one call, which returns outputs of all micro-batches."""


class StepData(Protocol):
    """The source of inputs and the sink of outputs, one micro-batch at a time."""

    def read(self, stream: Stream) -> Array:
        """The next micro-batch of an input."""

    def write(self, stream: Stream, value: Array) -> None:
        """Writes the next value of an output."""

    def are_contiguous(self, inputs: Iterable[Stream], outputs: Iterable[Stream]) -> bool:
        """Whether all arrays are contiguous, and no input overlaps an output."""


class StreamedProgram(Protocol):
    """The inputs and outputs of a program."""

    inputs: dict[str, Stream]
    outputs: dict[str, Stream]
    unused_inputs: set[str]


@dataclass(frozen=True)
class Steps:
    """The inputs that a step of a program reads, and the outputs that it returns."""

    program: StreamedProgram
    kept: Mapping[str, ReturnPolicy]
    """The values that each output returns."""
    share: StepShard
    shared: Collection[str] = ()
    """Inputs that all replicas share."""
    watchers: Sequence[Callable[[Results], None]] = ()
    """Called with the results of each replica, after every micro-batch."""

    @cached_property
    def _count(self) -> int:
        return self.share.whole.micro_batches

    def reads(self, id: str) -> int:
        """The number of reads of an input per step."""
        return self._count if id in self.shared else self.share.whole.runs

    @cached_property
    def runs_in_one_call(self) -> bool:
        """
        Whether a step of one replica can be a single call of the program.

        The host reads nothing between micro-batches, so the overhead per micro-batch is small.
        """
        outputs = self.program.outputs.values()
        values = sum(one.elements * one.dtype.numpy.itemsize for one in outputs)
        several = self.share.whole.runs == self._count > 1
        return several and values * self._count <= MOST_BYTES and not self.watchers

    @cached_property
    def _rows_read(self) -> dict[str, Stream]:
        unused = self.program.unused_inputs
        inputs = self.program.inputs.items()
        return {id: one.stacked(self._count) for id, one in inputs if id not in unused}

    @cached_property
    def _rows_unused(self) -> dict[str, Array]:
        """Zeros for unused inputs."""
        return {
            id: _zeros(self.program.inputs[id].stacked(self._count))
            for id in self.program.unused_inputs
        }

    @cached_property
    def _rows_written(self) -> dict[str, Stream]:
        return {
            id: one.stacked(len(self.kept[id].of(self._count)))
            for id, one in self.program.outputs.items()
        }

    def run_stacked(self, data: StepData, run: RunStacked) -> bool:
        """Runs a step as one call of the program if its data allow it; returns whether it did."""
        if not self.runs_in_one_call or self.share.is_partial:
            return False
        if not data.are_contiguous(self._rows_read.values(), self._rows_written.values()):
            return False
        given = {id: data.read(one) for id, one in self._rows_read.items()}
        results = run(given | self._rows_unused, self._count)
        for id, stream in self._rows_written.items():
            data.write(stream, self._returned(self.kept[id], results[id]))
        return True

    def _returned(self, kept: ReturnPolicy, rows: Array) -> Array:
        if kept.summed:
            total: Array = reduce(np.add, rows)[None]
            return total
        at = kept.of(self._count)
        return rows if len(at) == self._count else rows[at]

    def run_together(self, data: StepData, run: RunStacked) -> None:
        """Runs a step of one replica; all of its inputs are read before it begins."""
        if self.run_stacked(data, run):
            return
        given = [self._read(data, {}) for _ in range(self._count)]
        returning = _OutputWriter(self, data, self.program.outputs)
        for batch, found in enumerate(stack_and_run(run, self.program.inputs, given)):
            returning.take(batch, found)
        returning.finish()

    def run(self, data: StepData, run: RunReplicas, only: Collection[str] | None = None) -> None:
        """
        Runs the micro-batches of one step; outputs are written, or summed first.

        If `only` is given, the other outputs are not returned.
        """
        written = self.program.outputs
        if only is not None:
            written = {id: one for id, one in written.items() if id in only}
        replicas = [_OutputWriter(self, data, written) for _ in range(self.share.whole.replicas)]
        for batch in range(self._count):
            common: dict[str, Array] = {}
            given = [self._read(data, common) for _ in replicas]
            found = self.share.gather_results(run(self.share.own_inputs(given)))
            for results, returning in zip(found, replicas, strict=True):
                for watch in self.watchers:
                    watch(results)
                returning.take(batch, results)
        for returning in replicas:
            returning.finish()

    def _read(self, data: StepData, common: dict[str, Array]) -> dict[str, Array]:
        """Reads the next micro-batch of a replica; `common` caches inputs that replicas share."""
        found = {}
        for id, stream in self.program.inputs.items():
            if id in common:
                found[id] = common[id]
            elif id in self.program.unused_inputs:  # these need not be there
                found[id] = _zeros(stream)
            else:
                found[id] = data.read(stream)
            if id in self.shared:
                common[id] = found[id]
        return found


@dataclass
class _OutputWriter:
    """Returns the outputs of one replica to the sink of a step."""

    steps: Steps
    data: StepData
    written: Mapping[str, Stream]
    sums: dict[str, Array] = field(default_factory=dict)

    def take(self, batch: int, results: Results) -> None:
        count = self.steps._count
        for id, stream in self.written.items():
            kept, value = self.steps.kept[id], results[id]
            if kept.summed:
                self.sums[id] = np.add(self.sums[id], value) if id in self.sums else value
            elif kept.keeps(batch, count):
                self.data.write(stream, value)

    def finish(self) -> None:
        for id, value in self.sums.items():
            self.data.write(self.written[id], value)


def _zeros(stream: Stream) -> Array:
    return np.zeros(stream.shape, stream.dtype.numpy)
