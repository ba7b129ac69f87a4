"""Keras' arguments of `fit`, `evaluate` and `predict`, translated to ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

from popgraph.builder.pgraph.check.loss_table import CLASS_NUMBERS, ONE_HOT, Loss
from popgraph.support.arrays import Array
from popgraph.support.errors import ModelError, RunError
from popgraph.training.samples import SAMPLE_WEIGHT, Batch, Data, count_rows


class PredictNames(TypedDict, total=False):
    """Keras' names for the arguments of `predict`."""

    x: Data
    batch_size: int | None
    verbose: int | str
    """Accepted; nothing is printed."""
    steps: None
    callbacks: None


class EvaluateNames(PredictNames, total=False):
    """Keras' names for the arguments of `evaluate`."""

    y: Data
    sample_weight: Data
    return_dict: bool
    """True, as the result is always a dict."""


class FitNames(TypedDict, total=False):
    """Keras' names for the arguments of `fit`."""

    x: Data
    y: Data
    batch_size: int | None
    verbose: int | str
    """1, 2 or "auto" print a line for each epoch."""
    validation_split: float
    """Fraction of the samples, from their end, that is held out."""
    validation_data: Data
    """Overrides `validation_split`."""
    validation_batch_size: int | None
    class_weight: Mapping[int, float] | None
    """Weights of samples by their class, in training only; other classes have weight 1."""
    sample_weight: Data
    """One weight for each sample."""
    initial_epoch: int
    """Number of epochs that count as done; `epochs` is then the number of the last one."""
    steps_per_epoch: int | None
    """Batches in an epoch; the next epoch continues with the following batches."""
    validation_steps: None
    validation_freq: int


_REFUSED: Mapping[str, tuple[tuple[object, ...], str, str]] = {
    "steps": ((None,), "all of the data are used", "pass fewer samples"),
    "callbacks": ((None, (), []), "callbacks run during fit only", "pass them to fit"),
    "validation_steps": (
        (None,),
        "validation uses all of its data",
        "pass fewer samples as validation",
    ),
    "validation_freq": ((1,), "validation runs after every epoch", "leave it out"),
    "return_dict": ((True,), "the result is a dict", "result['loss'] is the loss"),
}
"""Arguments with a single meaning here: accepted values, reason, and advice."""


@dataclass(frozen=True)
class Renamed:
    """The arguments of a call under Keras' names."""

    function: str
    given: Mapping[str, Any]

    def __post_init__(self) -> None:
        """RunError for a value that has no meaning here."""
        for name in self.given.keys() & _REFUSED.keys():
            value, (accepted, why, hint) = self.given[name], _REFUSED[name]
            if not any(value is one or value == one for one in accepted):
                raise RunError(f"{self.function} does not take {name}={value!r}: {why}", name, hint)

    def data(self, data: Data, more: tuple[Data, ...]) -> tuple[Data, tuple[Data, ...]]:
        """The data, which may be passed as `x` and `y`."""
        found = self.one("data", data, "x")
        return found, (*more, self.given["y"]) if self.given.get("y") is not None else more

    def one(self, name: str, value: Any, theirs: str) -> Any:
        """An argument by our name or theirs; RunError if both are given."""
        other = self.positive(theirs) if theirs == "batch_size" else self.given.get(theirs)
        if value is not None and other is not None:
            raise RunError(
                f"{self.function} has {name} and {theirs}, which are the same",
                name,
                f"leave out {theirs}",
            )
        return value if other is None else other

    def positive(self, name: str) -> int | None:
        """A positive integer, if it is given."""
        value = self.given.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise RunError(f"{name} must be an integer, not {value!r}", name)
        if value is not None and value < 1:
            raise RunError(f"{name} must be a positive integer, not {value}", name)
        return value

    @property
    def is_verbose(self) -> bool:
        verbose = self.given.get("verbose", 0)
        if verbose not in (0, 1, 2, "auto"):
            raise RunError(f"verbose must be 0, 1, 2 or 'auto', not {verbose!r}", "verbose")
        return bool(verbose)

    @property
    def first_epoch(self) -> int | None:
        """Epochs that count as done before this call."""
        first = self.given.get("initial_epoch")
        if first is not None and (not isinstance(first, int) or first < 0):
            raise RunError(
                f"initial_epoch must be an integer of at least 0, not {first!r}", "initial_epoch"
            )
        return first

    def epochs(self, epochs: int | None) -> int | None:
        """The number of epochs to train."""
        first = self.first_epoch
        if not first or epochs is None:
            return epochs
        if epochs <= first:
            raise RunError(
                f"no epoch is left: epochs={epochs} is the last one, and initial_epoch={first} "
                "are done",
                "epochs",
                f"epochs={first + 1} for one more, or leave out initial_epoch",
            )
        return epochs - first


def class_weighting(
    loss: Loss | None, inputs: frozenset[str], weights: object
) -> Callable[[Batch], Batch]:
    """
    The function that multiplies the weights of a batch's samples by those of their classes.

    `inputs` are those of the model; the other array of a batch is the target.
    """
    if loss is None or not loss.elements:
        raise ModelError(
            "class_weight requires a named loss",
            "class_weight",
            "in an expression, weigh samples: 'nll(y, labels, sample_weights=w) + ...'",
        )
    if not isinstance(weights, Mapping) or not all(
        isinstance(number, int | np.integer) and isinstance(weight, int | float | np.number)
        for number, weight in weights.items()
    ):
        raise ModelError(
            f"class_weight maps class numbers to weights, not {weights!r}",
            "class_weight",
            "{0: 1.0, 1: 2.5}",
        )
    kind = loss.target

    def weigh(batch: Batch) -> Batch:
        rest = [name for name in batch if name not in inputs and name != SAMPLE_WEIGHT]
        if len(rest) != 1:
            return batch  # The check of the data reports the missing target.
        classes = _classes(batch[rest[0]], kind)
        own = np.ones(classes.shape, np.float32)
        for number, weight in weights.items():
            own[classes == number] = weight
        return {**batch, SAMPLE_WEIGHT: _product(own, batch.get(SAMPLE_WEIGHT))}

    return weigh


def _classes(target: Array, kind: str) -> Array:
    """The class of each sample, or of each of its elements."""
    if kind == CLASS_NUMBERS:
        return target
    if kind == ONE_HOT:
        return np.asarray(target.argmax(-1))
    if target.ndim > 1 and target.size != len(target):
        raise ModelError(
            f"class_weight needs one class for each sample, not a target of {target.shape[1:]}",
            "class_weight",
            "sample_weight",
        )
    return np.rint(target.reshape(len(target))).astype(np.int64)


def _product(own: Array, given: Array | None) -> Array:
    """Weights of classes and samples, which may have fewer axes, multiplied."""
    if given is None:
        return own
    axes = max(own.ndim, given.ndim)
    wide = [one.reshape(one.shape + (1,) * (axes - one.ndim)) for one in (own, given)]
    return np.asarray(wide[0] * wide[1], np.float32)


def with_ones(shape: tuple[int, ...]) -> Callable[[Batch], Batch]:
    """The function that gives samples without weights the weight 1, as arrays of [N, *shape]."""

    def fill(batch: Batch) -> Batch:
        if SAMPLE_WEIGHT in batch:
            return batch
        return {**batch, SAMPLE_WEIGHT: np.ones((count_rows(batch), *shape), np.float32)}

    return fill
