"""Optimizer specifications as plain data: kind, hyper-parameters, per-weight values, clipping."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote, unquote

import numpy as np

from popgraph.passes.optimizer_scalars import (
    GRADIENT_SCALE,
    SGD0,
    SGD1,
    SGD2,
    Compound,
    Formula,
    Numbers,
    adam,
    adaptive,
    nesterov,
)
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.errors import PassError

__all__ = [
    "KINDS",
    "SGD",
    "Adam",
    "Adaptive",
    "ClipNorm",
    "Compound",
    "OptimizerSpec",
    "Scalar",
    "Specific",
    "loss_scale_variable",
    "streamed_scalars",
]


@dataclass(frozen=True)
class Scalar:
    """A hyper-parameter: baked into the program, or (not `constant`) written by the host."""

    value: float
    constant: bool = True

    def __str__(self) -> str:
        return f"{self.value!r}{'' if self.constant else '?'}"

    @staticmethod
    def parse(text: str) -> Scalar:
        return Scalar(float(text.removesuffix("?")), not text.endswith("?"))


@dataclass(frozen=True)
class Specific:
    """One hyper-parameter of one weight that differs from the default."""

    weight: str
    parameter: str
    scalar: Scalar


@dataclass(frozen=True)
class ClipNorm:
    """
    The gradients of `weights` together (none named: of all) are shrunk to norm `maximum`.

    Gradients are what PyTorch clips: the mean or sum that `OptimizerSpec` says, without the loss
    scale. With `of_updates`, what the update rule makes of them is shrunk, as PopART does.
    """

    maximum: float
    weights: tuple[str, ...] = ()
    of_updates: bool = False

    @property
    def word(self) -> str:
        """The key of this in the one line form."""
        return _CLIPS[self.of_updates]


_CLIPS = {False: "clip", True: "clip_updates"}


_STATES = {
    "Accum___": "accum_type",
    "Accl___": "accl1_type",
    "Accl1___": "accl1_type",
    "Accl2___": "accl2_type",
    "Accl3___": "accl3_type",
}
"""Which field says in which type states are kept, by the prefix of their names."""

OF_WEIGHT = "weight"
"""A state that is kept in its weight's own type, be it of half precision."""

_STATE_TYPES = ("", "f16", "f32", OF_WEIGHT)

MESSAGE_TYPES = ("", "f16", "bf16", "f32")
"""In which types gradients can be told to other processes."""

_OF_REPLICAS = frozenset({"at_once", "ranks", "rank_stride"})
"""Numbers of a weight that are no hyper-parameters: which replicas add up its gradients."""

_Spec = TypeVar("_Spec", bound="OptimizerSpec")


