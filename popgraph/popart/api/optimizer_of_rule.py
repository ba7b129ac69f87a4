"""PopART's optimizer of an update rule: the inverse of `Optimizer.spec`."""

from __future__ import annotations

from popgraph.builder.opset.enums import DataType, SGDAccumulatorAndMomentum, WeightDecayMode
from popgraph.passes import optimizer_spec as ours
from popgraph.passes.optimizer_spec import OptimizerSpec, Scalar
from popgraph.popart.api.optimizer_base import Optimizer
from popgraph.popart.api.optimizer_value import ClipNormSettings
from popgraph.popart.api.optimizers import SGD, Adam, Adaptive


def popart_optimizer(spec: OptimizerSpec) -> Optimizer:
    """The optimizer of PopART that stands for an update rule."""
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
            return SGD(
                values,
                clip_norm_settings=clip,
                accumulatorAndMomentum=state,
                accumType=_type(spec.accum_type),
                accl1Type=_type(spec.accl1_type),
            )
        case ours.Adam():
            return Adam(
                values,
                mode=Adam.mode_of(spec.mode),
                weight_decay_mode=_decay(spec.decay),
                clip_norm_settings=clip,
                scaled_optimizer_state=spec.scaled_state,
                accum_type=_type(spec.accum_type),
                accl1_type=_type(spec.accl1_type),
                accl2_type=_type(spec.accl2_type),
            )
        case ours.Adaptive():
            return Adaptive(
                values,
                mode=Adaptive.mode_of(spec.mode),
                weight_decay_mode=_decay(spec.decay),
                rmsprop_tf_variant=spec.tf_variant,
                accum_type=_type(spec.accum_type),
                accl1_type=_type(spec.accl1_type),
                accl2_type=_type(spec.accl2_type),
                accl3_type=_type(spec.accl3_type),
                clip_norm_settings=clip,
            )
    raise AssertionError("every optimizer is one of these")


def _type(name: str) -> DataType:
    known = {ours.OF_WEIGHT: DataType.UNDEFINED, "f16": DataType.FLOAT16}
    return known.get(name, DataType.FLOAT)


def _pair(scalar: Scalar) -> tuple[float, bool]:
    return scalar.value, scalar.constant


def _decay(decoupled: bool) -> WeightDecayMode:
    return WeightDecayMode.Decay if decoupled else WeightDecayMode.L2Regularization
