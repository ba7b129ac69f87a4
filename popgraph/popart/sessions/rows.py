"""Micro-batches in a row: a step whose data stand in arrays is one call of the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, reduce

import numpy as np

from popgraph.builder.opset.enums import AnchorReturnTypeId
from popgraph.popart.api.dataflow import DataFlow
from popgraph.popart.api.step_io import StepIO, Stream
from popgraph.popart.api.step_shape import StepShape
from popgraph.popart.programs.program import Program
from popgraph.support.arrays import Array

RunInRow = Callable[[Mapping[str, Array], int], Mapping[str, Array]]
"""Runs the program on arrays that hold so many micro-batches."""

MOST_BYTES = 1 << 20
"""Of anchors: the values of all micro-batches are held, also where one of them comes back."""


class Rows:
    """
    The inputs and anchors of a step of one replica, taken and returned at once.

    Between micro-batches nobody looks at anything, so that each costs little more than the program.
    """

    def __init__(self, program: Program, dataflow: DataFlow, shape: StepShape) -> None:
        self._program, self._dataflow = program, dataflow
        self._count = shape.micro_batches
        values = sum(one.elements * one.dtype.numpy.itemsize for one in program.outputs.values())
        small = values * self._count <= MOST_BYTES
        watched = program.printed or program.aborts
        self.are_possible = shape.runs == self._count > 1 and small and not watched

    @cached_property
    def _inputs(self) -> dict[str, Stream]:
        """What a step reads, as one batch of each input."""
        read = self._program.inputs.items()
        unused = self._program.unused_inputs
        return {id: _in_row(one, self._count) for id, one in read if id not in unused}

    @cached_property
    def _zeros(self) -> dict[str, Array]:
        """What stands for inputs that nothing reads."""
        every = {id: self._program.inputs[id] for id in self._program.unused_inputs}
        whole = {id: _in_row(one, self._count) for id, one in every.items()}
        return {id: np.zeros(one.shape, one.dtype.numpy) for id, one in whole.items()}

    @cached_property
    def _returned(self) -> dict[str, Stream]:
        """What a step writes of each anchor."""
        kept = {id: len(self._kept(id)) for id in self._program.outputs}
        return {id: _in_row(one, kept[id]) for id, one in self._program.outputs.items()}

    def _kept(self, id: str) -> Sequence[int]:
        """The micro-batches of which an anchor comes back; of a sum, one."""
        art = self._dataflow.art(id)
        if art.id() is AnchorReturnTypeId.Sum:
            return [0]
        return [at for at in range(self._count) if art.keeps(at, self._count)]

    def run(self, stepio: StepIO, run: RunInRow) -> bool:
        """A step, if its data stand in arrays that let it be one call; whether it was."""
        if not stepio.holds(self._inputs.values(), self._returned.values()):
            return False
        given = {id: stepio.read(one) for id, one in self._inputs.items()}
        results = run(given | self._zeros, self._count)
        for id, stream in self._returned.items():
            stepio.write(stream, self._value(id, results[id]))
        return True

    def _value(self, id: str, rows: Array) -> Array:
        if self._dataflow.art(id).id() is AnchorReturnTypeId.Sum:
            total: Array = reduce(np.add, rows)[None]
            return total
        kept = self._kept(id)
        return rows if len(kept) == self._count else rows[kept]


def _in_row(stream: Stream, count: int) -> Stream:
    return Stream(stream.id, stream.dtype, (count, *stream.shape))
