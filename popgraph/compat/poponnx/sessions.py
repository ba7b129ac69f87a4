"""PopONNX's two sessions: the arguments and the names of gradients of their time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from popgraph.compat.eras import PLAIN_POPONNX, Era
from popgraph.compat.poponnx.losses import anchored
from popgraph.session import inference_session, session, training_session
from popgraph.session.dataflow import DataFlow, InputShapeInfo
from popgraph.session.devices import DeviceInfo
from popgraph.session.losses import Loss, as_losses
from popgraph.session.optimizers import Optimizer
from popgraph.session.options import SessionOptions
from popgraph.session.patterns import Patterns

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

    def _gradient_prefix(self) -> str:
        return self.ERA.gradient


class InferenceSession(_OfEra, inference_session.InferenceSession):
    """`InferenceSession(model, dataFeed, losses)` and its like: what each era takes, in order."""

    def __init__(self, *args: object, **named: object) -> None:
        given: dict[str, Any] = {**by_kind(args, ("fnModel", *self.ERA.inference)), **named}
        losses = as_losses(given.pop("losses", None))
        flow = given.get("dataFeed", given.get("dataFlow"))
        super().__init__(losses=anchored(losses, flow), **given)


class TrainingSession(_OfEra, training_session.TrainingSession):
    """`TrainingSession(model, dataFeed, losses, optimizer)` and its like, as each era has it."""

    def __init__(self, *args: object, **named: object) -> None:
        given: dict[str, Any] = {**by_kind(args, ("fnModel", *self.ERA.training)), **named}
        super().__init__(**given)
