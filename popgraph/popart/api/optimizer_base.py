"""
The base of PopART's optimizers: named hyperparameters, global or for specific weights, their
checks, and the rules of replacement.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from popgraph.builder.opset.arguments import typed
from popgraph.builder.opset.enums import DataType
from popgraph.passes import optimizer_spec as ours
from popgraph.popart.api.logger import deprecated
from popgraph.popart.exceptions import (
    optimizer_replacement_error,
    popart_exception,
    popart_unsupported_exception,
)


@typed
class OptimizerValue:
    """
    A number that is constant in the program (`isConst`), or written by the host.

    `OptimizerValue(0.1)`, `OptimizerValue(0.1, False)` and `OptimizerValue((0.1, False))`.
    """

    def __init__(
        self,
        val: float | tuple[float, bool] | OptimizerValue = (0.0, False),
        isConst: bool | None = None,
    ) -> None:
        self._value: float
        self._constant: bool
        if isinstance(val, OptimizerValue):
            self._value, self._constant = val._value, val._constant
        elif isinstance(val, tuple):
            self._value, self._constant = float(val[0]), bool(val[1])
        else:
            self._value = float(val)
            self._constant = True if isConst is None else isConst

    def val(self) -> float:
        return self._value

    def isConst(self) -> bool:
        return self._constant

    @property
    def scalar(self) -> ours.Scalar:
        return ours.Scalar(self._value, self._constant)

    def validate_replacement(self, new: OptimizerValue) -> None:
        """A constant must keep its value, and a variable may not become a constant."""
        if self._constant != new._constant:
            raise popart_exception("Can not replace a constant value with a non constant value.")
        if self._constant and self._value != new._value:
            raise popart_exception("Values are constant but do not match.")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OptimizerValue):
            return NotImplemented
        return (self._value, self._constant) == (other._value, other._constant)

    def __hash__(self) -> int:
        return hash((self._value, self._constant))

    def __repr__(self) -> str:
        return f"OptimizerValue({self._value}, {self._constant})"


@typed
@dataclass
class OptimizerValueMap:
    """A hyperparameter: its default, and its values for specific weights."""

    default: OptimizerValue
    specifics: dict[str, OptimizerValue] = field(default_factory=dict)

    def getDefault(self) -> OptimizerValue:
        return self.default

    def get(self, id: str) -> OptimizerValue:
        return self.specifics.get(id, self.default)

    def hasSpecific(self, id: str | None = None) -> bool:
        return bool(self.specifics) if id is None else id in self.specifics

    def insertSpecific(self, id: str, value: OptimizerValue) -> None:
        """Sets the value for one weight, once."""
        if id in self.specifics:
            raise popart_exception(
                f"Attempt to insert specific value for optimization Tensor {id}failed as there is "
                f"already a specific value for {id} present. Bailing, in case this is an error."
            )
        self.specifics[id] = value

    def validate_replacement(self, new: OptimizerValueMap) -> None:
        with explained("Default value is not a valid replacement. "):
            self.default.validate_replacement(new.default)
        if len(self.specifics) != len(new.specifics):
            raise popart_exception(
                "Replacement OptimizerValueMap has a different number of specific tensors."
            )
        for id, value in self.specifics.items():
            if id not in new.specifics:
                raise popart_exception(
                    f"Could not find tensor {id} in replacement OptimizerValueMap."
                )
            with explained(f"OptimizerValue for tensor {id} is not a valid replacement."):
                value.validate_replacement(new.specifics[id])


@contextmanager
def explained(before: str, kind: type[popart_exception] = popart_exception) -> Iterator[None]:
    """Prefixes the message of an error."""
    try:
        yield
    except popart_exception as error:
        raise kind(f"{before}{error.args[0]}") from None


@typed
@dataclass(init=False)
class ClipNormSettings:
    """Clips the global norm of the gradients of these weights."""

    weightIds: list[str]
    maxNorm: float
    everything: bool

    def __init__(self, weightIds: list[str], maxNorm: float) -> None:
        deprecated(
            "Using deprecated constructor ClipNormSettings(const std::vector<TensorId> "
            "&weightIds_, float maxNorm_). The members 'weightIds' and 'maxNorm' have also been "
            "deprecated. These shall all be removed from a future release. Please use the static "
            "creation methods, 'clipWeights' and 'clipAllWeights' instead."
        )
        self.weightIds, self.maxNorm, self.everything = list(weightIds), maxNorm, False

    @classmethod
    def _made(cls, weightIds: list[str], maxNorm: float, *, everything: bool) -> ClipNormSettings:
        made = cls.__new__(cls)
        made.weightIds, made.maxNorm, made.everything = list(weightIds), maxNorm, everything
        return made

    @staticmethod
    def clipWeights(weightIds: list[str], maxNorm: float) -> ClipNormSettings:
        return ClipNormSettings._made(weightIds, maxNorm, everything=False)

    @staticmethod
    def clipAllWeights(maxNorm: float) -> ClipNormSettings:
        return ClipNormSettings._made([], maxNorm, everything=True)


def values_from_dict(
    values: Mapping[Any, object], known: Sequence[str], where: str, refusal: str
) -> dict[str, OptimizerValue]:
    """
    The entries of an optimizer's dictionary, tuples `(number, constant?)`.

    `refusal` is the message for an unknown key.
    """
    result = {}
    for key, value in values.items():
        if not isinstance(key, str):
            raise popart_exception(
                "A key in the optimizer map input must be a py::str (in "
                "getOptimizerValueDictionary)",
                where,
            )
        if key not in known:
            allowed = "".join(f"{one} " for one in known)
            raise popart_exception(f"{refusal.format(key)} are ( {allowed})", where)
        if isinstance(value, OptimizerValue):
            result[key] = value
        elif isinstance(value, tuple) and len(value) == 2:
            result[key] = OptimizerValue(value)
        else:
            raise popart_exception(
                "A value in the optimizer map must be a py::tuple (in getOptimizerValueDictionary)",
                where,
                f'write "{key}": (number, is it constant?)',
            )
    return result


@dataclass(frozen=True)
class Parameter:
    """A hyperparameter: PopART's name, ours, its default, and its constraints."""

    name: str
    ours: str
    default: float
    words: str
    positive: bool = False
    plural: str = ""
    """The name in replacement errors; by default, `words` with an s."""

    for_all: bool = False
    """Whether its default has no separate name, because it applies to all weights."""

    @property
    def default_key(self) -> str:
        return self.name if self.for_all else f"default{self.name[0].upper()}{self.name[1:]}"

    def check(self, value: OptimizerValue, kind: str) -> None:
        number = value.val()
        if self.positive and number <= 0:
            raise popart_exception(
                f"Non-positive {self.words} ({number:g}) in {kind} is not supported"
            )
        if number < 0:
            end = "." if self.name == "learningRate" else ""
            raise popart_exception(
                f"Negative {self.words} ({number:g}) in {kind}, bailing as this might be a user "
                f"error{end}"
            )

    @property
    def about(self) -> str:
        return self.plural or f"{self.words}s"


