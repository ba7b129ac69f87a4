"""Metrics of training and validation besides the loss: accuracy, top-k, F1, MAE, MSE, R²."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.errors import ModelError
from popgraph.support.names import Names, normalized


class Metric(Protocol):
    """
    A measure of the quality of predictions.

    It is computed from additive `counts`: an epoch's counts are the sum over its batches, so a
    metric has no state.
    """

    @property
    def name(self) -> str:
        """The name in results."""

    @property
    def larger_is_better(self) -> bool:
        """Whether larger values are better."""

    def counts(self, prediction: Array, target: Array) -> Array:
        """The contribution of a batch."""

    def value(self, counts: Array) -> float:
        """The metric of the summed counts."""


def _ratio(counts: Array) -> float:
    return float(counts[0] / counts[1]) if counts[1] else float("nan")


@dataclass(frozen=True)
class TopK:
    """The fraction of samples whose class is among the `k` highest scores."""

    k: int = 1
    larger_is_better: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return "accuracy" if self.k == 1 else f"top{self.k}"

    def counts(self, prediction: Array, target: Array) -> Array:
        scores, labels = _classes(self.name, prediction, target)
        own = np.take_along_axis(scores, labels[:, None], 1)
        better = (scores > own).sum(1)
        first = np.arange(scores.shape[1]) < labels[:, None]
        ties = ((scores == own) & first).sum(1)
        hits = (better + ties < self.k) & ~np.isnan(own[:, 0])
        return np.array([hits.sum(), len(hits)], np.float64)

    def value(self, counts: Array) -> float:
        return _ratio(counts)


@dataclass(frozen=True)
class BinaryAccuracy:
    """The fraction of correct binary predictions; scores from `threshold` up are positive."""

    threshold: float = 0.5
    name: ClassVar[str] = "binary_accuracy"
    larger_is_better: ClassVar[bool] = True

    def counts(self, prediction: Array, target: Array) -> Array:
        prediction, target = _alike(self.name, prediction, target)
        hits = (prediction >= self.threshold) == (target >= 0.5)
        return np.array([hits.sum(), hits.size], np.float64)

    def value(self, counts: Array) -> float:
        return _ratio(counts)


@dataclass(frozen=True)
class F1:
    """
    The harmonic mean of precision and recall, averaged over the classes (`macro`).

    Classes that are neither predicted nor present are left out, as in scikit-learn.
    """

    name: ClassVar[str] = "f1"
    larger_is_better: ClassVar[bool] = True

    def counts(self, prediction: Array, target: Array) -> Array:
        """Hits, predictions and samples of each class."""
        scores, labels = _classes(self.name, prediction, target)
        classes, chosen = scores.shape[1], scores.argmax(1)
        hits = np.bincount(labels[chosen == labels], minlength=classes)
        found = np.bincount(chosen, minlength=classes)
        there = np.bincount(labels, minlength=classes)
        return np.array([hits, found, there], np.float64)

    def value(self, counts: Array) -> float:
        hits, both = counts[0], counts[1] + counts[2]
        return float(np.mean(2 * hits[both > 0] / both[both > 0])) if both.any() else float("nan")


@dataclass(frozen=True)
class _Distance:
    """The mean over all elements of a function of `prediction - target`."""

    name: str
    of: Callable[[Array], Array]
    larger_is_better: ClassVar[bool] = False

    def counts(self, prediction: Array, target: Array) -> Array:
        prediction, target = _alike(self.name, prediction, target)
        difference = prediction.astype(np.float64) - target.astype(np.float64)
        return np.array([self.of(difference).sum(), difference.size], np.float64)

    def value(self, counts: Array) -> float:
        return _ratio(counts)


MAE = _Distance("mae", np.abs)
"""Mean absolute error."""
MSE = _Distance("mse", np.square)
"""Mean squared error."""


@dataclass(frozen=True)
class R2:
    """The coefficient of determination, averaged over the outputs, as in scikit-learn."""

    name: ClassVar[str] = "r2"
    larger_is_better: ClassVar[bool] = True

    def counts(self, prediction: Array, target: Array) -> Array:
        """Squared errors, sum and sum of squares of each output, and the number of samples."""
        prediction, target = _alike(self.name, prediction, target)
        rows = len(target)
        wanted = target.reshape(rows, -1).astype(np.float64)
        errors = wanted - prediction.reshape(rows, -1)
        sums = (errors**2).sum(0), wanted.sum(0), (wanted**2).sum(0)
        return np.array([*sums, np.full(len(sums[0]), rows)], np.float64)

    def value(self, counts: Array) -> float:
        errors, total, squares, samples = counts
        spread = squares - total**2 / np.maximum(samples, 1)
        # Like scikit-learn: a constant target counts 1 if it is met exactly, else 0.
        constant = spread <= 1e-12 * squares
        ratio = np.divide(errors, spread, out=np.ones_like(errors), where=~constant)
        ratio[constant & (errors == 0)] = 0.0
        return float(np.mean(1 - ratio))


@dataclass(frozen=True)
class _OfBatches:
    """A user's function: its mean over batches, weighted by samples."""

    function: Callable[[Array, Array], Any]
    larger_is_better: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return str(getattr(self.function, "__name__", "metric"))

    def counts(self, prediction: Array, target: Array) -> Array:
        samples = len(target)
        return np.array([float(self.function(prediction, target)) * samples, samples], np.float64)

    def value(self, counts: Array) -> float:
        return _ratio(counts)