@dataclass(frozen=True)
class OptimizerSpec(ABC):
    """
    An optimizer as plain data.

    `loss_scaling` multiplies the gradient of the loss; the update rule divides it out again.
    Accumulation and replication factors enter the scalars as PopART defines; with `mean`
    gradients are averaged over micro-batches and replicas, else summed. With `running` as well,
    what is kept is the mean of those so far, which is never larger than they are. `accum_type` is
    the type in which gradients are added up, `accl1_type` and its like those of the states;
    without one, a state has the weight's type, but at least single precision.
    """

    KIND: ClassVar[str]

    learning_rate: Scalar = Scalar(0.1)
    weight_decay: Scalar = Scalar(0.0)
    loss_scaling: Scalar = Scalar(1.0)
    specific: tuple[Specific, ...] = ()
    clip: tuple[ClipNorm, ...] = ()
    accumulation: int = 1
    at_once: int = 1
    """
    How many of the accumulated micro-batches one run of the program has; a weight's own number is
    of how many of them it gets gradients.
    """
    in_turn: int = 1
    """So many replicas run the program one after the other, each on micro-batches of its own."""
    ranks: int = 1
    """
    So many processes add up their gradients; each runs an equal part of the micro-batches. Those of
    a weight's own number are `rank_stride` apart, and others have weights of their own.
    """
    rank_stride: int = 1
    shard_from: int = 0
    """Of weights with at least so many elements, each process keeps a share of the optimizer's
    states and updates that share; 0: all keep all."""
    shard_gradients_from: int = 0
    """Of weights with at least so many elements, each process also adds up only its share of the
    gradients of micro-batches, which are told one by one; 0: all add up all."""
    shard_weights_from: int = 0
    """Of weights with at least so many elements, each process also keeps only its share, and is
    told the whole whenever it is read; 0: all keep all."""
    message_type: str = ""
    """The type in which gradients are told to other processes; without one it is their own."""
    replication: int = 1
    mean: bool = False
    running: bool = False
    accum_type: str = ""
    skip_overflow: bool = False
    """An update is skipped if a gradient is not finite; `GOOD_UPDATES` counts those that are."""
    scale_period: int = 0
    """Of so many updates, the first one halves or doubles the loss scale, as tracked gradients of
    half precision decide; 0: it is what the user says."""
    scale_edge: float = 0.125
    """From which share of the largest half on an element of a gradient is large."""
    scale_threshold: float = 1e-7
    """The loss scale is halved if more than this share of the elements is large."""

    def __post_init__(self) -> None:
        for prefix in _STATES:
            _check_mode(self.state_type(prefix), _STATE_TYPES)
        if self.message_type not in MESSAGE_TYPES:
            raise PassError(
                f"processes cannot tell each other gradients in {self.message_type!r}",
                "exchangeType",
                f"one of {', '.join(filter(None, MESSAGE_TYPES))}",
            )

    def state_type(self, prefix: str) -> str:
        """The type in which the states of this prefix are kept, if one is asked for."""
        type_: str = getattr(self, _STATES.get(prefix, ""), "")
        return type_

    @abstractmethod
    def formulas(self) -> tuple[Formula, ...]:
        """The compound scalars of the update rule; `self` is what `for_weight` gave."""

    @property
    def period(self) -> int:
        """After how many runs of the program weights are updated."""
        return self.accumulation // (self.at_once * self.ranks)

    @property
    def replicas(self) -> int:
        """How many replicas add up their gradients."""
        return self.in_turn * self.at_once * self.ranks

    @property
    def accumulates(self) -> bool:
        """Whether a replica adds up gradients of several micro-batches."""
        return self.accumulation > self.replicas

    @property
    def keeps_means(self) -> bool:
        """Whether what is accumulated is a mean, and not a sum."""
        return self.mean and self.running

    @property
    def accumulation_divisor(self) -> float:
        """By how much accumulated micro-batches are to be divided."""
        return float(self.accumulation) if self.mean and not self.running else 1.0

    @property
    def reduction_divisor(self) -> float:
        """By how much what is accumulated of micro-batches and replicas is to be divided."""
        return self.accumulation_divisor * (self.replication if self.mean else 1.0)

    @property
    def accumulator(self) -> str:
        """The prefix of the state in which PopART adds up gradients of micro-batches."""
        return "Accum___"

    def shares(self, elements: int) -> bool:
        """Whether processes share out the states of a weight of so many elements."""
        limits = (self.shard_from, self.shard_gradients_from, self.shard_weights_from)
        wanted = any(0 < fewest <= elements for fewest in limits) and elements >= self.ranks > 1
        alone = any(one.parameter == "ranks" for one in self.specific)
        return wanted and not alone and self.is_elementwise

    def shares_weights(self, elements: int) -> bool:
        """Whether each of them keeps only its share of the weight."""
        return self.shares(elements) and 0 < self.shard_weights_from <= elements

    def shares_gradients(self, elements: int) -> bool:
        """Whether they add up shares of the gradients of micro-batches, too."""
        return self.shares(elements) and 0 < self.shard_gradients_from <= elements

    @property
    def is_elementwise(self) -> bool:
        """Whether elements of a weight are updated without a look at others, from equal states."""
        return True

    def for_weight(self: _Spec, weight: str) -> _Spec:
        """This optimizer with the weight's own numbers in place of the defaults."""
        own = {one.parameter: one.scalar for one in self.specific if one.weight == weight}
        return self._with(own)

    def _with(self: _Spec, own: Mapping[str, Scalar]) -> _Spec:
        changed: dict[str, Any] = {}
        for name, scalar in own.items():
            held = getattr(self, name)
            changed[name] = scalar if isinstance(held, Scalar) else type(held)(scalar.value)
        return replace(self, **changed)

    def compounds(self, weight: str, dtype: DType) -> dict[str, Compound]:
        """The scalars of the update rule of a weight of element type `dtype`, by prefix."""
        mine = self.for_weight(weight)
        own = {one.parameter for one in self.specific if one.weight == weight}
        wide = dtype if dtype.name == "f64" else dtypes.BY_NAME["f32"]
        found = {}
        clips = (GRADIENT_SCALE,) if any(not one.of_updates for one in self.clip) else ()
        for formula in (*mine.formulas(), *clips):
            names = formula.parameters.split()
            fixed = all(getattr(mine, name).constant for name in names)
            is_off = not fixed and mine._is_off(formula.zero)
            found[formula.prefix] = Compound(
                formula.prefix,
                formula.compute(Numbers(mine)),
                fixed or is_off,
                dtype if formula.like_weight else wide,
                dtype,
                weight if own - _OF_REPLICAS else None,
                is_off,
                "loss_scaling" in names,
            )
        return found

    def _is_off(self, parameter: str) -> bool:
        return bool(parameter) and getattr(self, parameter) == Scalar(0.0)

    # The one line form, for pass options: `sgd learning_rate=0.1? momentum=0.9 w:momentum=0.5`.

    def __str__(self) -> str:
        return " ".join([self.KIND, *self._words()])

    def _words(self) -> Iterator[str]:
        for entry in dataclasses.fields(self):
            value = getattr(self, entry.name)
            if entry.name not in ("specific", "clip") and value != entry.default:
                yield f"{entry.name}={value}"
        for one in self.specific:
            yield f"{quote(one.weight, safe='')}:{one.parameter}={one.scalar}"
        for group in self.clip:
            names = [quote(weight, safe="") for weight in group.weights]
            yield f"{group.word}={','.join([repr(group.maximum), *names])}"

    @staticmethod
    def parse(text: str) -> OptimizerSpec:
        """The optimizer that the one line form describes; PassError if it is not one."""
        kind, *words = text.split() or [""]
        if kind not in KINDS:
            raise PassError(
                f"there is no optimizer {kind!r}", "optimizer", f"one of {', '.join(KINDS)}"
            )
        try:
            return _parse(KINDS[kind], words)
        except ValueError as error:
            raise PassError(str(error), f"optimizer {text!r}") from error

    def with_values_of(self: _Spec, other: OptimizerSpec) -> _Spec:
        """
        The numbers of `other` in the structure of this one, which is what was compiled.

        What is streamed stays streamed, whatever `other` says about constness.
        """
        if type(other) is not type(self):
            raise PassError(
                f"a program compiled for {self.KIND} cannot take the numbers of {other.KIND}"
            )
        changed: dict[str, object] = {}
        for entry in dataclasses.fields(self):
            mine = getattr(self, entry.name)
            if isinstance(mine, Scalar):
                changed[entry.name] = Scalar(getattr(other, entry.name).value, mine.constant)
        changed["specific"] = tuple(
            replace(one, scalar=Scalar(_value_of(other, one), one.scalar.constant))
            for one in self.specific
        )
        return replace(self, **changed)  # type: ignore[arg-type]


