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
    """A hyper-parameter: a constant of the program, or written by the host if not `constant`."""

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
    Clips the global norm of the gradients of `weights` (empty: all) to `maximum`.

    Gradients are the mean or sum that `OptimizerSpec` defines, without the loss scale, as in
    PyTorch. With `of_updates`, updates are clipped instead, as in PopART.
    """

    maximum: float
    weights: tuple[str, ...] = ()
    of_updates: bool = False

    @property
    def word(self) -> str:
        """The key in the text form."""
        return _CLIPS[self.of_updates]


_CLIPS = {False: "clip", True: "clip_updates"}


_STATES = {
    "Accum___": "accum_type",
    "Accl___": "accl1_type",
    "Accl1___": "accl1_type",
    "Accl2___": "accl2_type",
    "Accl3___": "accl3_type",
}
"""The field with the element type of a state, by the prefix of the state's name."""

OF_WEIGHT = "weight"
"""Stores a state in the element type of its weight, even in half precision."""

_STATE_TYPES = ("", "f16", "f32", OF_WEIGHT)

MESSAGE_TYPES = ("", "f16", "bf16", "f32")
"""Element types in which processes can exchange gradients; "": their own type."""

_OF_REPLICAS = frozenset({"at_once", "ranks", "rank_stride"})
"""Fields of a weight that select the replicas which sum its gradients: not hyper-parameters."""

_Spec = TypeVar("_Spec", bound="OptimizerSpec")


