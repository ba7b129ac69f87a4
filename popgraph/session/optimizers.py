"""PopART's optimizers, and their translation to optimizer specifications."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from popgraph.builder.opset.arguments import typed
from popgraph.builder.opset.enums import (
    AdamMode,
    AdaptiveMode,
    DataType,
    SGDAccumulatorAndMomentum,
    WeightDecayMode,
)
from popgraph.builder.opset.exceptions import (
    optimizer_replacement_error,
    popart_exception,
    popart_unsupported_exception,
)
from popgraph.passes import optimizer_spec as ours
from popgraph.session.deprecation import deprecated
from popgraph.session.optimizer_value import (
    ClipNormSettings,
    OptimizerValue,
    OptimizerValueMap,
    values_from_dict,
)


@dataclass(frozen=True)
class _Parameter:
    """A hyper-parameter: PopART's name, ours, its default, and what it may be."""

    name: str
    ours: str
    default: float
    words: str
    positive: bool = False

    @property
    def default_key(self) -> str:
        return f"default{self.name[0].upper()}{self.name[1:]}"

    def check(self, value: OptimizerValue, kind: str) -> None:
        number = value.val()
        if self.positive and number <= 0:
            raise popart_exception(
                f"Non-positive {self.words} ({number:g}) in {kind} is not supported"
            )
        if number < 0:
            raise popart_exception(f"Negative {self.words} ({number:g}) in {kind} is not supported")


_DECAY = _Parameter("weightDecay", "weight_decay", 0.0, "weight decay")
_EPSILON = _Parameter("eps", "epsilon", 1e-6, "eps", positive=True)
_MOMENTUM = _Parameter("momentum", "momentum", 0.0, "momentum")


@typed
class Optimizer(ABC):
    """Hyper-parameters by name, with defaults and values for particular weights."""

    KIND: ClassVar[str]
    PARAMETERS: ClassVar[tuple[_Parameter, ...]]

    def __init__(
        self,
        values: Mapping[str, object],
        clip_norm_settings: Sequence[ClipNormSettings] = (),
    ) -> None:
        keys = (*(one.default_key for one in self.PARAMETERS), *self._other_keys())
        given = values_from_dict(values, keys, f"{self.KIND}()")
        self._maps = {
            one.name: OptimizerValueMap(given.get(one.default_key, OptimizerValue(one.default)))
            for one in self.PARAMETERS
        }
        self._loss_scaling = given.get("lossScaling", OptimizerValue(1.0))
        self._others = given
        self._clip = tuple(clip_norm_settings)
        self._check()

    def _other_keys(self) -> tuple[str, ...]:
        return ("lossScaling",)

    def _check(self) -> None:
        for one in self.PARAMETERS:
            self._check_value(one, self._maps[one.name].default)
        if self._loss_scaling.val() == 0:
            raise popart_exception("Loss scaling cannot be 0")
        if any(one.everything for one in self._clip) and len(self._clip) > 1:
            raise popart_exception(
                "ClipNormSettings::clipAllWeights must be the only clip norm setting"
            )

    def _check_value(self, parameter: _Parameter, value: OptimizerValue) -> None:
        parameter.check(value, self.KIND)
        still = parameter.name == "learningRate" and value.isConst() and not value.val()
        if still and self._insists_on_learning():
            raise popart_exception(
                f"Constant, zero learning rate in {self.KIND}, "
                "bailing as this might be a user error."
            )

    def _insists_on_learning(self) -> bool:
        """Whether a learning rate that is always zero is refused."""
        return True

    def insertSpecific(self, tensorId: str, values: Mapping[str, object]) -> None:
        """Values of one weight alone; what is not named is as for all others."""
        known = tuple(one.name for one in self.PARAMETERS)
        given = values_from_dict(values, known, f"{self.KIND}.insertSpecific()")
        for one in self.PARAMETERS:
            held = self._maps[one.name]
            value = given.get(one.name, held.default)
            self._check_value(one, value)
            held.specifics[tensorId] = value

    def getLossScalingVal(self) -> float:
        return self._loss_scaling.val()

    def learningRates(self) -> OptimizerValueMap:
        return self._maps["learningRate"]

    def weightDecays(self) -> OptimizerValueMap:
        return self._maps["weightDecay"]

    def validate_replacement(self, new: Optimizer) -> None:
        """Refuses what the compiled program cannot become."""
        if type(self).KIND != type(new).KIND:
            raise optimizer_replacement_error(
                f"Can not replace optimizer of type {self.KIND} with new optimizer of type "
                f"{new.KIND}"
            )
        if self._clip != new._clip:
            raise optimizer_replacement_error("Can not replace the clip norm settings.")
        self._loss_scaling.validate_replacement(new._loss_scaling)
        for name, held in self._maps.items():
            held.validate_replacement(new._maps[name])
        if self._structure() != new._structure():
            raise optimizer_replacement_error(
                f"Can not replace an optimizer of type {self.KIND} with one of another mode."
            )

    def _structure(self) -> tuple[object, ...]:
        """What the update rule depends on besides numbers."""
        return ()

    @abstractmethod
    def spec(self) -> ours.OptimizerSpec:
        """The same optimizer as the compiler knows it."""

    def _scalars(self) -> dict[str, Any]:
        scalars = {one.ours: self._maps[one.name].default.scalar for one in self._numeric()}
        return {**scalars, "loss_scaling": self._loss_scaling.scalar}

    def _numeric(self) -> tuple[_Parameter, ...]:
        return tuple(one for one in self.PARAMETERS if one.ours)

    def _specifics(self) -> tuple[ours.Specific, ...]:
        return tuple(
            ours.Specific(weight, one.ours, value.scalar)
            for one in self._numeric()
            for weight, value in self._maps[one.name].specifics.items()
        )

    def _clips(self) -> tuple[ours.ClipNorm, ...]:
        return tuple(ours.ClipNorm(one.maxNorm, one.weightIds) for one in self._clip)