def _value_of(spec: OptimizerSpec, wanted: Specific) -> float:
    found: Scalar | bool = getattr(spec.for_weight(wanted.weight), wanted.parameter)
    return found.value if isinstance(found, Scalar) else float(found)


@dataclass(frozen=True)
class SGD(OptimizerSpec):
    """
    Stochastic gradient descent; keeps a velocity where the momentum is streamed or not 0.

    `combined`: one state is accumulator and velocity (PopART's default, SGD1), else the velocity
    is a state of its own (SGD2).
    """

    KIND = "sgd"

    momentum: Scalar = Scalar(0.0)
    dampening: Scalar = Scalar(0.0)
    velocity_scaling: Scalar = Scalar(1.0)
    nesterov: bool = False
    combined: bool = True
    accl1_type: str = ""

    @property
    def has_velocity(self) -> bool:
        return not self.momentum.constant or self.momentum.value != 0

    @property
    def accumulator(self) -> str:
        return "Accl___" if self.has_velocity and self.combined else "Accum___"

    @property
    def is_elementwise(self) -> bool:
        """With a weight decay, a velocity may begin as a part of the weight."""
        decays = any(one.parameter == "weight_decay" for one in self.specific)
        return not decays and self._is_off("weight_decay")

    def formulas(self) -> tuple[Formula, ...]:
        if not self.has_velocity:
            return SGD0
        extra = nesterov(self.combined) if self.nesterov else ()
        return (SGD1 if self.combined else SGD2) + extra


@dataclass(frozen=True)
class Adam(OptimizerSpec):
    """
    Adam and its relatives.

    `mode`: adam, adam_no_bias, lamb, lamb_no_bias, ada_max. `decay`: the weight decay is added to
    the update (AdamW), else to the gradient (L2 regularization). `scaled_state`: the moments are
    those of the loss-scaled gradient.
    """

    KIND = "adam"
    MODES: ClassVar = ("adam", "adam_no_bias", "lamb", "lamb_no_bias", "ada_max")

    mode: str = "adam"
    beta1: Scalar = Scalar(0.9)
    beta2: Scalar = Scalar(0.999)
    epsilon: Scalar = Scalar(1e-6)
    max_weight_norm: Scalar = Scalar(10.0)
    decay: bool = True
    scaled_state: bool = False
    accl1_type: str = ""
    accl2_type: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_mode(self.mode, self.MODES)

    @property
    def is_lamb(self) -> bool:
        return self.mode.startswith("lamb")

    @property
    def is_elementwise(self) -> bool:
        return not self.is_lamb

    @property
    def corrects_bias(self) -> bool:
        return not self.mode.endswith("no_bias")

    def formulas(self) -> tuple[Formula, ...]:
        return adam(scaled_state=self.scaled_state, decay=self.decay, lamb=self.is_lamb)


