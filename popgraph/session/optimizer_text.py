"""Optimizers from text such as `SGD(0.1, momentum=0.9)`, with learning rate schedules."""

from __future__ import annotations

import dataclasses

from popgraph.builder.opset.enums import SGDAccumulatorAndMomentum, WeightDecayMode
from popgraph.builder.pgraph import OptimizerCall, Schedule
from popgraph.passes import optimizer_spec as ours
from popgraph.passes.optimizer_spec import KINDS, ClipNorm, OptimizerSpec, Scalar
from popgraph.session.optimizer_value import ClipNormSettings
from popgraph.session.optimizers import SGD, Adam, Adaptive, Optimizer
from popgraph.support.errors import PopgraphError
from popgraph.support.names import closest

CLIP = "clip_norm"
"""The largest norm that the gradients of all weights together may have."""


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


def rule_of(call: OptimizerCall, schedule: Schedule | None) -> OptimizerSpec:
    """The optimizer; what follows a schedule is told its rate in every step."""
    spec = optimizer_of(call)
    return spec if schedule is None else with_rate(spec, 1.0)


def with_rate(spec: OptimizerSpec, factor: float) -> OptimizerSpec:
    """The optimizer with a learning rate that changes, and is multiplied by this now."""
    rate = Scalar(spec.learning_rate.value * factor, constant=False)
    return dataclasses.replace(spec, learning_rate=rate)


def popart_optimizer(spec: OptimizerSpec) -> Optimizer:
    """The same as a session takes it."""
    made: dict[type[OptimizerSpec], type[Optimizer]] = {
        ours.SGD: SGD,
        ours.Adam: Adam,
        ours.Adaptive: Adaptive,
    }
    kind = made[type(spec)]
    values: dict[str, object] = {"lossScaling": _pair(spec.loss_scaling)}
    for one in kind.PARAMETERS:
        if one.ours:
            values[one.default_key] = _pair(getattr(spec, one.ours))
    clip = [ClipNormSettings.clipAllWeights(one.maximum) for one in spec.clip]
    match spec:
        case ours.SGD():
            values["nesterov"] = (float(spec.nesterov), True)
            kinds = SGDAccumulatorAndMomentum
            state = kinds.Combined if spec.combined else kinds.Separate
            return SGD(values, clip_norm_settings=clip, accumulatorAndMomentum=state)
        case ours.Adam():
            return Adam(
                values,
                mode=Adam.mode_of(spec.mode),
                weight_decay_mode=_decay(spec.decay),
                clip_norm_settings=clip,
                scaled_optimizer_state=spec.scaled_state,
            )
        case ours.Adaptive():
            return Adaptive(
                values,
                mode=Adaptive.mode_of(spec.mode),
                weight_decay_mode=_decay(spec.decay),
                rmsprop_tf_variant=spec.tf_variant,
                clip_norm_settings=clip,
            )
    raise AssertionError("every optimizer is one of these")


def _pair(scalar: Scalar) -> tuple[float, bool]:
    return scalar.value, scalar.constant


def _decay(decoupled: bool) -> WeightDecayMode:
    return WeightDecayMode.Decay if decoupled else WeightDecayMode.L2Regularization


def _kind(call: OptimizerCall) -> tuple[type[OptimizerSpec], str]:
    """The class, and its mode where the name is that of a mode: RMSProp, AdaGrad, LAMB."""
    wanted = _plain(call.name)
    names = {_plain(kind): (cls, "") for kind, cls in KINDS.items()}
    for cls in KINDS.values():
        for mode in getattr(cls, "MODES", ()):
            names.setdefault(_plain(mode), (cls, mode))
    if wanted not in names:
        close = closest(wanted, names)
        raise PopgraphError(
            f"there is no optimizer {call.name!r}",
            call.where,
            f"did you mean {close!r}?" if close else f"one of {', '.join(names)}",
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
