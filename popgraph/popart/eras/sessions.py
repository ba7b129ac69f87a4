"""PopONNX's two sessions: the arguments and the names of gradients of their time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from popgraph.engine.program import Request
from popgraph.popart.api.dataflow import DataFlow, InputShapeInfo
from popgraph.popart.api.devices import DeviceInfo
from popgraph.popart.api.losses import Loss, as_losses
from popgraph.popart.api.optimizer_base import Optimizer
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.api.patterns import Patterns
from popgraph.popart.api.step_io import StepIO
from popgraph.popart.eras import options as old_options
from popgraph.popart.eras.era import PLAIN_POPONNX, Era, gradient_prefixes, of_era
from popgraph.popart.eras.losses import anchored, shared
from popgraph.popart.eras.step_io import ReplicasFirst
from popgraph.popart.eras.unreadable import in_words_of
from popgraph.popart.sessions import inference_session, session, training_session
from popgraph.popart.sessions.setup import Manners
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
"""How the value of each argument is known where arguments before it are left out."""


def by_kind(args: tuple[object, ...], order: Sequence[str]) -> dict[str, object]:
    """Which argument each value is, as the documents of the time leave some out."""
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


class _OfEra(session.Session):
    ERA: ClassVar[Era] = PLAIN_POPONNX

    def _given(
        self, args: tuple[object, ...], order: Sequence[str], named: dict[str, object]
    ) -> dict[str, Any]:
        """The arguments by name, with options of the era where there are none."""
        given = {**by_kind(args, ("fnModel", *order)), **named}
        if given.get("userOptions") is None:
            given["userOptions"] = of_era(old_options.SessionOptions, self.ERA)()
        return given

    @property
    def _manners(self) -> Manners:
        era = self.ERA
        prefixes = gradient_prefixes(era)
        return Manners(prefixes, era.group_variances, era.anchored, era.checked)

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
        """One step."""
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


class InferenceSession(_OfEra, inference_session.InferenceSession):
    """`InferenceSession(model, dataFeed, losses)` and its like: what each era takes, in order."""

    def __init__(self, *args: object, **named: object) -> None:
        given = self._given(args, self.ERA.inference, named)
        losses = as_losses(given.pop("losses", None))
        shared(losses, given["userOptions"])
        flow = given.get("dataFeed", given.get("dataFlow"))
        with in_words_of(self.ERA):
            super().__init__(losses=anchored(losses, flow), **given)


_SCALARS = {
    "learnRate": "scaledLearningRate0",
    "scaledLearnRate": "scaledLearningRate0",
    "weightDecay": "weightDecayScaleFactor0",
}
"""Prefixes of the numbers of `SGD` that the host writes, and today's."""


def _scalar(id: str) -> str:
    """Today's name of a number of `SGD`: `learnRate_FLOAT`, or of 2018 `learnRate`."""
    prefix, _, dtype = id.partition("_")
    if prefix not in _SCALARS or dtype not in ("", "FLOAT", "FLOAT16"):
        return id
    return f"{_SCALARS[prefix]}___default___{dtype or 'FLOAT'}"


class TrainingSession(_OfEra, training_session.TrainingSession):
    """`TrainingSession(model, dataFeed, losses, optimizer)` and its like, as each era has it."""

    def __init__(self, *args: object, **named: object) -> None:
        given = self._given(args, self.ERA.training, named)
        for name in ("loss", "losses"):
            shared(as_losses(given.get(name)), given["userOptions"])
        with in_words_of(self.ERA):
            super().__init__(**given)

    def _request(self) -> Request:
        request, model = super()._request(), {name for name, _ in self._setup.model.values()}
        scalars = {id: _scalar(id) for id in request.outputs if id not in model}
        changed = {id: name for id, name in scalars.items() if id != name}
        return replace(request, aliases={**request.aliases, **changed})