@dataclass(frozen=True)
class Adaptive(OptimizerSpec):
    """
    AdaGrad, RMSProp, centered RMSProp, AdaDelta.

    `mode`: ada_grad, rms_prop, centered_rms_prop, ada_delta. `decay` as in `Adam`. `tf_variant`:
    epsilon inside the square root, and the learning rate inside the momentum.
    """

    KIND = "adaptive"
    MODES: ClassVar = ("ada_grad", "rms_prop", "centered_rms_prop", "ada_delta")

    learning_rate: Scalar = Scalar(0.01)
    mode: str = "rms_prop"
    alpha: Scalar = Scalar(0.99)
    momentum: Scalar = Scalar(0.0)
    epsilon: Scalar = Scalar(1e-6)
    decay: bool = True
    tf_variant: bool = False
    accl1_type: str = ""
    accl2_type: str = ""
    accl3_type: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_mode(self.mode, self.MODES)
        if self.tf_variant and not self.mode.endswith("rms_prop"):
            raise PassError(f"tf_variant is a variant of rms_prop, not of {self.mode}")

    @property
    def has_velocity(self) -> bool:
        return not self.momentum.constant or self.momentum.value != 0

    def formulas(self) -> tuple[Formula, ...]:
        return adaptive(averages=self.mode != "ada_grad", velocity=self.has_velocity)


def _check_mode(mode: str, modes: tuple[str, ...]) -> None:
    if mode not in modes:
        raise PassError(f"there is no optimizer mode {mode!r}", hint=f"one of {', '.join(modes)}")


KINDS: dict[str, type[OptimizerSpec]] = {kind.KIND: kind for kind in (SGD, Adam, Adaptive)}


def _parse(kind: type[OptimizerSpec], words: list[str]) -> OptimizerSpec:
    entries = {entry.name: entry for entry in dataclasses.fields(kind)}
    given: dict[str, object] = {}
    specific, clip = [], []
    for word in words:
        name, equals, value = word.partition("=")
        weight, colon, parameter = name.rpartition(":")
        if not equals or parameter not in {*entries, *_CLIPS.values()}:
            raise PassError(
                f"{kind.KIND} has no parameter {word!r}",
                "optimizer",
                f"<name>=<value>, of {', '.join(entries)}",
            )
        if parameter in _CLIPS.values():
            maximum, *weights = value.split(",")
            of_updates = parameter == _CLIPS[True]
            clip.append(ClipNorm(float(maximum), tuple(map(unquote, weights)), of_updates))
        elif colon:
            specific.append(Specific(unquote(weight), parameter, Scalar.parse(value)))
        else:
            given[name] = _like(entries[name].default, value)
    made = dict(given, specific=tuple(specific), clip=tuple(clip))
    return kind(**made)  # type: ignore[arg-type]


def _like(default: object, text: str) -> object:
    """`text` as a value of the type that `default` has."""
    match default:
        case Scalar():
            return Scalar.parse(text)
        case bool():
            return text == "True"
        case int():
            return int(text)
        case float():
            return float(text)
        case _:
            return text


FACTOR = "lossScaleUpdateFactor"
"""The variable by which a loss scale that follows gradients is multiplied."""


LOSS_SCALE = "lossScaling_"


def loss_scale_variable(loss: DType) -> str:
    """The name of the streamed loss scale, for a loss of this element type."""
    return f"{LOSS_SCALE}{loss.popart}"


def loss_scale_type(loss: DType, *, follows_gradients: bool) -> DType:
    """The element type of the loss scale: single precision at least if it follows gradients."""
    return dtypes.BY_NAME["f32"] if follows_gradients and loss.numpy.itemsize < 4 else loss


def streamed_scalars(
    spec: OptimizerSpec, weights: Mapping[str, DType], loss: DType
) -> dict[str, Array]:
    """
    Every scalar variable that the host writes, with its value.

    `weights` are the trained variables. The program is made from the same function, so this is
    both what the variables start with and, for `compiled.with_values_of(replacement)`, what a
    later update of the optimizer writes.
    """
    found = {}
    if not spec.loss_scaling.constant:
        held = loss_scale_type(loss, follows_gradients=spec.scale_period > 0)
        found[loss_scale_variable(loss)] = np.array(spec.loss_scaling.value, held.numpy)
    for weight, dtype in weights.items():
        for compound in spec.compounds(weight, dtype).values():
            if not compound.constant:
                found[compound.variable] = compound.array
    return found