NAMED: dict[str, Metric] = {
    "accuracy": TopK(),
    "top3": TopK(3),
    "top5": TopK(5),
    "binary_accuracy": BinaryAccuracy(),
    "f1": F1(),
    "mae": MAE,
    "mse": MSE,
    "r2": R2(),
}

METRIC_NAMES = Names(
    "metric",
    {
        **dict.fromkeys(NAMED, ""),
        "accuracy": "acc categorical_accuracy sparse_categorical_accuracy",
        "top5": "top_k_categorical_accuracy sparse_top_k_categorical_accuracy",
        "f1": "f1_score",
        "mae": "l1 mean_absolute_error",
        "mse": "mean_squared_error",
        "r2": "r2_score",
    },
)

AnyMetric: TypeAlias = "str | Metric | Callable[[Array, Array], Any]"


def metrics_of(given: Iterable[AnyMetric] | AnyMetric) -> tuple[Metric, ...]:
    """Resolves metrics: names, objects, or functions of prediction and target."""
    many = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    found = tuple(map(_metric, many))
    names = [one.name for one in found]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ModelError(f"two metrics have the name {twice[0]!r}", "metrics")
    return found


def _metric(given: Any) -> Metric:
    if isinstance(given, str):
        return _by_name(given)
    if hasattr(given, "counts") and hasattr(given, "value"):
        found: Metric = given
        return found
    if callable(given):
        return _OfBatches(given)
    raise ModelError(f"{given!r} is not a metric", "metrics", METRIC_NAMES.listed)


def _by_name(name: str) -> Metric:
    known = METRIC_NAMES.find(name)
    if known is not None:
        return NAMED[known]
    start, count = normalized(name)[:3], normalized(name)[3:]
    if start == "top" and count.isdecimal() and int(count):
        return TopK(int(count))
    what, hint = METRIC_NAMES.unknown(name)
    raise ModelError(what, "metrics", hint)


def _classes(name: str, prediction: Array, target: Array) -> tuple[Array, Array]:
    """
    Scores as rows (classes on the last axis or axis 1), and the label of each row.

    One-hot labels become class numbers. Samples without a class are left out: losses ignore them,
    too (label -1, for example).
    """
    if prediction.ndim > 1 and target.shape == prediction.shape:
        target = target.argmax(-1)
    if not np.issubdtype(target.dtype, np.integer):
        raise _unfit(name, prediction, target)
    if prediction.shape[:-1] == target.shape:
        scores = prediction.reshape(-1, prediction.shape[-1])
    elif prediction.ndim > 2 and (prediction.shape[0], *prediction.shape[2:]) == target.shape:
        scores = np.moveaxis(prediction, 1, -1).reshape(-1, prediction.shape[1])
    else:
        raise _unfit(name, prediction, target)
    labels = target.reshape(-1).astype(np.int64)
    legal = (labels >= 0) & (labels < scores.shape[1])
    return scores[legal], labels[legal]


def _alike(name: str, prediction: Array, target: Array) -> tuple[Array, Array]:
    if prediction.size != target.size or len(prediction) != len(target):
        raise _unfit(name, prediction, target)
    return prediction, target.reshape(prediction.shape)


def _unfit(name: str, prediction: Array, target: Array) -> ModelError:
    return ModelError(
        f"{name} does not fit predictions {prediction.dtype}{list(prediction.shape)} and targets "
        f"{target.dtype}{list(target.shape)}",
        "metrics",
        "accuracy, top-k and f1 take class scores and integer labels; "
        "mae, mse and r2 take equal shapes",
    )
