"""Formulas for the compound scalars of update rules, from the user's hyper-parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType


@dataclass(frozen=True)
class Compound:
    """A scalar of the update rule of one weight, as stored in the program."""

    prefix: str
    value: float
    constant: bool
    """Whether the value never changes, so that the program has no variable for it."""
    dtype: DType
    of: DType
    """The element type of the updated weights, a part of its name."""
    weight: str | None
    """The only weight that it belongs to; None if it is the default for all weights."""
    is_off: bool = False
    """Whether the scalar is constant although the host may change a hyper-parameter of it."""
    unscales: bool = False
    """Whether the scalar is divided by the loss scale."""

    @property
    def variable(self) -> str:
        """PopART's name of the streamed tensor."""
        if self.weight is not None:
            return f"{self.prefix}___specific___{self.weight}"
        return f"{self.prefix}___default___{self.of.popart}"

    @property
    def array(self) -> Array:
        return np.array(self.value, self.dtype.numpy)


@dataclass(frozen=True)
class Numbers:
    """The values of all hyper-parameters for one weight, by name, for formulas."""

    spec: object

    def __getattr__(self, name: str) -> float:
        value = getattr(self.spec, name)
        return float(getattr(value, "value", value))


@dataclass(frozen=True)
class Formula:
    """A compound scalar as a function of hyper-parameters; constant if all of these are."""

    prefix: str
    parameters: str
    """Names of the hyper-parameters in the formula."""
    compute: Callable[[Numbers], float]
    zero: str = ""
    """A hyper-parameter that makes the scalar constant if it is a constant 0."""
    like_weight: bool = False
    """Stored in the weight's element type, else in FLOAT (DOUBLE for DOUBLE weights)."""


def _replicas1(s: Numbers) -> float:
    """SGD1: with accumulation, the velocity itself is summed over replicas."""
    return s.replication if s.accumulation > 1 else 1.0


def _gradient_scale1(s: Numbers) -> float:
    factor = 1.0
    if s.accumulation > 1 and not s.mean:
        factor = s.replication
    elif s.accumulation == 1 and s.mean:
        factor = 1 / s.replication
    return factor / (s.loss_scaling * s.accumulation_divisor)


def _gradient_scale2(s: Numbers) -> float:
    return 1 / (s.loss_scaling * s.reduction_divisor)


GRADIENT_SCALE = Formula("gradientScale", "loss_scaling", _gradient_scale2)
"""Factor from an accumulated gradient of the scaled loss to the mean gradient of the loss."""

SGD0 = (
    Formula(
        "weightDecayScaleFactor0",
        "learning_rate dampening weight_decay",
        lambda s: 1 - s.learning_rate * (1 - s.dampening) * s.weight_decay,
        zero="weight_decay",
        like_weight=True,
    ),
    Formula(
        "scaledLearningRate0",
        "learning_rate dampening loss_scaling",
        lambda s: s.learning_rate * (1 - s.dampening) / (s.loss_scaling * s.reduction_divisor),
    ),
)

_SCALED_DECAY = Formula(
    "scaledWeightDecay1",
    "dampening weight_decay velocity_scaling",
    lambda s: (1 - s.dampening) * s.weight_decay * s.velocity_scaling,
    zero="weight_decay",
)

SGD1 = (
    _SCALED_DECAY,
    Formula(
        "dampeningScaleFactor1",
        "dampening velocity_scaling loss_scaling",
        lambda s: (1 - s.dampening) * s.velocity_scaling * _gradient_scale1(s),
    ),
    Formula(
        "scaledLearningRate1",
        "learning_rate velocity_scaling",
        lambda s: s.learning_rate / (s.velocity_scaling * _replicas1(s)),
    ),
    Formula("scaledMomentum1", "momentum", lambda s: s.momentum / _replicas1(s), like_weight=True),
)

SGD2 = (
    _SCALED_DECAY,
    Formula(
        "dampeningScaleFactor2",
        "dampening velocity_scaling loss_scaling",
        lambda s: (1 - s.dampening) * s.velocity_scaling * _gradient_scale2(s),
    ),
    Formula(
        "scaledLearningRate2",
        "learning_rate velocity_scaling",
        lambda s: s.learning_rate / s.velocity_scaling,
    ),
    Formula("scaledMomentum2", "momentum", lambda s: s.momentum, like_weight=True),
)


def nesterov(combined: bool) -> tuple[Formula, ...]:
    """Additional scalars of Nesterov momentum."""
    scale = _gradient_scale1 if combined else _gradient_scale2
    number = 1 if combined else 2
    return (
        Formula("sgdMomentum", "momentum", lambda s: s.momentum, like_weight=True),
        Formula("sgdWeightDecay", "weight_decay", lambda s: s.weight_decay),
        Formula(f"nesterovDampeningScaleFactor{number}", "loss_scaling", scale),
        Formula(
            f"nesterovGradScaleFactor{number}",
            "velocity_scaling",
            lambda s: s.velocity_scaling * (_replicas1(s) if combined else 1),
        ),
    )


_LEARNING_RATE = Formula("learningRate", "learning_rate", lambda s: s.learning_rate)
_WEIGHT_DECAY = Formula("weightDecay", "weight_decay", lambda s: s.weight_decay)


def adam(*, scaled_state: bool, decay: bool, lamb: bool) -> tuple[Formula, ...]:
    """Scalars of Adam; with `scaled_state`, moments are of the loss-scaled gradient."""

    def scale(s: Numbers) -> float:
        return s.loss_scaling if scaled_state else 1.0

    scaled_decay = Formula(
        "weightDecay", "weight_decay loss_scaling", lambda s: s.weight_decay * scale(s)
    )
    return (
        _LEARNING_RATE,
        scaled_decay if scaled_state and not decay else _WEIGHT_DECAY,
        Formula("adamBeta1", "beta1", lambda s: s.beta1),
        Formula("adamBeta2", "beta2", lambda s: s.beta2),
        Formula(
            "adamEps",
            "epsilon loss_scaling" if scaled_state else "epsilon",
            lambda s: s.epsilon * scale(s),
        ),
        Formula(
            "adamGradientScaling",
            "" if scaled_state else "loss_scaling",
            lambda s: scale(s) / (s.loss_scaling * s.reduction_divisor),
        ),
        *([Formula("maxWeightNorm", "max_weight_norm", lambda s: s.max_weight_norm)] * lamb),
    )


def adaptive(*, averages: bool, velocity: bool) -> tuple[Formula, ...]:
    """Scalars of AdaGrad and its relatives; with `averages`, squares are averaged, not summed."""
    return (
        _LEARNING_RATE,
        _WEIGHT_DECAY,
        *([Formula("adaptiveAlpha", "alpha", lambda s: s.alpha)] * averages),
        *([Formula("adaptiveMomentum", "momentum", lambda s: s.momentum)] * velocity),
        Formula("adaptiveEps", "epsilon", lambda s: s.epsilon),
        Formula(
            "adaptiveGradientScaling",
            "loss_scaling",
            lambda s: 1 / (s.loss_scaling * s.reduction_divisor),
        ),
    )
