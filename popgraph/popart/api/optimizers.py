"""PopART's optimizers, and their conversion to and from optimizer specifications."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar

from popgraph.builder.opset.arguments import typed
from popgraph.builder.opset.enums import (
    AdamMode,
    AdaptiveMode,
    DataType,
    SGDAccumulatorAndMomentum,
    WeightDecayMode,
)
from popgraph.passes import optimizer_spec as ours
from popgraph.popart.api.logger import deprecated
from popgraph.popart.api.optimizer_base import (
    ClipNormSettings,
    Optimizer,
    Parameter,
    state_types,
    values_of,
)
from popgraph.popart.exceptions import (
    popart_exception,
)

_DECAY = Parameter("weightDecay", "weight_decay", 0.0, "weight decay")
_EPSILON = Parameter("eps", "epsilon", 1e-6, "eps", positive=True, plural="eps")
_MOMENTUM = Parameter("momentum", "momentum", 0.0, "momentum")


@typed
class SGD(Optimizer):
    """
    Stochastic gradient descent with momentum, dampening, weight decay and loss scaling.

    `SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.9, True)})`; the boolean states
    whether the number is constant. `SGD(0.1, 1e-4)` is the former signature: learning rate, weight
    decay and loss scaling, all variable. `accumType` and `accl1Type` are the types of accumulated
    gradients and of the velocity if they are Separate; the default, and that of a Combined
    velocity, is the type of the weight.
    """

    KIND = "SGD"
    PARAMETERS = (
        Parameter("learningRate", "learning_rate", 0.1, "learning rate"),
        _DECAY,
        _MOMENTUM,
        Parameter("dampening", "dampening", 0.0, "dampening"),
        Parameter("velocityScaling", "velocity_scaling", 1.0, "velocity scaling", positive=True),
        Parameter("nesterov", "", 0.0, "nesterov", plural="nesterov", for_all=True),
    )

    def __init__(
        self,
        values: Mapping[Any, object] | float | None = None,
        *old: Any,
        clip_norm_settings: Sequence[ClipNormSettings] = (),
        accumulatorAndMomentum: SGDAccumulatorAndMomentum = SGDAccumulatorAndMomentum.Combined,
        accumType: DataType = DataType.UNDEFINED,
        accl1Type: DataType = DataType.UNDEFINED,
        debugContext: object = "sgd",
        **named: float,
    ) -> None:
        if not isinstance(values, Mapping):
            names = ("learning_rate", "weight_decay", "loss_scaling")
            numbers = () if values is None else (values, *old)
            named = {**dict(zip(names, numbers, strict=False)), **named}
            if "learning_rate" not in named:
                raise TypeError("SGD() needs its values or a learning_rate")
            values = _from_numbers(named, constant=False)
        else:
            behind: tuple[Any, ...]
            behind = (clip_norm_settings, accumulatorAndMomentum, accumType, accl1Type)
            given = (*old[: len(behind)], *behind[len(old) :])
            clip_norm_settings, accumulatorAndMomentum, accumType, accl1Type = given
        self._combined = accumulatorAndMomentum is SGDAccumulatorAndMomentum.Combined
        if self._combined and accl1Type is not DataType.FLOAT:
            accl1Type = DataType.UNDEFINED  # PopART keeps a combined velocity as its weight
        self._given_types = {"accum_type": accumType, "accl1_type": accl1Type}
        self._types = state_types("SGD()", **self._given_types)
        super().__init__(values, clip_norm_settings)

    def _check(self) -> None:
        super()._check()
        if self._nesterov and self.dampenings().default.val() != 0:
            raise popart_exception(
                f"When enable nesterov momentum, dampening "
                f"({self.dampenings().default.val():g}) in SGD shouled be zero"
            )

    @property
    def _nesterov(self) -> bool:
        return bool(self._maps["nesterov"].default.val())

    momentums = values_of("momentum")
    dampenings = values_of("dampening")
    velocityScalings = values_of("velocityScaling")
    nesterov = values_of("nesterov")

    def _validate(self, new: SGD) -> None:
        super()._validate(new)
        if not self._has_velocity:
            return
        own, other = ("Combined" if one._combined else "Separate" for one in (self, new))
        if own != other:
            raise popart_exception(
                f"this has SGDAccumulatorAndMomentum SGDAccumulatorAndMomentum::{own}, "
                f"but other has SGDAccumulatorAndMomentum::{other}"
            )
        for name, about in (("accum_type", "sgdAccumType"), ("accl1_type", "sgd2Accl1Type")):
            types = self._given_types[name], new._given_types[name]
            if own == "Separate" and types[0] != types[1]:
                raise popart_exception(
                    f"this has SGDAccumulatorAndMomentum::Separate and {about} {types[0].name}, "
                    f"but other has {types[1].name}"
                )

    @property
    def _has_velocity(self) -> bool:
        default = self.momentums().default
        return not default.isConst() or default.val() != 0

    def _structure(self) -> tuple[object, ...]:
        return (self._combined, self._nesterov, *self._types.values())

    def spec(self) -> ours.SGD:
        return ours.SGD(
            **self._scalars(),
            specific=(*self._specifics(), *self._nesterov_specifics()),
            clip=self._clips(),
            nesterov=self._nesterov,
            combined=self._combined,
            **self._types,
        )

    def _nesterov_specifics(self) -> Iterator[ours.Specific]:
        for weight, value in self._maps["nesterov"].specifics.items():
            if bool(value.val()) != self._nesterov:
                yield ours.Specific(weight, "nesterov", ours.Scalar(value.val()))


@typed
class ConstSGD(SGD):
    """SGD without momentum, with constant parameters."""

    def __init__(
        self,
        learning_rate: float,
        weight_decay: float = 0.0,
        loss_scaling: float = 1.0,
        clip_norm_settings: Sequence[ClipNormSettings] = (),
    ) -> None:
        numbers = {
            "learning_rate": learning_rate,
            "weight_decay": weight_decay,
            "loss_scaling": loss_scaling,
        }
        super().__init__(
            _from_numbers(numbers, constant=True), clip_norm_settings=clip_norm_settings
        )


def _from_numbers(numbers: Mapping[str, float], constant: bool) -> dict[str, object]:
    keys = {
        "learning_rate": "defaultLearningRate",
        "weight_decay": "defaultWeightDecay",
        "loss_scaling": "lossScaling",
    }
    unknown = set(numbers) - set(keys)
    if unknown:
        raise TypeError(f"SGD() got an unexpected argument {sorted(unknown)[0]!r}")
    return {keys[name]: (float(value), constant) for name, value in numbers.items()}


class _WithModes(Optimizer):
    """The common part of Adam and Adaptive: a mode, and a kind of weight decay."""

    _MODES: ClassVar[Mapping[Any, str]]
    _mode: Any
    _decay: WeightDecayMode
    _types: dict[str, Any]

    @classmethod
    def mode_of(cls, mode: str) -> Any:
        """PopART's name of a mode."""
        return next(theirs for theirs, own in cls._MODES.items() if own == mode)

    def _validate(self, new: _WithModes) -> None:
        if self._mode is not new._mode:
            raise popart_exception(f"{self.KIND} modes do not match")
        if self._decay is not new._decay:
            raise popart_exception("Weight decay modes do not match")
        super()._validate(new)

    def _of_all(self) -> dict[str, Any]:
        """The fields of specifications of both kinds."""
        return {
            **self._scalars(),
            **self._types,
            "specific": self._specifics(),
            "clip": self._clips(),
            "mode": self._MODES[self._mode],
            "decay": self._decay is WeightDecayMode.Decay,
        }


