"""PopART's `InferenceSession`: a session without training, with PopXL's methods for weights."""

from __future__ import annotations

from popgraph.builder.onnx.external_weights import data_folders
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

    `model` is a path, bytes or a Builder. The device is optional. `losses` serve older programs,
    which evaluate them.
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
        folders = data_folders()
        model, grouped = take_groups(fnModel, userOptions)
        setup = Setup.of(
            open_model(model, folders),
            as_losses(losses),
            None,
            flow,
            deviceInfo,
            inputShapeInfo,
            patterns or passes,
            userOptions,
            name,
            folders.found,
            grouped,
            self._behaviour,
        )
        super().__init__(setup)

    def getAllTensorIds(self) -> list[str]:
        return self._tensor_ids()

    def _setDeviceInfo(self, deviceInfo: DeviceInfo) -> None:
        self.setDevice(deviceInfo)

    # PopXL's methods: whether host and device weights are in sync

    def areHostWeightsInSync(self) -> bool:
        """True after weights are sent or copied back, until a step changes any."""
        return self._transfers.host.in_sync

    def markHostWeightsInSync(self) -> None:
        self._transfers.host.in_sync = True

    def markHostWeightsOutOfSync(self) -> None:
        self._transfers.host.in_sync = False

    def copyDeviceWeightsToHost(self) -> None:
        """Fetches the weights, also for the next `weightsFromHost`."""
        self._transfers.fetch_and_keep()

    def setEngineIsLoaded(self, isLoaded: bool) -> None:
        """With False, the next step loads the engine again."""
        self._engine.loaded = isLoaded

    def checkInplacingAmbiguity(self) -> None:
        """Does nothing, as no operator of the IR works in place."""
