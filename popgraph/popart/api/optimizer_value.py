"""Hyper-parameters of PopART's optimizers: values, constness, per-weight overrides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from popgraph.builder.opset.arguments import typed
from popgraph.passes.optimizer_spec import Scalar
from popgraph.popart.api.logger import deprecated
from popgraph.popart.exceptions import popart_exception


@typed
class OptimizerValue:
    """
    A number that is baked into the program (`isConst`) or sent to it by the host.

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
    def scalar(self) -> Scalar:
        return Scalar(self._value, self._constant)

    def validate_replacement(self, new: OptimizerValue) -> None:
        """A constant must stay what it is, and what is none may not become one."""
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
    """One hyper-parameter: its default, and its values for particular weights."""

    default: OptimizerValue
    specifics: dict[str, OptimizerValue] = field(default_factory=dict)

    def getDefault(self) -> OptimizerValue:
        return self.default

    def get(self, id: str) -> OptimizerValue:
        return self.specifics.get(id, self.default)

    def hasSpecific(self, id: str | None = None) -> bool:
        return bool(self.specifics) if id is None else id in self.specifics

    def insertSpecific(self, id: str, value: OptimizerValue) -> None:
        """Gives one weight a value of its own, once."""
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
    """Puts something before the text of an error."""
    try:
        yield
    except popart_exception as error:
        raise kind(f"{before}{error.args[0]}") from None


@typed
@dataclass(init=False)
class ClipNormSettings:
    """The gradients of these weights together are shrunk to at most this norm."""

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
    The entries of an optimizer's dictionary, each a tuple `(number, constant?)`.

    Of a key that is not known, the refusal tells with its name.
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
