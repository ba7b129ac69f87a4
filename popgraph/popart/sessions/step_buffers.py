"""The buffers of steps: anchor arrays, checks of the user's arrays, and synthetic data."""

from __future__ import annotations

from functools import partial

import numpy as np

from popgraph.builder.opset.enums import SyntheticDataMode
from popgraph.engine.shares import StepShard
from popgraph.engine.steps import Steps
from popgraph.engine.streams import Stream
from popgraph.popart.api.dataflow import DataFlow
from popgraph.popart.api.step_io import ReturnedCount, StepIO
from popgraph.popart.exceptions import popart_internal_exception, popart_runtime_error
from popgraph.popart.model.aborts import check_aborts
from popgraph.popart.programs.printed_tensors import show
from popgraph.popart.programs.program import Program
from popgraph.support.arrays import Array
from popgraph.support.logs import log_of
from popgraph.support.poison import unwritten

_UNUSED = (
    "The input Tensor %s to the ONNX Model does not appear in the optimized PopART Ir, possibly "
    "due to constant folding. Therefore, the input buffer provided will not be used. "
)


def steps_of(program: Program, dataflow: DataFlow, share: StepShard) -> Steps:
    """The steps of a program, as the data flow defines them."""
    watchers = (partial(show, program.printed), partial(check_aborts, program.aborts))
    return Steps(
        program,
        {id: dataflow.art(id).kept for id in program.outputs},
        share,
        program.shared_inputs,
        watchers if program.is_watched else (),
    )


class StepBuffers:
    """The input and output arrays of a step, as the data flow defines them."""

    def __init__(self, program: Program, dataflow: DataFlow, steps: Steps) -> None:
        self._program, self._dataflow, self._steps = program, dataflow, steps
        self._plan = steps.share.whole
        self._checked = False

    def anchor_arrays(self) -> dict[str, Array]:
        """An uninitialized array for each anchor, in the shape of a step."""
        whole = {id: self._whole(stream) for id, stream in self._program.outputs.items()}
        return {id: unwritten(one.shape, one.dtype.numpy) for id, one in whole.items()}

    def _whole(self, stream: Stream) -> Stream:
        """The shape and type of an anchor for a whole step."""
        shape = self._dataflow.anchor_shape(stream.id, stream.shape, self._plan)
        return Stream(stream.id, stream.dtype, shape)

    def check(self, stepio: StepIO) -> None:
        """Checks, before the first step, that the buffers match the model."""
        if self._checked:
            return
        if stepio.asserts:
            for id in sorted(stepio.offered_inputs()):
                self._check_provided(id)
            for id in sorted(stepio.offered_outputs()):
                self._check_buffer_size(id)
            inputs = {one: self._steps.reads(id) for id, one in self._program.inputs.items()}
            outputs = {one: self._returns(one) for one in self._program.outputs.values()}
            stepio.check(inputs, outputs, self._plan)
        self._checked = True

    def _returns(self, stream: Stream) -> ReturnedCount:
        count = self._whole(stream).elements // max(1, stream.elements)
        return ReturnedCount(count, self._dataflow.art(stream.id))

    def _check_provided(self, id: str) -> None:
        if id in self._program.unused_inputs:
            log_of("devicex").warning(_UNUSED, id)
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
            f"number of elements, But there is no Tensor named {id} in the Ir's main Graph, and it "
            "does not exist in the original ONNX Model."
        )

    def _check_buffer_size(self, id: str) -> None:
        if id in self._program.outputs:
            return
        if id in self._program.infos:
            raise popart_internal_exception("Non-anchored Tensor in CorrectnessAsserter::checkOut")
        raise popart_runtime_error(
            f"Testing that the buffer provided by user for output Tensor {id} has the correct "
            f"number of elements,  But there is no Tensor named {id} in the Ir's tensors. "
        )

    def report(self) -> str:
        """The inputs and outputs of the program, as text."""
        lines = [f"{self._plan.batches} batches per step"]
        for kind in ("input", "output"):
            streams = self._program.inputs if kind == "input" else self._program.outputs
            lines += [f"  {kind} {s.id}: {s.dtype.name}{list(s.shape)}" for s in streams.values()]
        return "\n".join(lines)


_SEED = 0


class SyntheticIO(StepIO):
    """Zeros or random numbers, generated once, in place of the program's arrays."""

    def __init__(self, mode: SyntheticDataMode) -> None:
        self._mode, self._batches = mode, dict[str, Array]()
        self._generator = np.random.default_rng(_SEED)

    def read(self, stream: Stream) -> Array:
        if stream.id not in self._batches:
            self._batches[stream.id] = self._drawn(stream).astype(stream.dtype.numpy)
        return self._batches[stream.id]

    def _drawn(self, stream: Stream) -> Array:
        match self._mode:
            case SyntheticDataMode.RandomNormal:
                drawn = self._generator.standard_normal(stream.shape)
                return drawn if stream.dtype.is_float else np.abs(drawn)
            case SyntheticDataMode.RandomUniform:
                return self._generator.random(stream.shape)
            case _:
                return np.zeros(stream.shape)

    def write(self, stream: Stream, value: Array) -> None:
        """Discards the value; on an IPU, anchors stay on the device."""
