"""Update rules by name and arguments, as in `SGD(0.1, momentum=0.9)`, and their learning rates."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Protocol

from popgraph.builder.pgraph import OptimizerCall
from popgraph.passes.optimizer_spec import SGD, Adam, Adaptive, ClipNorm, OptimizerSpec, Scalar
from popgraph.support.errors import PopgraphError
from popgraph.support.names import Names

CLIP = "clip_norm"
"""The largest global norm of the gradients."""


class Rates(Protocol):
    """A schedule: the factor of the learning rate in each step."""

    def factor(self, at: int) -> float:
        """The factor in a step, counted from 0."""


@dataclass(frozen=True)
class Named:
    """An optimizer by its public name."""

    name: str
    """The spelling used in docs and messages."""
    kind: type[OptimizerSpec]
    mode: str
    learning_rate: float
    """The default."""
    aliases: str = ""


_TABLE = (
    Named("SGD", SGD, "", 0.1),
    Named("Adam", Adam, "adam", 0.001),
    # AdamW decays weights in the update; it does not add the decay to the gradient.
    Named("AdamW", Adam, "adam", 0.001),
    Named("AdamNoBias", Adam, "adam_no_bias", 0.001),
    Named("Lamb", Adam, "lamb", 0.001),
    Named("LambNoBias", Adam, "lamb_no_bias", 0.001),
    Named("AdaMax", Adam, "ada_max", 0.001),
    Named("RMSProp", Adaptive, "rms_prop", 0.01, "adaptive"),
    Named("CenteredRMSProp", Adaptive, "centered_rms_prop", 0.01),
    Named("AdaGrad", Adaptive, "ada_grad", 0.01),
    Named("AdaDelta", Adaptive, "ada_delta", 1.0),
)
OPTIMIZERS = {one.name: one for one in _TABLE}
OPTIMIZER_NAMES = Names("optimizer", {one.name: one.aliases for one in _TABLE})

_ALIASES = {
    "learning_rate": "lr",
    "epsilon": "eps",
    "alpha": "rho",
    CLIP: "max_norm max_grad_norm global_clipnorm",
}
"""Parameter names of Keras and PyTorch."""
_INTERNAL = ("mean", "running", "message_type", "skip_overflow")
"""Parameters set by how a program runs, not by the user."""


def parameters_of(named: Named) -> dict[str, Scalar | bool | str]:
    """The parameters of a call, with their defaults."""
    found: dict[str, Scalar | bool | str] = {
        field.name: field.default
        for field in dataclasses.fields(named.kind)
        if isinstance(field.default, Scalar | bool | str) and field.name not in _INTERNAL
    }
    found["learning_rate"] = Scalar(named.learning_rate)
    if "mode" in found:
        found["mode"] = named.mode
    return found


def optimizer_of(call: OptimizerCall) -> OptimizerSpec:
    """The optimizer description that passes take."""
    name = OPTIMIZER_NAMES.find(call.name)
    if name is None:
        what, hint = OPTIMIZER_NAMES.unknown(call.name)
        raise PopgraphError(what, call.where, hint)
    named = OPTIMIZERS[name]
    defaults = parameters_of(named)
    known = Names("parameter", {one: _ALIASES.get(one, "") for one in (*defaults, CLIP)})
    given: dict[str, object] = {}
    for written, value in call.arguments.items():
        parameter = known.find(written)
        if parameter is None:
            raise PopgraphError(
                f"{call.name} has no parameter {written!r}", call.where, known.hint(written)
            )
        if parameter in given:
            raise PopgraphError(f"{parameter!r} of {call.name} is given twice", call.where)
        given[parameter] = _fitted(call, written, value, defaults.get(parameter, Scalar(1.0)))
    clip = given.pop(CLIP, None)
    if isinstance(clip, Scalar):
        given["clip"] = (ClipNorm(clip.value),)
    for one in ("learning_rate", "mode"):
        if one in defaults:
            given.setdefault(one, defaults[one])
    return named.kind(**given)  # type: ignore[arg-type]


def described(spec: OptimizerSpec) -> str:
    """Formats an optimizer: its learning rate, and all settings that differ from the defaults."""
    mode = getattr(spec, "mode", "")
    named = next(one for one in _TABLE if (one.kind, one.mode) == (type(spec), mode))
    said = [f"learning_rate={spec.learning_rate.value:g}"]
    for name, default in parameters_of(named).items():
        value = getattr(spec, name)
        if name != "learning_rate" and value != default:
            said.append(f"{name}={value.value if isinstance(value, Scalar) else value}")
    said += [f"{CLIP}={one.maximum:g}" for one in spec.clip]
    return f"{named.name}({', '.join(said)})"


def rule_of(call: OptimizerCall, schedule: Rates | None) -> OptimizerSpec:
    """The optimizer of a call; with a schedule, its learning rate is written in every step."""
    spec = optimizer_of(call)
    return spec if schedule is None else with_rate(spec, 1.0)


def with_rate(spec: OptimizerSpec, factor: float) -> OptimizerSpec:
    """The optimizer with its learning rate multiplied by `factor`, writable by the host."""
    rate = Scalar(spec.learning_rate.value * factor, constant=False)
    return dataclasses.replace(spec, learning_rate=rate)


def _fitted(call: OptimizerCall, name: str, value: object, default: object) -> object:
    """Converts an argument to the type that the optimizer stores."""
    if isinstance(default, Scalar) and isinstance(value, int | float):
        return Scalar(float(value))
    if isinstance(value, type(default)):
        return value
    wanted = {"Scalar": "a number", "bool": "true or false", "str": "a string"}
    raise PopgraphError(
        f"{name!r} of {call.name} is {wanted[type(default).__name__]}, not {value!r}", call.where
    )
