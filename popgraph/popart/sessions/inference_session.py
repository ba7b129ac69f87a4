"""PopART's `InferenceSession`: a session that trains nothing, with PopXL's view of its weights."""

from __future__ import annotations

from popgraph.builder.onnx.external_weights import data_places
from popgraph.builder.opset.arguments import typed
from popgraph.popart.api.dataflow import DataFlow, InputShapeInfo
from popgraph.popart.api.devices import DeviceInfo
from popgraph.popart.api.losses import AnyLoss, as_losses
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.api.patterns import Patterns
from popgraph.popart.model.grouped_weights import take_groups
from popgraph.popart.model.model import Source, open_model
from popgraph.popart.sessions.session import Session, flow_of
from popgraph.popart.sessions.setup import Setup


@typed
class InferenceSession(Session):
    """
    Runs a model: `InferenceSession(model, DataFlow(1, ["y"]))`.

    `model` is a file, its bytes or a Builder. The device may be left out. `losses` are losses of
    older programs, to be evaluated.
    """

    _advice = (
        "\n  try: this is PopART's session; to call a model: "
        'run = popgraph.compile("net.onnx"); run(x=array)'
    )

    def __init__(
        self,
        fnModel: Source,
        dataFlow: DataFlow | None = None,
        deviceInfo: DeviceInfo | None = None,
        inputShapeInfo: InputShapeInfo | None = None,
        patterns: Patterns | None = None,
        userOptions: SessionOptions | None = None,
        name: str = "inference",
        *,
        dataFeed: DataFlow | None = None,
        passes: Patterns | None = None,
        losses: AnyLoss | None = None,
    ) -> None:
        flow = flow_of(self, dataFlow, dataFeed)
        places = data_places()
        model, grouped = take_groups(fnModel, userOptions)
        setup = Setup.of(
            open_model(model, places),
            as_losses(losses),
            None,
            flow,
            deviceInfo,
            inputShapeInfo,
            patterns or passes,
            userOptions,
            name,
            places.found,
            grouped,
            self._manners,
        )
        super().__init__(setup)

    def getAllTensorIds(self) -> list[str]:
        return self._tensor_ids()

    def _setDeviceInfo(self, deviceInfo: DeviceInfo) -> None:
        self.setDevice(deviceInfo)

    # PopXL's own: whether the host's weights are those of the device

    def areHostWeightsInSync(self) -> bool:
        """They are once they were sent or copied back, until a step changes any."""
        return self._transfers.host.in_sync

    def markHostWeightsInSync(self) -> None:
        self._transfers.host.in_sync = True

    def markHostWeightsOutOfSync(self) -> None:
        self._transfers.host.in_sync = False

    def copyDeviceWeightsToHost(self) -> None:
        """Fetches the weights, which are also what the next `weightsFromHost` sends."""
        self._transfers.fetch_and_keep()

    def setEngineIsLoaded(self, isLoaded: bool) -> None:
        """An engine that is not loaded is loaded by the next step."""
        self._engine.loaded = isLoaded

    def checkInplacingAmbiguity(self) -> None:
        """Nothing to check: no operator of the IR works in place."""