def values_of(name: str) -> Callable[[Optimizer], OptimizerValueMap]:
    """A method that returns the values of a parameter."""
    return lambda self: self._maps[name]


@typed
class Optimizer(ABC):
    """Named hyperparameters with defaults and values for specific weights."""

    KIND: ClassVar[str]
    PARAMETERS: ClassVar[tuple[Parameter, ...]]
    OLD_KEYS: ClassVar[tuple[str, ...]] = ()
    """Former parameter names, still accepted and listed as allowed."""

    def __init__(
        self,
        values: Mapping[Any, object],
        clip_norm_settings: Sequence[ClipNormSettings] = (),
    ) -> None:
        keys = [one.default_key for one in self.PARAMETERS]
        keys.insert(_FIRST, "lossScaling")
        refusal = f"Invalid {self.KIND} key, {{}}, the allowed keys"
        given = values_from_dict(values, [*keys, *self.OLD_KEYS], f"{self.KIND}()", refusal)
        self._maps = {
            one.name: OptimizerValueMap(given.get(one.default_key, OptimizerValue(one.default)))
            for one in self.PARAMETERS
        }
        self._loss_scaling = given.get("lossScaling", OptimizerValue(1.0))
        self._clip = tuple(clip_norm_settings)
        self._check()

    def _check(self) -> None:
        for one in self.PARAMETERS:
            self._check_value(one, self._maps[one.name].default)
        if self._loss_scaling.val() == 0:
            raise popart_exception("Loss scaling cannot be 0")

    def _check_value(self, parameter: Parameter, value: OptimizerValue) -> None:
        parameter.check(value, self.KIND)
        still = parameter.name == "learningRate" and value.isConst() and not value.val()
        if still and self._insists_on_learning():
            raise popart_exception(
                f"Constant, zero learning rate in {self.KIND}, "
                "bailing as this might be a user error."
            )

    def _insists_on_learning(self) -> bool:
        """Whether a learning rate that is always zero is rejected."""
        return True

    def insertSpecific(self, tensorId: str, values: Mapping[Any, object]) -> None:
        """Sets values of one weight; unnamed ones keep the defaults."""
        known = tuple(one.name for one in self.PARAMETERS)
        refusal = f"Invalid key {{}} in {self.KIND}::insertSpecific. Permitted keys"
        given = values_from_dict(values, known, f"{self.KIND}.insertSpecific()", refusal)
        for one in self.PARAMETERS:
            held = self._maps[one.name]
            value = given.get(one.name, held.default)
            self._check_value(one, value)
            held.insertSpecific(tensorId, value)

    def getLossScalingVal(self) -> float:
        return self._loss_scaling.val()

    learningRates = values_of("learningRate")
    weightDecays = values_of("weightDecay")

    def validate_replacement(self, new: Optimizer) -> None:
        """Rejects a replacement that the compiled program cannot switch to."""
        with explained("New optimizer is not a valid replacement. ", optimizer_replacement_error):
            self._validate_clips(new)
            if self.KIND != new.KIND:
                raise popart_exception(
                    f"Can not replace optimizer of type {self.KIND} with new optimizer of type "
                    f"{new.KIND}"
                )
            self._validate(new)
            if self._structure() != new._structure():
                raise popart_exception(
                    f"Can not replace an optimizer of type {self.KIND} with one of another mode."
                )

    def _validate_clips(self, new: Optimizer) -> None:
        if len(self._clip) != len(new._clip):
            raise popart_exception("Clip norm settings do not match.")
        for number, (own, other) in enumerate(zip(self._clip, new._clip, strict=True)):
            if own != other:
                raise popart_exception(f"Clip norm settings at index {number} do not match.")

    def _validate(self, new: Any) -> None:
        """Compares the parameters of this kind, in PopART's order."""
        with explained("Problem with loss scaling. "):
            self._loss_scaling.validate_replacement(new._loss_scaling)
        for one in self.PARAMETERS:
            with explained(f"Problem with {one.about}. "):
                self._maps[one.name].validate_replacement(new._maps[one.name])

    def _structure(self) -> tuple[object, ...]:
        """The non-numeric properties of the update rule."""
        return ()

    @abstractmethod
    def spec(self) -> ours.OptimizerSpec:
        """The optimizer as a compiler specification."""

    def _scalars(self) -> dict[str, Any]:
        scalars = {one.ours: self._maps[one.name].default.scalar for one in self._numeric()}
        return {**scalars, "loss_scaling": self._loss_scaling.scalar}

    def _numeric(self) -> tuple[Parameter, ...]:
        return tuple(one for one in self.PARAMETERS if one.ours)

    def _specifics(self) -> tuple[ours.Specific, ...]:
        return tuple(
            ours.Specific(weight, one.ours, value.scalar)
            for one in self._numeric()
            for weight, value in self._maps[one.name].specifics.items()
        )

    def _clips(self) -> tuple[ours.ClipNorm, ...]:
        return tuple(
            ours.ClipNorm(one.maxNorm, tuple(one.weightIds), of_updates=True) for one in self._clip
        )


def state_types(where: str, **types: DataType) -> dict[str, Any]:
    """The types of states by specification field; UNDEFINED is the weight's own type."""
    for name, type_ in types.items():
        if type_ not in _STATE_TYPES:
            raise popart_unsupported_exception(
                f"{name} = {type_.name} is not implemented", where, "FLOAT or FLOAT16"
            )
    return {name: _STATE_TYPES[type_] for name, type_ in types.items()}


_FIRST = 5
"""Number of parameters listed before the loss scale in messages."""

_STATE_TYPES = {DataType.UNDEFINED: ours.OF_WEIGHT, DataType.FLOAT: "", DataType.FLOAT16: "f16"}
"""PopART's type names -> ours; "" is f32 or wider."""
