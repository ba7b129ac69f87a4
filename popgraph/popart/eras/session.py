"""PopONNX's `Session`: one class for training, evaluation and inference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from popgraph.passes.options import GRADIENT
from popgraph.popart.api.dataflow import DataFlow
from popgraph.popart.api.devices import DeviceInfo
from popgraph.popart.api.losses import as_losses
from popgraph.popart.api.optimizer_base import Optimizer
from popgraph.popart.api.step_io import PyWeightsIO, StepIO
from popgraph.popart.api.tensorinfo import TensorInfo
from popgraph.popart.eras.era import PLAIN_POPONNX, Era, of_era
from popgraph.popart.eras.options import SessionOptions
from popgraph.popart.eras.sessions import InferenceSession, TrainingSession, by_kind
from popgraph.popart.exceptions import popart_exception
from popgraph.popart.reports.graph_report import TileMap
from popgraph.support.arrays import Array

_ORDER = (
    *("inputShapeInfo", "losses", "optimizer", "outputdir", "passes", "cTens", "userOptions"),
)
"""The arguments behind the first two."""


class Session:
    """
    `Session(model, dataFeed, losses, optimizer)`: trains with an optimizer, evaluates with losses,
    else infers.

    A session that trains can evaluate and infer as well, with the weights as they are.
    """

    ERA: ClassVar[Era] = PLAIN_POPONNX

    def __init__(self, fnModel: Any, dataFeed: DataFlow, *args: object, **named: Any) -> None:
        given = {**by_kind(args, _ORDER), **named}
        if unknown := given.keys() - set(_ORDER):
            raise TypeError(f"Session() got an unexpected argument {min(unknown)!r}")
        self._model, self._flow = fnModel, dataFeed
        self._losses = as_losses(given.get("losses"))
        self._optimizer: Optimizer | None = given.get("optimizer")
        self._constant: Sequence[str] = given.get("cTens") or ()
        options = given.get("userOptions") or of_era(SessionOptions, self.ERA)()
        options.logDir = given.get("outputdir") or options.logDir
        self._named: dict[str, Any] = {
            "inputShapeInfo": given.get("inputShapeInfo"),
            "patterns": given.get("passes"),
            "userOptions": options,
        }
        self._device: DeviceInfo | None = None
        if self._optimizer is not None and not self._losses:
            raise popart_exception("An optimizer is set without any losses")
        self._training = None if self._optimizer is None else self._make_training()
        self._inference = self._make_inference() if self._training is None else None

    def _make_training(self) -> TrainingSession:
        return of_era(TrainingSession, self.ERA)(
            self._model,
            self._flow,
            losses=self._losses,
            optimizer=self._optimizer,
            freeze=self._constant,
            **self._named,
        )

    def _make_inference(self) -> InferenceSession:
        named = dict(self._named)
        if self._training is not None:
            named["userOptions"].constantWeights = False
        session = of_era(InferenceSession, self.ERA)
        return session(self._model, self._forward_flow(), losses=self._losses, **named)

    def _forward_flow(self) -> DataFlow:
        """The anchors that exist without a backward pass."""
        prefixes = (GRADIENT, self.ERA.gradient)
        ids = [id for id in self._flow.anchors() if not id.startswith(prefixes)]
        return self._flow.only(ids)

    @property
    def _main(self) -> TrainingSession | InferenceSession:
        found = self._training or self._inference
        assert found is not None
        return found

    def setDevice(self, deviceInfo: DeviceInfo) -> None:
        self._device = deviceInfo
        self._main.setDevice(deviceInfo)

    def prepareDevice(self) -> None:
        self._main.prepareDevice()

    def initAnchorArrays(self) -> dict[str, Array]:
        return self._main.initAnchorArrays()

    def weightsFromHost(self) -> None:
        self._main.weightsFromHost()

    def optimizerFromHost(self) -> None:
        if self._training is not None:
            self._training.optimizerFromHost()

    def updateOptimizer(self, optimizer: Optimizer) -> None:
        if self._training is None:
            raise popart_exception("Trying to train when not in training mode")
        self._training.updateOptimizer(optimizer)

    def train(self, stepio: StepIO) -> None:
        """One step of training."""
        if self._training is None:
            raise popart_exception("Trying to train when not in training mode")
        self._training.run(stepio)

    def evaluate(self, stepio: StepIO) -> None:
        """One step without training: outputs and losses."""
        if not self._losses:
            raise popart_exception("Trying to evaluate when not in evaluation mode")
        self._forward(stepio)

    def infer(self, stepio: StepIO) -> None:
        """One step without training."""
        self._forward(stepio)

    def _forward(self, stepio: StepIO) -> None:
        if self._inference is None:
            self._inference = self._make_inference()
            self._inference.prepareDevice()
        if self._training is not None:
            self._training.weightsToHost()
            self._inference.writeWeights(PyWeightsIO(self._training.weights()))
            self._inference.weightsFromHost()
        self._inference.run(stepio)

    def modelToHost(self, filename: str | Path) -> None:
        self._main.modelToHost(filename)

    def resetHostWeights(self, modelProtoOrFilename: Any) -> None:
        self._main.resetHostWeights(modelProtoOrFilename)

    def getInfo(self, id: str) -> TensorInfo:
        return self._main.getInfo(id)

    def getTensorTileMap(self) -> TileMap:
        return self._main.getTensorTileMap()

    def getSummaryReport(self) -> str:
        return self._main.getSummaryReport()

    def getGraphReport(self, useCbor: bool = False) -> bytes:
        return self._main.getGraphReport(useCbor)

    def getExecutionReport(self, useCbor: bool = False) -> bytes:
        return self._main.getExecutionReport(useCbor)
