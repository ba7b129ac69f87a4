"""Keras' learning-rate schedules: functions of the step that give the learning rate itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, cos, floor, log, pi

from popgraph.support.argument_types import check_fields
from popgraph.support.errors import ModelError


class LearningRateSchedule(ABC):
    """
    A learning rate for each step, as in Keras: `schedule=ExponentialDecay(0.1, 1000, 0.9)`.

    It replaces the learning rate of the optimizer. Texts such as "cosine(steps=1000)" multiply it.
    """

    def __post_init__(self) -> None:
        check_fields(self)

    @abstractmethod
    def __call__(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""


@dataclass(frozen=True)
class _Decay(LearningRateSchedule):
    """A decay by the quotient `step / decay_steps`, which `staircase` rounds down."""

    initial_learning_rate: float
    decay_steps: float
    decay_rate: float
    staircase: bool = False
    name: str | None = None

    def _passed(self, step: int) -> float:
        passed = step / self.decay_steps
        return floor(passed) if self.staircase else passed


class ExponentialDecay(_Decay):
    """
    `initial_learning_rate * decay_rate ** (step / decay_steps)`.

    With `staircase`, the exponent is rounded down.
    """

    def __call__(self, step: int) -> float:
        return float(self.initial_learning_rate * self.decay_rate ** self._passed(step))


class InverseTimeDecay(_Decay):
    """
    `initial_learning_rate / (1 + decay_rate * step / decay_steps)`.

    With `staircase`, the quotient `step / decay_steps` is rounded down.
    """

    def __call__(self, step: int) -> float:
        return self.initial_learning_rate / (1 + self.decay_rate * self._passed(step))


@dataclass(frozen=True)
class PolynomialDecay(LearningRateSchedule):
    """
    `(initial_learning_rate - end_learning_rate) * (1 - step / decay_steps) ** power` above the end.

    After `decay_steps`, the rate stays at its end. With `cycle`, it rises again instead:
    `decay_steps` is multiplied by the number of cycles begun.
    """

    initial_learning_rate: float
    decay_steps: float
    end_learning_rate: float = 0.0001
    power: float = 1.0
    cycle: bool = False
    name: str | None = None

    def __call__(self, step: int) -> float:
        at, steps = float(step), float(self.decay_steps)
        if self.cycle:
            steps *= max(1, ceil(at / steps))
        at = min(at, steps)
        height = self.initial_learning_rate - self.end_learning_rate
        return float(height * (1 - at / steps) ** self.power + self.end_learning_rate)


@dataclass(frozen=True)
class PiecewiseConstantDecay(LearningRateSchedule):
    """
    `values[i]` for the steps from above `boundaries[i - 1]` up to `boundaries[i]`, inclusive.

    There is one value more than boundaries; the last one holds from then on.
    """

    boundaries: Sequence[float]
    values: Sequence[float]
    name: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.values) != len(self.boundaries) + 1:
            raise ModelError(
                f"{len(self.boundaries)} boundaries have {len(self.values)} values",
                "PiecewiseConstantDecay",
                f"give {len(self.boundaries) + 1} values",
            )

    def __call__(self, step: int) -> float:
        passed = sum(step > boundary for boundary in self.boundaries)
        return float(self.values[passed])


@dataclass(frozen=True)
class CosineDecay(LearningRateSchedule):
    """
    Half a cosine wave over `decay_steps`, from the initial rate to `alpha` times that rate.

    With `warmup_target`, the rate first rises linearly to it over `warmup_steps`, and decays from
    there.
    """

    initial_learning_rate: float
    decay_steps: float
    alpha: float = 0.0
    name: str | None = None
    warmup_target: float | None = None
    warmup_steps: float = 0

    def __call__(self, step: int) -> float:
        first = self.initial_learning_rate
        if self.warmup_target is None:
            return self._decayed(step, first)
        if step < self.warmup_steps:
            return first + (self.warmup_target - first) * step / self.warmup_steps
        return self._decayed(step - self.warmup_steps, self.warmup_target)

    def _decayed(self, at: float, first: float) -> float:
        wave = (1 + cos(pi * min(at, self.decay_steps) / self.decay_steps)) / 2
        return first * ((1 - self.alpha) * wave + self.alpha)


@dataclass(frozen=True)
class CosineDecayRestarts(LearningRateSchedule):
    """
    Cosine waves with restarts (Loshchilov and Hutter 2016).

    The first one has `first_decay_steps`. Each has `t_mul` times the steps of the one before, and
    starts at `m_mul` times its rate. No rate is below `alpha * initial_learning_rate`.
    """

    initial_learning_rate: float
    first_decay_steps: float
    t_mul: float = 2.0
    m_mul: float = 1.0
    alpha: float = 0.0
    name: str | None = None

    def __call__(self, step: int) -> float:
        passed = step / self.first_decay_steps
        if self.t_mul == 1:
            restarts = floor(passed)
            share = passed - restarts
        else:
            # The first n waves have (t_mul^n - 1) / (t_mul - 1) times the steps of the first.
            restarts = floor(log(1 - passed * (1 - self.t_mul)) / log(self.t_mul))
            before = (1 - self.t_mul**restarts) / (1 - self.t_mul)
            share = (passed - before) / self.t_mul**restarts
        wave = self.m_mul**restarts * (1 + cos(pi * share)) / 2
        return float(self.initial_learning_rate * ((1 - self.alpha) * wave + self.alpha))
