"""PopONNX's steps: `DataFlow` with a batch size, and `PyStepIO` with fewer checks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar

from popgraph.builder.opset.enums import AnchorReturnTypeId
from popgraph.engine.plan import StepPlan
from popgraph.engine.streams import Stream
from popgraph.popart.api import dataflow, step_io
from popgraph.popart.eras.era import PLAIN_POPONNX, Era
from popgraph.popart.exceptions import popart_exception
from popgraph.support.arrays import Array
from popgraph.support.shapes import Shape, prod


class AnchorReturnType(dataflow.AnchorReturnType):
    """PopART's class with the members of the enumeration of 2018."""

    ALL: ClassVar[AnchorReturnType]
    FINAL: ClassVar[AnchorReturnType]
    SUM: ClassVar[AnchorReturnType]


AnchorReturnType.ALL = AnchorReturnType("ALL")
AnchorReturnType.FINAL = AnchorReturnType("FINAL")
AnchorReturnType.SUM = AnchorReturnType("SUM")


class DataFlow(dataflow.DataFlow):
    """
    `DataFlow(batchesPerStep, batchSize, anchors, AnchorReturnType.ALL)`, or PopART's form.

    With a batch size, the batches of a step are concatenated along the first axis of inputs and
    anchors, instead of stacked along a new axis.
    """

    def __init__(
        self,
        batchesPerStep: int,
        batchSize: int | Mapping[str, dataflow.AnchorReturnType] | Iterable[str] = (),
        anchorTensors: Mapping[str, dataflow.AnchorReturnType]
        | Iterable[str]
        | dataflow.AnchorReturnType = (),
        anchorReturnType: dataflow.AnchorReturnType | None = None,
        *,
        anchorIds: Iterable[str] = (),
    ) -> None:
        anchorTensors = anchorTensors or anchorIds
        self._batch_size: int | None = None
        if isinstance(batchSize, int):
            self._batch_size = batchSize
            assert not isinstance(anchorTensors, dataflow.AnchorReturnType)
            all_ = anchorReturnType is None or anchorReturnType.id() is AnchorReturnTypeId.All
            if not all_:
                raise popart_exception("Only ALL AnchorReturnType is currently supported")
            super().__init__(batchesPerStep, anchorTensors, anchorReturnType)
        elif isinstance(anchorTensors, dataflow.AnchorReturnType):
            super().__init__(batchesPerStep, batchSize, anchorTensors)
        else:
            super().__init__(batchesPerStep, batchSize or anchorTensors, anchorReturnType)

    def batchSize(self) -> int:
        return 1 if self._batch_size is None else self._batch_size

    samplesPerBatch = batchSize

    def anchor_shape(self, id: str, shape: Shape, step: StepPlan) -> Shape:
        if self._batch_size is None or not shape:
            return super().anchor_shape(id, shape, step)
        return (prod(self.art(id).prefix(step)) * shape[0], *shape[1:])


class PyStepIO(step_io.PyStepIO):
    __doc__ = step_io.PyStepIO.__doc__
    ERA: ClassVar[Era] = PLAIN_POPONNX

    def __init__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        super().__init__(inputs, outputs)
        self.enableRuntimeAsserts(self.ERA.checked)

    def offered_outputs(self) -> list[str]:
        return super().offered_outputs() if self.ERA.checked else []

    def offered_inputs(self) -> list[str]:
        return super().offered_inputs() if self.ERA.checked else []


class ReplicasFirst(step_io.StepIO):
    """
    Presents arrays [replicas, micro-batches, ...] to a session that reads and writes
    [micro-batches, replicas, ...].
    """

    def __init__(self, given: step_io.StepIO, step: StepPlan, shared: Collection[str]) -> None:
        """`shared` are the inputs that are broadcast to all replicas."""
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
        outputs: Mapping[Stream, step_io.ReturnedCount],
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
        """Writes the anchors of the step to the user's buffers."""
        for stream, values in self._written.items():
            for replica in range(self._step.replicas):
                for value in values[replica :: self._step.replicas]:
                    self._given.write(stream, value)
