"""The steps of a session: micro-batches from a step's input, anchors to its output."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from popgraph.builder.opset.enums import AnchorReturnTypeId
from popgraph.popart.api.dataflow import DataFlow
from popgraph.popart.api.step_io import Returned, StepIO, Stream
from popgraph.popart.exceptions import popart_internal_exception, popart_runtime_error
from popgraph.popart.model.aborts import check_aborts
from popgraph.popart.programs.printed_tensors import show
from popgraph.popart.programs.program import Program
from popgraph.popart.sessions.rows import Rows, RunInRow
from popgraph.popart.sessions.split import Share
from popgraph.support.arrays import Array
from popgraph.support.logs import log_of
from popgraph.support.poison import unwritten

RunBatch = Callable[[Sequence[Mapping[str, Array]]], Sequence[Mapping[str, Array]]]
"""Runs a micro-batch on every replica."""

_UNUSED = (
    "The input Tensor %s to the ONNX Model does not appear in the optimized PopART Ir, possibly "
    "due to constant folding. Therefore, the input buffer provided will not be used. "
)


class Steps:
    """
    What a step takes and returns, as the data flow says it of a program.

    Of the inputs in `shared`, all replicas get the same.
    """

    def __init__(
        self,
        program: Program,
        dataflow: DataFlow,
        share: Share,
        shared: Collection[str] = (),
    ) -> None:
        self._program, self._dataflow = program, dataflow
        self._returned = {id: dataflow.art(id) for id in dataflow.anchors()}
        self._share, self._shape, self._shared = share, share.whole, frozenset(shared)
        self._checked = False
        self._rows = Rows(program, dataflow, share.whole)

    def anchor_arrays(self) -> dict[str, Array]:
        """An array for every anchor, of the shape that a step fills."""
        whole = {id: self._whole(stream) for id, stream in self._program.outputs.items()}
        return {id: unwritten(one.shape, one.dtype.numpy) for id, one in whole.items()}

    def _whole(self, stream: Stream) -> Stream:
        """All that a step returns of an anchor."""
        shape = self._dataflow.anchor_shape(stream.id, stream.shape, self._shape)
        return Stream(stream.id, stream.dtype, shape)

    def check(self, stepio: StepIO) -> None:
        """Fails, before the first step, unless the buffers are those of the model."""
        if self._checked:
            return
        if stepio.asserts:
            for id in sorted(stepio.offered_inputs()):
                self._check_offered(id)
            for id in sorted(stepio.offered_outputs()):
                self._check_room(id)
            inputs = {one: self._reads(id) for id, one in self._program.inputs.items()}
            outputs = {one: self._returns(one) for one in self._program.outputs.values()}
            stepio.check(inputs, outputs, self._shape)
        self._checked = True

    def _returns(self, stream: Stream) -> Returned:
        count = self._whole(stream).elements // max(1, stream.elements)
        return Returned(count, self._dataflow.art(stream.id))

    def _reads(self, id: str) -> int:
        """How often a step reads an input."""
        return self._shape.micro_batches if id in self._shared else self._shape.runs

    def _check_offered(self, id: str) -> None:
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

    def _check_room(self, id: str) -> None:
        if id in self._program.outputs:
            return
        if id in self._program.infos:
            raise popart_internal_exception("Non-anchored Tensor in CorrectnessAsserter::checkOut")
        raise popart_runtime_error(
            f"Testing that the buffer provided by user for output Tensor {id} has the correct "
            f"number of elements,  But there is no Tensor named {id} in the Ir's tensors. "
        )

    def run_in_row(self, stepio: StepIO, run: RunInRow) -> bool:
        """Runs a step as one call of the program, if that is possible; whether it was."""
        rows = self._rows
        return rows.are_possible and not self._share.is_part and rows.run(stepio, run)

    def run_together(self, stepio: StepIO, run: RunInRow) -> None:
        """A step of one replica: all of its inputs are read before it begins."""
        if self._rows.are_possible and self._rows.run(stepio, run):
            return
        batches = range(self._shape.micro_batches)
        given = [self._read(stepio, {}) for _ in batches]
        rows = {id: np.stack([one[id] for one in given]) for id in self._program.inputs}
        results, sums = run(rows, len(batches)), _Sums()
        for batch in batches:
            found = {id: results[id][batch] for id in self._program.outputs}
            self._return(stepio, batch, found, sums, self._program.outputs)
        for id, value in sums.values.items():
            stepio.write(self._program.outputs[id], value)

    def run(self, stepio: StepIO, run_batch: RunBatch, only: Collection[str] | None = None) -> None:
        """
        Runs the micro-batches of one step; anchors are written, or summed up first.

        Of the anchors only some are, if `only` says which.
        """
        written = {
            id: one for id, one in self._program.outputs.items() if only is None or id in only
        }
        sums = [_Sums() for _ in range(self._shape.replicas)]
        for batch in range(self._shape.micro_batches):
            common: dict[str, Array] = {}
            given = [self._read(stepio, common) for _ in sums]
            found = self._share.gathered(run_batch(self._share.taken(given)))
            for results, sum_ in zip(found, sums, strict=True):
                show(self._program.printed, results)
                check_aborts(self._program.aborts, results)
                self._return(stepio, batch, results, sum_, written)
        for sum_ in sums:
            for id, value in sum_.values.items():
                stepio.write(self._program.outputs[id], value)

    def _return(
        self,
        stepio: StepIO,
        batch: int,
        results: Mapping[str, Array],
        sums: _Sums,
        written: Mapping[str, Stream],
    ) -> None:
        for id, stream in written.items():
            returned = self._returned[id]
            if returned.id() is AnchorReturnTypeId.Sum:
                sums.add(id, results[id])
            elif returned.keeps(batch, self._shape.micro_batches):
                stepio.write(stream, results[id])

    def _read(self, stepio: StepIO, common: dict[str, Array]) -> dict[str, Array]:
        """The next micro-batch of a replica; `common` is what replicas have in common of it."""
        found = {}
        for id, stream in self._program.inputs.items():
            if id in common:
                found[id] = common[id]
            elif id in self._program.unused_inputs:  # these need not be there
                found[id] = np.zeros(stream.shape, stream.dtype.numpy)
            else:
                found[id] = stepio.read(stream)
            if id in self._shared:
                common[id] = found[id]
        return found

    def report(self) -> str:
        """What the program takes and gives."""
        lines = [f"{self._shape.batches} batches per step"]
        for kind in ("input", "output"):
            streams = self._program.inputs if kind == "input" else self._program.outputs
            lines += [f"  {kind} {s.id}: {s.dtype.name}{list(s.shape)}" for s in streams.values()]
        return "\n".join(lines)


@dataclass
class _Sums:
    """The anchors of one replica that come back summed up."""

    values: dict[str, Array] = field(default_factory=dict)

    def add(self, id: str, value: Array) -> None:
        self.values[id] = np.add(self.values[id], value) if id in self.values else value