@dataclass(frozen=True)
class OptimizerSpec(ABC):
    """
    An optimizer as plain data.

    `loss_scaling` multiplies the gradient of the loss; the update rule divides by it.
    Accumulation and replication factors enter the scalars as PopART defines. With `mean`,
    gradients are averaged over micro-batches and replicas, else summed. With `running` as well,
    accumulators hold the mean so far, which never exceeds the gradients. `accum_type` is the
    element type of gradient accumulators, `accl1_type` and so on of other states. By default, a
    state has the weight's type, but at least single precision.
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
    Number of accumulated micro-batches in one run of the program. A weight's own value is the
    number of these that contribute to its gradient.
    """
    in_turn: int = 1
    """Number of replicas that run the program in sequence, each on its own micro-batches."""
    ranks: int = 1
    """
    Number of processes that sum their gradients; each runs an equal share of the micro-batches. A
    weight's own value is the size of its group of processes, at distance `rank_stride`.
    """
    rank_stride: int = 1
    shard_from: int = 0
    """Number of elements from which a weight's optimizer state and update are sharded over the
    processes; 0: never."""
    shard_gradients_from: int = 0
    """Number of elements from which a weight's gradient is also reduce-scattered for each
    micro-batch, so that accumulators are sharded; 0: never."""
    shard_weights_from: int = 0
    """Number of elements from which the weight itself is also sharded, and all-gathered for each
    read; 0: never."""
    message_type: str = ""
    """Element type in which processes exchange gradients; "": the gradients' own type."""
    replication: int = 1
    mean: bool = False
    running: bool = False
    accum_type: str = ""
    skip_overflow: bool = False
    """Skip an update if a gradient is not finite; `GOOD_UPDATES` counts updates since then."""
    scale_period: int = 0
    """The first of every `scale_period` updates halves or doubles the loss scale, as tracked
    gradients decide; 0: the loss scale is the user's."""
    scale_edge: float = 0.125
    """Fraction of the largest half from which a gradient's element counts as large."""
    scale_threshold: float = 1e-7
    """Fraction of large elements above which the loss scale is halved."""

    def __post_init__(self) -> None:
        for prefix in _STATES:
            _check_mode(self.state_type(prefix), _STATE_TYPES)
        if self.message_type not in MESSAGE_TYPES:
            raise PassError(
                f"processes cannot exchange gradients of type {self.message_type!r}",
                "exchangeType",
                f"one of {', '.join(filter(None, MESSAGE_TYPES))}",
            )

    def state_type(self, prefix: str) -> str:
        """The requested element type of states with this prefix; "" for the default."""
        type_: str = getattr(self, _STATES.get(prefix, ""), "")
        return type_

    @abstractmethod
    def formulas(self) -> tuple[Formula, ...]:
        """The compound scalars of the update rule; `self` is a result of `for_weight`."""

    @property
    def period(self) -> int:
        """The number of runs of the program between updates."""
        return self.accumulation // (self.at_once * self.ranks)

    @property
    def replicas(self) -> int:
        """The number of replicas that sum their gradients."""
        return self.in_turn * self.at_once * self.ranks

    @property
    def accumulates(self) -> bool:
        """Whether a replica accumulates gradients of several micro-batches."""
        return self.accumulation > self.replicas

    @property
    def keeps_means(self) -> bool:
        """Whether accumulators hold means instead of sums."""
        return self.mean and self.running

    @property
    def accumulation_divisor(self) -> float:
        """The divisor of gradients accumulated over micro-batches."""
        return float(self.accumulation) if self.mean and not self.running else 1.0

    @property
    def reduction_divisor(self) -> float:
        """The divisor of gradients accumulated over micro-batches and replicas."""
        return self.accumulation_divisor * (self.replication if self.mean else 1.0)

    @property
    def accumulator(self) -> str:
        """The prefix of the state in which PopART accumulates gradients."""
        return "Accum___"

    def shares(self, elements: int) -> bool:
        """Whether processes shard the states of a weight with this number of elements."""
        limits = (self.shard_from, self.shard_gradients_from, self.shard_weights_from)
        wanted = any(0 < fewest <= elements for fewest in limits) and elements >= self.ranks > 1
        alone = any(one.parameter == "ranks" for one in self.specific)
        return wanted and not alone and self.is_elementwise

    def shards_weights(self, elements: int) -> bool:
        """Whether each process stores only its shard of the weight."""
        return self.shares(elements) and 0 < self.shard_weights_from <= elements

    def shards_gradients(self, elements: int) -> bool:
        """Whether processes also shard the accumulated gradients."""
        return self.shares(elements) and 0 < self.shard_gradients_from <= elements

    @property
    def is_elementwise(self) -> bool:
        """Whether each element of a weight is updated from its own state only, initially equal."""
        return True

    def for_weight(self: _Spec, weight: str) -> _Spec:
        """This optimizer with the weight's own values instead of the defaults."""
        own = {one.parameter: one.scalar for one in self.specific if one.weight == weight}
        return self._with(own)

    def _with(self: _Spec, own: Mapping[str, Scalar]) -> _Spec:
        changed: dict[str, Any] = {}
        for name, scalar in own.items():
            held = getattr(self, name)
            changed[name] = scalar if isinstance(held, Scalar) else type(held)(scalar.value)
        return replace(self, **changed)

    def compounds(self, weight: str, dtype: DType) -> dict[str, Compound]:
        """The scalars of the update rule of a weight with element type `dtype`, by prefix."""
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

    # The text form, for pass options: `sgd learning_rate=0.1? momentum=0.9 w:momentum=0.5`.

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
        """Parses the text form; raises a PassError if it is not valid."""
        kind, *words = text.split() or [""]
        if kind not in KINDS:
            raise PassError(
                f"unknown optimizer {kind!r}", "optimizer", f"one of {', '.join(KINDS)}"
            )
        try:
            return _parse(KINDS[kind], words)
        except ValueError as error:
            raise PassError(str(error), f"optimizer {text!r}") from error

    def with_values_of(self: _Spec, other: OptimizerSpec) -> _Spec:
        """
        The values of `other` in the structure of this optimizer, which was compiled.

        Streamed scalars stay streamed, even if they are constant in `other`.
        """
        if type(other) is not type(self):
            raise PassError(
                f"a program compiled for {self.KIND} cannot take the values of {other.KIND}"
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
    Stochastic gradient descent; has a velocity if the momentum is streamed or not 0.

    `combined`: one state is accumulator and velocity (SGD1, PopART's default), else the velocity
    is a separate state (SGD2).
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
        """False with a weight decay: the initial velocity may depend on the weight."""
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
    the update (AdamW), else to the gradient (L2 regularization). `scaled_state`: the moments use
    the loss-scaled gradient.
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
            raise PassError(f"tf_variant requires an rms_prop mode, not {self.mode}")

    @property
    def has_velocity(self) -> bool:
        return not self.momentum.constant or self.momentum.value != 0

    def formulas(self) -> tuple[Formula, ...]:
        return adaptive(averages=self.mode != "ada_grad", velocity=self.has_velocity)


def _check_mode(mode: str, modes: tuple[str, ...]) -> None:
    if mode not in modes:
        raise PassError(f"unknown optimizer mode {mode!r}", hint=f"one of {', '.join(modes)}")


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
    """`text` as a value with the type of `default`."""
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
"""The variable that multiplies an automatic loss scale."""


LOSS_SCALE = "lossScaling_"


def loss_scale_variable(loss: DType) -> str:
    """The name of the streamed loss scale for a loss with this element type."""
    return f"{LOSS_SCALE}{loss.popart}"


def loss_scale_type(loss: DType, *, follows_gradients: bool) -> DType:
    """The element type of the loss scale: at least single precision if it is automatic."""
    return dtypes.BY_NAME["f32"] if follows_gradients and loss.numpy.itemsize < 4 else loss


def streamed_scalars(
    spec: OptimizerSpec, weights: Mapping[str, DType], loss: DType
) -> dict[str, Array]:
    """
    All scalar variables that the host writes, with their values.

    `weights` are the trained variables. The values are the initial ones, and for
    `compiled.with_values_of(replacement)`, the ones that a new optimizer writes.
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
