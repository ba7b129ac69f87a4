"""The steps of a session: batches from a step's input, anchors to its output."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from popgraph.builder.opset.enums import AnchorReturnTypeId
from popgraph.builder.opset.exceptions import popart_runtime_error
from popgraph.session.buffers import Stream
from popgraph.session.dataflow import DataFlow
from popgraph.session.program import Program
from popgraph.session.step_io import StepIO
from popgraph.support.arrays import Array
from popgraph.support.poison import unwritten


class Steps:
    """What a step takes and returns, as the data flow says it of a program."""

    def __init__(self, program: Program, dataflow: DataFlow) -> None:
        self._program, self._dataflow = program, dataflow
        self._checked = False

    def anchor_arrays(self) -> dict[str, Array]:
        """An array for every anchor, of the shape that a step fills."""
        whole = {id: self._whole(stream) for id, stream in self._program.outputs.items()}
        return {id: unwritten(one.shape, one.dtype.numpy) for id, one in whole.items()}

    def _whole(self, stream: Stream) -> Stream:
        """All that a step returns of an anchor."""
        shape = self._dataflow.anchor_shape(stream.id, stream.shape)
        return Stream(stream.id, stream.dtype, shape)

    def check(self, stepio: StepIO) -> None:
        """Fails, before the first step, unless the buffers are those of the model."""
        if self._checked:
            return
        for id in stepio.offered_inputs():
            self._check_offered(id)
        if stepio.asserts:
            outputs = self._program.outputs.items()
            streams = {self._whole(one): str(self._dataflow.art(id)) for id, one in outputs}
            batches = self._dataflow.batchesPerStep()
            stepio.check(list(self._program.inputs.values()), streams, batches)
        self._checked = True

    def _check_offered(self, id: str) -> None:
        if id in self._program.inputs or id in self._program.initial_values:
            return  # programs hand all tensors to `PyStepIO`; a weight's value is not read
        if id in self._program.infos:
            raise popart_runtime_error(
                f"The tensor '{id}' has been provided as one of the inputs to the stepIO, but "
                "it is not registered as one of the inputs to the model. Please check this "
                "tensor and your stepIO."
            )
        raise popart_runtime_error(
            f"Testing that the buffer provided by user for input Tensor {id} has the correct "
            f"number of elements, But there is no Tensor named {id} in the model."
        )

    def run(
        self, stepio: StepIO, run_batch: Callable[[Mapping[str, Array]], Mapping[str, Array]]
    ) -> None:
        """Runs the batches of one step; anchors are written, or summed up first."""
        batches = self._dataflow.batchesPerStep()
        sums: dict[str, Array] = {}
        for batch in range(batches):
            results = run_batch(self._read(stepio))
            for id, stream in self._program.outputs.items():
                returned = self._dataflow.art(id)
                if returned.id() is AnchorReturnTypeId.Sum:
                    sums[id] = np.add(sums[id], results[id]) if id in sums else results[id]
                elif returned.keeps(batch, batches):
                    stepio.write(stream, results[id])
        for id, value in sums.items():
            stepio.write(self._program.outputs[id], value)

    def _read(self, stepio: StepIO) -> dict[str, Array]:
        """The next batch; what the program does not look at need not be there."""
        return {
            id: np.zeros(stream.shape, stream.dtype.numpy)
            if id in self._program.unused_inputs
            else stepio.read(stream)
            for id, stream in self._program.inputs.items()
        }

    def report(self) -> str:
        """What the program takes and gives."""
        lines = [f"{self._dataflow.batchesPerStep()} batches per step"]
        for kind in ("input", "output"):
            streams = self._program.inputs if kind == "input" else self._program.outputs
            lines += [f"  {kind} {s.id}: {s.dtype.name}{list(s.shape)}" for s in streams.values()]
        return "\n".join(lines)