def _state_types(where: str, **types: DataType) -> dict[str, Any]:
    """The types of states by the fields of specifications; UNDEFINED is the weight's own type."""
    for name, type_ in types.items():
        if type_ not in _STATE_TYPES:
            raise popart_unsupported_exception(
                f"{name} = {type_.name} is not implemented", where, "FLOAT or FLOAT16"
            )
    return {name: _STATE_TYPES[type_] for name, type_ in types.items()}


_STATE_TYPES = {DataType.UNDEFINED: ours.OF_WEIGHT, DataType.FLOAT: "", DataType.FLOAT16: "f16"}
"""By PopART's name of a type, ours; "" is at least single precision."""


@typed
class SGD(Optimizer):
    """
    Stochastic gradient descent with momentum, dampening, weight decay and loss scaling.

    `SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.9, True)})`; the boolean says
    whether the number is constant. `SGD(0.1, 1e-4)` is the old form: learning rate, weight decay
    and loss scaling, all of which may change later. `accumType` and `accl1Type` are the types of
    accumulated gradients and of the velocity, where these are Separate; by default, and of a
    Combined velocity, that of the weight.
    """

    KIND = "SGD"
    PARAMETERS = (
        _Parameter("learningRate", "learning_rate", 0.1, "learning rate"),
        _DECAY,
        _MOMENTUM,
        _Parameter("dampening", "dampening", 0.0, "dampening"),
        _Parameter("velocityScaling", "velocity_scaling", 1.0, "velocity scaling", positive=True),
        _Parameter("nesterov", "", 0.0, "nesterov"),
    )

    def __init__(
        self,
        values: Mapping[str, object] | float | None = None,
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
        self._types = _state_types("SGD()", accum_type=accumType, accl1_type=accl1Type)
        super().__init__(values, clip_norm_settings)

    def _other_keys(self) -> tuple[str, ...]:
        return ("lossScaling", "nesterov")

    def _check(self) -> None:
        if "nesterov" in self._others:
            self._maps["nesterov"] = OptimizerValueMap(self._others["nesterov"])
        super()._check()
        if self._nesterov and self.dampenings().default.val() != 0:
            raise popart_exception("Nesterov momentum requires zero dampening in SGD")

    @property
    def _nesterov(self) -> bool:
        return bool(self._maps["nesterov"].default.val())

    def momentums(self) -> OptimizerValueMap:
        return self._maps["momentum"]

    def dampenings(self) -> OptimizerValueMap:
        return self._maps["dampening"]

    def velocityScalings(self) -> OptimizerValueMap:
        return self._maps["velocityScaling"]

    def nesterov(self) -> OptimizerValueMap:
        return self._maps["nesterov"]

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
    """SGD without momentum whose numbers never change."""

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


@typed
class Adam(Optimizer):
    """Adam, AdamW (`weight_decay_mode` Decay), AdaMax, Lamb."""

    KIND = "Adam"
    PARAMETERS = (
        _Parameter("learningRate", "learning_rate", 0.1, "learning rate"),
        _DECAY,
        _Parameter("beta1", "beta1", 0.9, "beta1"),
        _Parameter("beta2", "beta2", 0.999, "beta2"),
        _EPSILON,
        _Parameter("maxWeightNorm", "max_weight_norm", 10.0, "max weight norm"),
    )
    _MODES: ClassVar = {
        AdamMode.Adam: "adam",
        AdamMode.AdamNoBias: "adam_no_bias",
        AdamMode.Lamb: "lamb",
        AdamMode.LambNoBias: "lamb_no_bias",
        AdamMode.AdaMax: "ada_max",
    }

    @classmethod
    def mode_of(cls, mode: str) -> AdamMode:
        """PopART's name of a mode."""
        return next(theirs for theirs, own in cls._MODES.items() if own == mode)

    def __init__(
        self,
        values: Mapping[str, object],
        mode: AdamMode = AdamMode.Adam,
        weight_decay_mode: WeightDecayMode = WeightDecayMode.Decay,
        accum_type: DataType = DataType.UNDEFINED,
        accl1_type: DataType = DataType.FLOAT,
        accl2_type: DataType = DataType.FLOAT,
        clip_norm_settings: Sequence[ClipNormSettings] = (),
        scaled_optimizer_state: bool = False,
        debugContext: object = "adam",
    ) -> None:
        self._types = _state_types(
            "Adam()", accum_type=accum_type, accl1_type=accl1_type, accl2_type=accl2_type
        )
        self._mode, self._decay = mode, weight_decay_mode
        self._scaled = scaled_optimizer_state
        values = dict(values)
        if "maxWeightNorm" in values:
            deprecated("maxWeightNorm", "defaultMaxWeightNorm")
            values.setdefault("defaultMaxWeightNorm", values.pop("maxWeightNorm"))
        super().__init__(values, clip_norm_settings)

    def beta1s(self) -> OptimizerValueMap:
        return self._maps["beta1"]

    def beta2s(self) -> OptimizerValueMap:
        return self._maps["beta2"]

    def epss(self) -> OptimizerValueMap:
        return self._maps["eps"]

    def maxWeightNorms(self) -> OptimizerValueMap:
        return self._maps["maxWeightNorm"]

    def _structure(self) -> tuple[object, ...]:
        return (self._mode, self._decay, self._scaled, *self._types.values())

    def spec(self) -> ours.Adam:
        return ours.Adam(
            **self._scalars(),
            specific=self._specifics(),
            clip=self._clips(),
            mode=self._MODES[self._mode],
            decay=self._decay is WeightDecayMode.Decay,
            scaled_state=self._scaled,
            **self._types,
        )


@typed
class Adaptive(Optimizer):
    """AdaGrad, RMSProp, centered RMSProp, AdaDelta."""

    KIND = "Adaptive"
    PARAMETERS = (
        _Parameter("learningRate", "learning_rate", 0.01, "learning rate"),
        _DECAY,
        _Parameter("alpha", "alpha", 0.99, "alpha"),
        _MOMENTUM,
        _EPSILON,
    )
    _MODES: ClassVar = {
        AdaptiveMode.AdaGrad: "ada_grad",
        AdaptiveMode.RMSProp: "rms_prop",
        AdaptiveMode.CenteredRMSProp: "centered_rms_prop",
        AdaptiveMode.AdaDelta: "ada_delta",
    }

    @classmethod
    def mode_of(cls, mode: str) -> AdaptiveMode:
        """PopART's name of a mode."""
        return next(theirs for theirs, own in cls._MODES.items() if own == mode)

    def __init__(
        self,
        values: Mapping[str, object],
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
        self._types = _state_types(
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

    def alphas(self) -> OptimizerValueMap:
        return self._maps["alpha"]

    def momentums(self) -> OptimizerValueMap:
        return self._maps["momentum"]

    def epss(self) -> OptimizerValueMap:
        return self._maps["eps"]

    def _structure(self) -> tuple[object, ...]:
        return (self._mode, self._decay, self._tf, *self._types.values())

    def spec(self) -> ours.Adaptive:
        return ours.Adaptive(
            **self._scalars(),
            specific=self._specifics(),
            clip=self._clips(),
            mode=self._MODES[self._mode],
            decay=self._decay is WeightDecayMode.Decay,
            tf_variant=self._tf,
            **self._types,
        )
