"""PopART's optimizer of an update rule: the inverse of `Optimizer.spec`."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

from popgraph.builder.opset.enums import DataType, SGDAccumulatorAndMomentum, WeightDecayMode
from popgraph.passes import optimizer_spec as ours
from popgraph.passes.optimizer_spec import OptimizerSpec, Scalar
from popgraph.popart.api.optimizer_base import Optimizer
from popgraph.popart.api.optimizer_value import ClipNormSettings
from popgraph.popart.api.optimizers import SGD, Adam, Adaptive


def popart_optimizer(spec: OptimizerSpec) -> Optimizer:
    """The optimizer of PopART that stands for an update rule."""
    made = {ours.SGD: SGD, ours.Adam: Adam, ours.Adaptive: Adaptive}
    kind: Any = made[type(spec)]
    values: dict[str, object] = {"lossScaling": _pair(spec.loss_scaling)}
    for one in kind.PARAMETERS:
        if one.ours:
            values[one.default_key] = _pair(getattr(spec, one.ours))
    clip = [ClipNormSettings.clipAllWeights(one.maximum) for one in spec.clip]
    types = {
        one.name: _type(getattr(spec, one.name))
        for one in fields(spec)
        if re.fullmatch(r"acc(um|l\d)_type", one.name)
    }
    match spec:
        case ours.SGD():
            values["nesterov"] = (float(spec.nesterov), True)
            kinds = SGDAccumulatorAndMomentum
            state = kinds.Combined if spec.combined else kinds.Separate
            return SGD(
                values,
                clip_norm_settings=clip,
                accumulatorAndMomentum=state,
                accumType=types["accum_type"],
                accl1Type=types["accl1_type"],
            )
        case ours.Adam():
            own: dict[str, Any] = {"scaled_optimizer_state": spec.scaled_state}
        case ours.Adaptive():
            own = {"rmsprop_tf_variant": spec.tf_variant}
        case _:
            raise AssertionError("every optimizer is one of these")
    decay = WeightDecayMode.Decay if spec.decay else WeightDecayMode.L2Regularization
    mode = kind.mode_of(spec.mode)
    optimizer: Optimizer = kind(values, mode, decay, clip_norm_settings=clip, **types, **own)
    return optimizer


def _type(name: str) -> DataType:
    known = {ours.OF_WEIGHT: DataType.UNDEFINED, "f16": DataType.FLOAT16}
    return known.get(name, DataType.FLOAT)


def _pair(scalar: Scalar) -> tuple[float, bool]:
    return scalar.value, scalar.constant
