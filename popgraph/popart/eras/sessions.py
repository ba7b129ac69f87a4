"""PopONNX's sessions, with the positional arguments and gradient names of their time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from popgraph.engine.program import Request
from popgraph.passes.options import GRADIENT
from popgraph.popart.api.dataflow import DataFlow, InputShapeInfo
from popgraph.popart.api.devices import DeviceInfo
from popgraph.popart.api.losses import Loss, as_losses
from popgraph.popart.api.optimizer_base import Optimizer
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.api.patterns import Patterns
from popgraph.popart.api.step_io import PyWeightsIO, StepIO
from popgraph.popart.eras import settings
from popgraph.popart.eras.era import PLAIN_POPONNX, Era, gradient_prefixes, in_terms_of_era, of_era
from popgraph.popart.eras.steps import ReplicasFirst
from popgraph.popart.eras.training import anchored, shared
from popgraph.popart.exceptions import popart_exception
from popgraph.popart.sessions import inference_session, session, training_session
from popgraph.popart.sessions.setup import EraBehaviour
from popgraph.support.arrays import Array

KINDS: dict[str, Callable[[object], bool]] = {
    "fnModel": lambda value: True,
    **dict.fromkeys(["dataFeed", "dataFlow"], lambda value: isinstance(value, DataFlow)),
    "deviceInfo": lambda value: isinstance(value, DeviceInfo),
    "inputShapeInfo": lambda value: isinstance(value, InputShapeInfo),
    "loss": lambda value: isinstance(value, str | Loss | list | tuple),
    "losses": lambda value: (
        isinstance(value, list | tuple) and all(isinstance(one, Loss) for one in value)
    ),
    "optimizer": lambda value: isinstance(value, Optimizer),
    "outputdir": lambda value: isinstance(value, str),
    **dict.fromkeys(["passes", "patterns"], lambda value: isinstance(value, Patterns)),
    "cTens": lambda value: isinstance(value, list | tuple),
    "userOptions": lambda value: isinstance(value, SessionOptions),
}
"""
{argument: whether a value has its type}, to match positional arguments when earlier ones are
omitted.
"""


def by_kind(args: tuple[object, ...], order: Sequence[str]) -> dict[str, object]:
    """{argument: value}, matched by type, since earlier arguments may be omitted."""
    found: dict[str, object] = {}
    names = list(order)
    for value in args:
        while names:
            name = names.pop(0)
            if value is None or KINDS[name](value):
                found[name] = value
                break
        else:
            raise TypeError(f"a session does not take {value!r} here")
    return found


class _EraSession(session.Session):
    ERA: ClassVar[Era] = PLAIN_POPONNX

    def _given(
        self, args: tuple[object, ...], order: Sequence[str], named: dict[str, object]
    ) -> dict[str, Any]:
        """The arguments by name; missing options have the defaults of the era."""
        given = {**by_kind(args, ("fnModel", *order)), **named}
        if given.get("userOptions") is None:
            given["userOptions"] = of_era(settings.SessionOptions, self.ERA)()
        return given

    @property
    def _behaviour(self) -> EraBehaviour:
        era = self.ERA
        prefixes = gradient_prefixes(era)
        return EraBehaviour(prefixes, era.group_variances, era.anchored, era.checked)

    @property
    def _has_replicas_first(self) -> bool:
        return self.ERA.replicas_first and self.replicationFactor > 1

    def initAnchorArrays(self) -> dict[str, Array]:
        arrays = super().initAnchorArrays()
        if not self._has_replicas_first:
            return arrays
        moved = {}
        for id, array in arrays.items():
            axis = array.ndim - len(self._program.outputs[id].shape) - 1
            # A DataFlow with a batch size adds no axes of its own.
            moved[id] = np.ascontiguousarray(np.moveaxis(array, max(axis, 0), 0))
        return moved

    def run(self, stepio: Any, *rest: Any, **named: Any) -> None:
        """Runs one step."""
        if not self._has_replicas_first or not isinstance(stepio, StepIO):
            super().run(stepio, *rest, **named)
            return
        turned = ReplicasFirst(stepio, self._setup.plan, self._program.shared_inputs)
        super().run(turned, *rest, **named)
        turned.finish()

    def getGraphReport(self, useCbor: bool = False, use_cbor: bool = False) -> bytes:
        return super().getGraphReport(useCbor or use_cbor)

    def getExecutionReport(
        self, useCbor: bool = False, resetProfile: bool = True, use_cbor: bool = False
    ) -> bytes:
        return super().getExecutionReport(useCbor or use_cbor, resetProfile)


class InferenceSession(_EraSession, inference_session.InferenceSession):
    """`InferenceSession(model, dataFeed, losses)`; each era has its own positional arguments."""

    def __init__(self, *args: object, **named: object) -> None:
        given = self._given(args, self.ERA.inference, named)
        losses = as_losses(given.pop("losses", None))
        shared(losses, given["userOptions"])
        flow = given.get("dataFeed", given.get("dataFlow"))
        with in_terms_of_era(self.ERA):
            super().__init__(losses=anchored(losses, flow), **given)


_SCALARS = {
    "learnRate": "scaledLearningRate0",
    "scaledLearnRate": "scaledLearningRate0",
    "weightDecay": "weightDecayScaleFactor0",
}
"""{prefix of a hyperparameter of `SGD`: current prefix}."""


def _scalar(id: str) -> str:
    """The current name of a hyperparameter of `SGD`, `learnRate_FLOAT`, or `learnRate` in 2018."""
    prefix, _, dtype = id.partition("_")
    if prefix not in _SCALARS or dtype not in ("", "FLOAT", "FLOAT16"):
        return id
    return f"{_SCALARS[prefix]}___default___{dtype or 'FLOAT'}"


class TrainingSession(_EraSession, training_session.TrainingSession):
    """
    `TrainingSession(model, dataFeed, losses, optimizer)`; each era has its own positional
    arguments.
    """

    def __init__(self, *args: object, **named: object) -> None:
        given = self._given(args, self.ERA.training, named)
        for name in ("loss", "losses"):
            shared(as_losses(given.get(name)), given["userOptions"])
        with in_terms_of_era(self.ERA):
            super().__init__(**given)

    def _request(self) -> Request:
        request, model = super()._request(), {name for name, _ in self._setup.model.values()}
        scalars = {id: _scalar(id) for id in request.outputs if id not in model}
        changed = {id: name for id, name in scalars.items() if id != name}
        return replace(request, aliases={**request.aliases, **changed})


_ORDER = (
    *("inputShapeInfo", "losses", "optimizer", "outputdir", "passes", "cTens", "userOptions"),
)
"""The positional arguments after the first two."""


class Session:
    """
    `Session(model, dataFeed, losses, optimizer)`: trains with an optimizer, evaluates with losses,
    otherwise infers.

    A training session also evaluates and infers, with its current weights.
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
        options = given.get("userOptions") or of_era(settings.SessionOptions, self.ERA)()
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
        """The anchors other than gradients."""
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

    def optimizerFromHost(self) -> None:
        if self._training is not None:
            self._training.optimizerFromHost()

    def updateOptimizer(self, optimizer: Optimizer) -> None:
        self._that_trains().updateOptimizer(optimizer)

    def train(self, stepio: StepIO) -> None:
        """Runs one training step."""
        self._that_trains().run(stepio)

    def _that_trains(self) -> TrainingSession:
        if self._training is None:
            raise popart_exception("Trying to train when not in training mode")
        return self._training

    def evaluate(self, stepio: StepIO) -> None:
        """Runs one step without an update, which computes outputs and losses."""
        if not self._losses:
            raise popart_exception("Trying to evaluate when not in evaluation mode")
        self._forward(stepio)

    def infer(self, stepio: StepIO) -> None:
        """Runs one step without an update."""
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


def _of_main(name: str) -> Callable[..., Any]:
    def method(self: Session, *args: Any, **named: Any) -> Any:
        return getattr(self._main, name)(*args, **named)

    return method


for _name in (
    *("getExecutionReport", "getGraphReport", "getInfo", "getSummaryReport", "getTensorTileMap"),
    *("initAnchorArrays", "modelToHost", "prepareDevice", "resetHostWeights", "weightsFromHost"),
):  # These need no optimizer: the session that trains has them, or else the one that infers.
    setattr(Session, _name, _of_main(_name))