@typed
class Adam(_WithModes):
    """Adam, AdamW (`weight_decay_mode` Decay), AdaMax, Lamb."""

    KIND = "Adam"
    PARAMETERS = (
        Parameter("learningRate", "learning_rate", 0.1, "learning rate"),
        _DECAY,
        Parameter("beta1", "beta1", 0.9, "beta1"),
        Parameter("beta2", "beta2", 0.999, "beta2"),
        _EPSILON,
        Parameter("maxWeightNorm", "max_weight_norm", 10.0, "max weight norm", plural="mwn"),
    )
    OLD_KEYS = ("maxWeightNorm",)
    _MODES: ClassVar = {
        AdamMode.Adam: "adam",
        AdamMode.AdamNoBias: "adam_no_bias",
        AdamMode.Lamb: "lamb",
        AdamMode.LambNoBias: "lamb_no_bias",
        AdamMode.AdaMax: "ada_max",
    }

    def __init__(
        self,
        values: Mapping[Any, object],
        mode: AdamMode = AdamMode.Adam,
        weight_decay_mode: WeightDecayMode = WeightDecayMode.Decay,
        accum_type: DataType = DataType.UNDEFINED,
        accl1_type: DataType = DataType.FLOAT,
        accl2_type: DataType = DataType.FLOAT,
        clip_norm_settings: Sequence[ClipNormSettings] = (),
        scaled_optimizer_state: bool = False,
        debugContext: object = "adam",
    ) -> None:
        self._types = state_types(
            "Adam()", accum_type=accum_type, accl1_type=accl1_type, accl2_type=accl2_type
        )
        self._mode, self._decay = mode, weight_decay_mode
        self._scaled = scaled_optimizer_state
        values = dict(values)
        if "maxWeightNorm" in values:
            deprecated(
                "Using 'maxWeightNorm' as a key in the Adam constructor is deprecated. Please use "
                "'defaultMaxWeightNorm' instead."
            )
            values.setdefault("defaultMaxWeightNorm", values.pop("maxWeightNorm"))
        super().__init__(values, clip_norm_settings)

    beta1s = values_of("beta1")
    beta2s = values_of("beta2")
    epss = values_of("eps")
    maxWeightNorms = values_of("maxWeightNorm")

    def _structure(self) -> tuple[object, ...]:
        return (self._scaled, *self._types.values())

    def spec(self) -> ours.Adam:
        return ours.Adam(**self._of_all(), scaled_state=self._scaled)


