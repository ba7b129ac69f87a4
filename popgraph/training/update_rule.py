"""Update rules by name and arguments, as in `SGD(0.1, momentum=0.9)`, and their learning rates."""

from __future__ import annotations

import dataclasses
from typing import Protocol

from popgraph.builder.pgraph import OptimizerCall
from popgraph.passes.optimizer_spec import KINDS, ClipNorm, OptimizerSpec, Scalar
from popgraph.support.errors import PopgraphError
from popgraph.support.names import closest

SPELLED = (
    *("SGD", "Adam", "AdamW", "Lamb", "AdaMax"),
    *("RMSProp", "CenteredRMSProp", "AdaGrad", "AdaDelta"),
)
"""The names of optimizers as pages and messages write them; case and underscores do not matter."""
ADAMW = "adamw"
"""Adam is that already: its weight decay goes into the update, not into the gradient."""
CLIP = "clip_norm"
"""The largest norm that the gradients of all weights together may have."""


class Rates(Protocol):
    """A schedule: by what the learning rate is multiplied in each step."""

    def factor(self, at: int) -> float:
        """The factor in one step; the first is 0."""


def optimizer_of(call: OptimizerCall) -> OptimizerSpec:
    """The description that passes take; names are compared without case and underscores."""
    kind, mode = _kind(call)
    entries = {
        field.name: field.default
        for field in dataclasses.fields(kind)
        if isinstance(field.default, Scalar | bool | str)
    }
    given: dict[str, object] = {}
    for name, value in call.arguments.items():
        if name == CLIP:
            clip = _fitted(call, name, value, Scalar(1.0))
            assert isinstance(clip, Scalar)
            given["clip"] = (ClipNorm(clip.value),)
            continue
        if name not in entries:
            close = closest(name, [*entries, CLIP])
            listed = ", ".join([*entries, CLIP])
            raise PopgraphError(
                f"{call.name} has no parameter {name!r}",
                call.where,
                f"did you mean {close!r}?" if close else f"it has {listed}",
            )
        given[name] = _fitted(call, name, value, entries[name])
    if mode:
        given.setdefault("mode", mode)
    return kind(**given)  # type: ignore[arg-type]


def rule_of(call: OptimizerCall, schedule: Rates | None) -> OptimizerSpec:
    """The optimizer; what follows a schedule is told its rate in every step."""
    spec = optimizer_of(call)
    return spec if schedule is None else with_rate(spec, 1.0)


def with_rate(spec: OptimizerSpec, factor: float) -> OptimizerSpec:
    """The optimizer with a learning rate that changes, and is multiplied by this now."""
    rate = Scalar(spec.learning_rate.value * factor, constant=False)
    return dataclasses.replace(spec, learning_rate=rate)


def _kind(call: OptimizerCall) -> tuple[type[OptimizerSpec], str]:
    """The class, and its mode where the name is that of a mode: RMSProp, AdaGrad, LAMB."""
    wanted = _plain(call.name)
    names = {_plain(kind): (cls, "") for kind, cls in KINDS.items()}
    for cls in KINDS.values():
        for mode in getattr(cls, "MODES", ()):
            names.setdefault(_plain(mode), (cls, mode))
    names[ADAMW] = names["adam"]
    if wanted not in names:
        close = closest(call.name, SPELLED)
        raise PopgraphError(
            f"there is no optimizer {call.name!r}",
            call.where,
            f"did you mean {close!r}?" if close else f"one of {', '.join(SPELLED)}",
        )
    return names[wanted]


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _fitted(call: OptimizerCall, name: str, value: object, default: object) -> object:
    """The value in the form in which the optimizer keeps it."""
    if isinstance(default, Scalar) and isinstance(value, int | float):
        return Scalar(float(value))
    if isinstance(value, type(default)):
        return value
    wanted = {"Scalar": "a number", "bool": "true or false", "str": "a string"}
    raise PopgraphError(
        f"{name!r} of {call.name} is {wanted[type(default).__name__]}, not {value!r}", call.where
    )
