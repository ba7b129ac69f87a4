"""Tests Keras' names for the arguments of `fit`, `evaluate` and `predict`, and weighted losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from popgraph.builder.pgraph.check.losses import LOSSES, ONE_HOT
from popgraph.support.arrays import Array
from popgraph.training.trainer import Trainer

NET = """
graph net(x: f32[N, 4]) -> (y: f32[N, 3]) {
    weight w: f32[4, 3] = glorot_uniform(seed=1)
    y = END
}
"""
TOKENS = """
graph net(x: f32[N, 5, 4]) -> (y: f32[N, 5, 3]) {
    weight w: f32[4, 3] = glorot_uniform(seed=1)
    y = x @ w
}
"""
RNG = np.random.default_rng(3)
X = RNG.normal(size=(23, 4)).astype(np.float32)
LABELS = RNG.integers(0, 3, 23)
ONE_HOTS = np.eye(3, dtype=np.float32)[LABELS]
ANSWERS = RNG.random((23, 3)).astype(np.float32)
WEIGHTS = RNG.random(23).astype(np.float32) * 2
CLASS_WEIGHT = {0: 0.5, 2: 3.0}
OF_CLASSES = np.array([0.5, 1.0, 3.0], np.float32)[LABELS]

ENDS = {"nll": "Softmax(x @ w)", "nll_loss": "LogSoftmax(x @ w)", "bce": "Sigmoid(x @ w)"}
ENDS["categorical_crossentropy"] = ENDS["nll"]


def log_softmax(z: Array) -> Array:
    shifted = z - z.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def softplus(z: Array) -> Array:
    return np.logaddexp(0, z)


def huber(d: Array) -> Array:
    return np.asarray(np.where(np.abs(d) <= 1, d * d / 2, np.abs(d) - 0.5))


def of_class(z: Array, rows: Array) -> Array:
    return np.asarray(-log_softmax(z)[np.arange(len(z)), LABELS[rows]])


ELEMENTS: Mapping[str, Callable[[Array, Array], Array]] = {
    **dict.fromkeys(("cross_entropy", "nll", "nll_loss", "categorical_crossentropy"), of_class),
    **dict.fromkeys(
        ("bce", "bce_with_logits"),
        lambda z, rows: (softplus(z) - z * ANSWERS[rows]).mean(1),
    ),
    "mse": lambda z, rows: ((z - ANSWERS[rows]) ** 2).mean(1),
    "l1": lambda z, rows: np.abs(z - ANSWERS[rows]).mean(1),
    "huber": lambda z, rows: huber(z - ANSWERS[rows]).mean(1),
}
"""The loss of each sample, of `z = x @ w`."""


def target_of(name: str) -> Array:
    if LOSSES[name].is_of_classes:
        return ONE_HOTS if LOSSES[name].target == ONE_HOT else LABELS
    return ANSWERS


def trainer_of(name: str, **options: Any) -> Trainer:
    return Trainer(NET.replace("END", ENDS.get(name, "x @ w")), name, "SGD(0.5)", **options)


def reference(name: str, weights: Array, batch: int) -> tuple[list[float], Array]:
    """The weighted losses of an epoch of SGD steps, by differences in f64, and the last weight."""
    w, losses = initial(), list[float]()
    for start in range(0, len(X), batch):
        rows = np.arange(start, min(start + batch, len(X)))

        def loss(w: Array, rows: Array = rows) -> float:
            each = ELEMENTS[name](X[rows].astype(np.float64) @ w, rows)
            return float((each * weights[rows]).sum() / len(rows))

        losses.append(loss(w))
        w = w - 0.5 * slope(loss, w)
    return losses, w


def initial() -> Array:
    trainer = trainer_of("cross_entropy")
    trainer.prepare(X, LABELS)
    return np.linalg.lstsq(X, trainer.predict(X), rcond=None)[0].astype(np.float64)  # type: ignore[arg-type]


def slope(loss: Callable[[Array], float], w: Array) -> Array:
    found = np.zeros_like(w)
    for at in np.ndindex(*w.shape):
        step = np.zeros_like(w)
        step[at] = 1e-5
        found[at] = (loss(w + step) - loss(w - step)) / 2e-5
    return found


def check(trainer: Trainer, name: str, weights: Array, batch: int = 8) -> None:
    losses, w = reference(name, weights, batch)
    found = [row["loss"] for row in trainer.history.steps]
    assert found == pytest.approx(losses, rel=2e-4)
    np.testing.assert_allclose(trainer.weights()["w"], w, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ELEMENTS)
def test_sample_weights_multiply_the_loss_of_each_sample(name: str) -> None:
    """23 samples in batches of 8: the last one has 7."""
    trainer = trainer_of(name, backend="reference")
    trainer.fit(x=X, y=target_of(name), sample_weight=WEIGHTS, batch_size=8, shuffle=False)
    check(trainer, name, WEIGHTS)


@pytest.mark.parametrize("name", ["cross_entropy", "categorical_crossentropy"])
@pytest.mark.parametrize("accumulate", [None, 4])
def test_class_weights_are_weights_of_samples(name: str, accumulate: int | None) -> None:
    """With 4 micro-batches of 2 rows, the last one of the epoch has a single row."""
    trainer = trainer_of(name, accumulate=accumulate)
    data = (X, target_of(name))
    trainer.fit(*data, class_weight=CLASS_WEIGHT, batch_size=8, shuffle=False)
    check(trainer, name, OF_CLASSES)


def test_weights_of_classes_and_samples_are_multiplied() -> None:
    trainer = trainer_of("nll", accumulate=2)
    weights = {"class_weight": CLASS_WEIGHT, "sample_weight": WEIGHTS}
    trainer.fit(X, LABELS, **weights, batch=8, shuffle=False)
    check(trainer, "nll", WEIGHTS * OF_CLASSES)
