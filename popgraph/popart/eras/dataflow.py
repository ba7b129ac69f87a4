"""PopONNX's `DataFlow`, with its batch size argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from popgraph.builder.opset.enums import AnchorReturnTypeId
from popgraph.engine.plan import StepPlan
from popgraph.popart.api import dataflow as modern
from popgraph.popart.exceptions import popart_exception
from popgraph.support.shapes import Shape, prod


class AnchorReturnType(modern.AnchorReturnType):
    """PopART's class, and the members of the enumeration that it was in 2018."""

    ALL: ClassVar[AnchorReturnType]
    FINAL: ClassVar[AnchorReturnType]
    SUM: ClassVar[AnchorReturnType]


AnchorReturnType.ALL = AnchorReturnType("ALL")
AnchorReturnType.FINAL = AnchorReturnType("FINAL")
AnchorReturnType.SUM = AnchorReturnType("SUM")


class DataFlow(modern.DataFlow):
    """
    `DataFlow(batchesPerStep, batchSize, anchors, AnchorReturnType.ALL)`, or PopART's form.

    With a batch size, the batches of a step stand one behind the other along the first axis of
    inputs and anchors, instead of along an axis of their own.
    """

    def __init__(
        self,
        batchesPerStep: int,
        batchSize: int | Mapping[str, modern.AnchorReturnType] | Iterable[str] = (),
        anchorTensors: Mapping[str, modern.AnchorReturnType]
        | Iterable[str]
        | modern.AnchorReturnType = (),
        anchorReturnType: modern.AnchorReturnType | None = None,
        *,
        anchorIds: Iterable[str] = (),
    ) -> None:
        anchorTensors = anchorTensors or anchorIds
        self._batch_size: int | None = None
        if isinstance(batchSize, int):
            self._batch_size = batchSize
            assert not isinstance(anchorTensors, modern.AnchorReturnType)
            all_ = anchorReturnType is None or anchorReturnType.id() is AnchorReturnTypeId.All
            if not all_:
                raise popart_exception("Only ALL AnchorReturnType is currently supported")
            super().__init__(batchesPerStep, anchorTensors, anchorReturnType)
        elif isinstance(anchorTensors, modern.AnchorReturnType):
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