@typed
class Adaptive(_WithModes):
    """AdaGrad, RMSProp, centered RMSProp, AdaDelta."""

    KIND = "Adaptive"
    PARAMETERS = (
        Parameter("learningRate", "learning_rate", 0.01, "learning rate"),
        _DECAY,
        Parameter("alpha", "alpha", 0.99, "alpha"),
        _MOMENTUM,
        _EPSILON,
    )
    _MODES: ClassVar = {
        AdaptiveMode.AdaGrad: "ada_grad",
        AdaptiveMode.RMSProp: "rms_prop",
        AdaptiveMode.CenteredRMSProp: "centered_rms_prop",
        AdaptiveMode.AdaDelta: "ada_delta",
    }

    def __init__(
        self,
        values: Mapping[Any, object],
        mode: AdaptiveMode = AdaptiveMode.RMSProp,
        weight_decay_mode: WeightDecayMode = WeightDecayMode.Decay,
        accum_type: DataType = DataType.UNDEFINED,
        accl1_type: DataType = DataType.FLOAT,
        accl2_type: DataType = DataType.FLOAT,
        accl3_type: DataType = DataType.UNDEFINED,
        rmsprop_tf_variant: bool = False,
        debugContext: object = "adaptive",
        clip_norm_settings: Sequence[ClipNormSettings] = (),
    ) -> None:
        self._types = state_types(
            "Adaptive()",
            accum_type=accum_type,
            accl1_type=accl1_type,
            accl2_type=accl2_type,
            accl3_type=accl3_type,
        )
        if rmsprop_tf_variant and "RMSProp" not in mode.name:
            raise popart_exception(
                "The rmspropTFVariant parameter is only valid with the RMSProp and "
                "CenteredRMSProp optimizers."
            )
        self._mode, self._decay, self._tf = mode, weight_decay_mode, rmsprop_tf_variant
        super().__init__(values, clip_norm_settings)

    alphas = values_of("alpha")
    momentums = values_of("momentum")
    epss = values_of("eps")

    def _structure(self) -> tuple[object, ...]:
        return (self._tf, *self._types.values())

    def spec(self) -> ours.Adaptive:
        return ours.Adaptive(**self._of_all(), tf_variant=self._tf)


def popart_optimizer(spec: ours.OptimizerSpec) -> Optimizer:
    """The PopART optimizer of an update rule."""
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


def _pair(scalar: ours.Scalar) -> tuple[float, bool]:
    return scalar.value, scalar.constant
