"""PopONNX's `PyStepIO`, which looked only at the arrays that it needed, and not at their sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from popgraph.engine.plan import StepPlan
from popgraph.engine.streams import Stream
from popgraph.popart.api import step_io as modern
from popgraph.popart.eras.era import PLAIN_POPONNX, Era
from popgraph.support.arrays import Array


class PyStepIO(modern.PyStepIO):
    __doc__ = modern.PyStepIO.__doc__
    ERA: ClassVar[Era] = PLAIN_POPONNX

    def __init__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        super().__init__(inputs, outputs)
        self.enableRuntimeAsserts(self.ERA.checked)

    def offered_outputs(self) -> list[str]:
        return super().offered_outputs() if self.ERA.checked else []

    def offered_inputs(self) -> list[str]:
        return super().offered_inputs() if self.ERA.checked else []


class ReplicasFirst(modern.StepIO):
    """
    One step of arrays [replicas, micro-batches, ...], for a session that reads and writes
    [micro-batches, replicas, ...].
    """

    def __init__(self, given: modern.StepIO, step: StepPlan, shared: Collection[str]) -> None:
        """All replicas read the same of the inputs in `shared`."""
        self._given, self._step, self._shared = given, step, shared
        self._read: dict[str, list[Array]] = {}
        self._written: defaultdict[Stream, list[Array]] = defaultdict(list)

    @property
    def asserts(self) -> bool:
        return self._given.asserts

    def offered_inputs(self) -> list[str]:
        return self._given.offered_inputs()

    def offered_outputs(self) -> list[str]:
        return self._given.offered_outputs()

    def check(
        self,
        inputs: Mapping[Stream, int],
        outputs: Mapping[Stream, modern.Returned],
        step: StepPlan,
    ) -> None:
        self._given.check(inputs, outputs, step)

    def read(self, stream: Stream) -> Array:
        if stream.id in self._shared:
            return self._given.read(stream)
        if stream.id not in self._read:
            rows = [self._given.read(stream) for _ in range(self._step.runs)]
            count = self._step.micro_batches
            self._read[stream.id] = [row for batch in range(count) for row in rows[batch::count]]
        return self._read[stream.id].pop(0)

    def write(self, stream: Stream, value: Array) -> None:
        self._written[stream].append(value.copy())

    def finish(self) -> None:
        """Hands on the anchors of the step."""
        for stream, values in self._written.items():
            for replica in range(self._step.replicas):
                for value in values[replica :: self._step.replicas]:
                    self._given.write(stream, value)
