"""Tests Keras' names for the arguments of `fit`, `evaluate` and `predict`, and weighted losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from popgraph.builder.pgraph.check.loss_table import LOSSES, ONE_HOT
from popgraph.support.arrays import Array
from popgraph.support.errors import PopgraphError
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
    if LOSSES[name].takes_classes:
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


def test_tokens_take_weights_of_samples_or_of_tokens() -> None:
    x = RNG.normal(size=(7, 5, 4)).astype(np.float32)
    labels = RNG.integers(0, 3, (7, 5))
    for weights in (RNG.random(7), RNG.random((7, 5))):
        trainer = Trainer(TOKENS, "cross_entropy", "SGD(0.5)", backend="reference")
        trainer.prepare(x, labels)
        logits = np.asarray(trainer.predict(x), np.float64)
        each = -np.take_along_axis(log_softmax(logits), labels[..., None], -1)[..., 0]
        wide = weights if weights.ndim == 2 else weights[:, None]
        trainer.fit(x, labels, sample_weight=weights, batch=7)
        assert trainer.history["loss"][0] == pytest.approx((each * wide).mean(), rel=1e-5)


def test_weights_may_come_later_and_need_not_stay() -> None:
    """The step is compiled again; weights, momentum and step count continue."""
    settings = {"batch_size": 8, "shuffle": False}
    trainers = [Trainer(NET.replace("END", "x @ w"), "cross_entropy", "Adam(0.1)") for _ in "ab"]
    for trainer, first in zip(trainers, (None, np.ones(23)), strict=True):
        trainer.fit(X, LABELS, **settings, sample_weight=first)
        trainer.fit(X, LABELS, **settings, sample_weight=WEIGHTS)
        trainer.fit(X, LABELS, **settings)
    one, other = (np.asarray(trainer.weights()["w"]) for trainer in trainers)
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert [row["step"] for row in trainers[0].history.steps] == list(range(1, 10))


def test_an_evaluation_follows_the_step() -> None:
    trainer, other = (trainer_of("nll", metrics="accuracy", backend="reference") for _ in "ab")
    plain = trainer.evaluate(X, LABELS)
    assert plain == pytest.approx(other.evaluate(X, LABELS, sample_weight=np.ones(23)), rel=1e-6)
    weighed = trainer.evaluate(X, LABELS, sample_weight=WEIGHTS)
    assert weighed == other.evaluate(X, LABELS, sample_weight=WEIGHTS)
    assert weighed["loss"] != plain["loss"] and trainer.check(X, LABELS).loss > 0


def test_weights_are_in_batches_of_streams_and_in_validation_data() -> None:
    batches = [(X[at : at + 8], LABELS[at : at + 8], WEIGHTS[at : at + 8]) for at in (0, 8, 16)]
    trainer, other = (trainer_of("cross_entropy", backend="reference") for _ in "ab")
    held_out = (X, LABELS, WEIGHTS)
    trainer.fit(batches, validation_data=held_out)
    check(trainer, "cross_entropy", WEIGHTS)
    other.fit({"x": X, "labels": LABELS, "sample_weight": WEIGHTS}, batch=8, shuffle=False)
    np.testing.assert_array_equal(trainer.weights()["w"], other.weights()["w"])
    expected = other.evaluate(X, LABELS, sample_weight=WEIGHTS)["loss"]
    assert trainer.history["val_loss"] == pytest.approx([expected], rel=1e-6)
    plain = ELEMENTS["cross_entropy"](X @ np.asarray(other.weights()["w"]), np.arange(23)).mean()
    assert other.evaluate(X, LABELS)["loss"] == pytest.approx(plain, rel=1e-5)


def test_validation_split_takes_the_last_samples_and_class_weight_leaves_them() -> None:
    trainer, other = (trainer_of("cross_entropy", backend="reference") for _ in "ab")
    trainer.fit(X, LABELS, validation_split=0.2, class_weight=CLASS_WEIGHT, shuffle=False)
    kept = 18
    other.fit(
        *(X[:kept], LABELS[:kept]),
        validation_data=(X[kept:], LABELS[kept:]),
        sample_weight=OF_CLASSES[:kept],
        shuffle=False,
    )
    for name in ("loss", "val_loss"):
        assert trainer.history[name] == other.history[name]


@pytest.mark.parametrize("kind", ["arrays", "list", "generator"])
def test_steps_per_epoch_continue_in_the_data(kind: str) -> None:
    """23 samples are 3 batches; two epochs of 2 steps reach the first batch of the next round."""
    batches = [(X[at : at + 8], LABELS[at : at + 8]) for at in (0, 8, 16)]
    data = {"arrays": (X, LABELS), "list": batches, "generator": iter([*batches, batches[0]])}[kind]
    trainer, other = (trainer_of("cross_entropy", backend="reference") for _ in "ab")
    settings = {"batch": 8, "shuffle": False}
    trainer.fit(data, epochs=2, steps_per_epoch=2, **settings)
    other.fit(X, LABELS, steps=4, epochs=2, **settings)
    losses, expected = ([row["loss"] for row in one.history.steps] for one in (trainer, other))
    assert losses == pytest.approx(expected, rel=1e-6)
    assert [row["epoch"] for row in trainer.history.steps] == [1, 1, 2, 2]


def test_initial_epoch_and_the_form_of_the_history(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = trainer_of("cross_entropy", metrics="accuracy", backend="reference")
    history = trainer.fit(X, LABELS, epochs=5, initial_epoch=3, verbose=2, validation_split=0.5)
    assert history.epoch == [3, 4]
    assert [*history.history] == ["loss", "accuracy", "val_loss", "val_accuracy"]
    assert history.history["val_loss"] == history["val_loss"]
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("Epoch 4 - 0.") and "val_accuracy: " in second


def test_several_inputs_come_as_a_list_or_a_dict() -> None:
    text = "graph net(a: f32[N, 4], b: f32[N, 4]) -> (y: f32[N, 3]) {\n"
    text += "    weight w: f32[4, 3] = glorot_uniform(seed=1)\n    y = (a + b) @ w\n}\n"
    losses = []
    for x in ([X, X], {"b": X, "a": X}):
        trainer = Trainer(text, "cross_entropy", "SGD(0.5)", backend="reference")
        losses += trainer.fit(x, LABELS, sample_weight=WEIGHTS)["loss"]
    assert losses[0] == losses[1]


def test_summary_counts_weights(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = trainer_of("cross_entropy", backend="reference")
    trainer.summary()
    assert "w       [4, 3]  12\n12 values\n" in capsys.readouterr().out
    trainer.prepare(X, LABELS)
    lines: list[str] = []
    trainer.summary(print_fn=lines.append)
    assert lines[0].endswith("w       [4, 3]  12      trained\n12 values: 12 trained")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch_size": 8, "batch": 8}, "fit has batch and batch_size, which are the same"),
        ({"y": LABELS, "x": X}, "fit has data and x, which are the same"),
        ({"epochs": 2, "initial_epoch": 2}, "no epoch is left: epochs=2 is the last one"),
        ({"initial_epoch": -1}, "initial_epoch must be an integer of at least 0"),
        ({"steps_per_epoch": 0}, "steps_per_epoch must be a positive integer, not 0"),
        ({"validation_steps": 3}, "validation uses all of its data\n  at: validation_steps"),
        ({"validation_freq": 2}, "validation runs after every epoch"),
        ({"validation_split": 1.0}, "leaves 0 to train on"),
        ({"verbose": 3}, "verbose must be 0, 1, 2 or 'auto'"),
        ({"sample_weight": np.ones(5)}, "there are 5 weights for 23 samples"),
        ({"class_weight": [1.0, 2.0]}, "class_weight maps class numbers to weights"),
        ({"workers": 2}, "fit has no argument 'workers'"),
    ],
)
def test_what_has_no_meaning_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises((PopgraphError, TypeError)) as caught:
        trainer_of("cross_entropy", backend="reference").fit((X, LABELS), **given)
    assert message in str(caught.value)


def test_weights_require_a_loss_that_takes_them() -> None:
    trainer = Trainer(
        NET.replace("END", "Softmax(x @ w)"),
        "nll(y, labels, sample_weights=own) + 0.01 * ReduceSum(w * w, keepdims=0)",
        "SGD(0.5)",
        backend="reference",
    )
    data = {"x": X, "labels": LABELS}
    with pytest.raises(PopgraphError, match="sample_weight requires a named loss"):
        trainer.fit(data, sample_weight=WEIGHTS)
    with pytest.raises(PopgraphError, match="class_weight requires a named loss"):
        trainer.fit(data, class_weight=CLASS_WEIGHT)
    trainer.fit({**data, "own": WEIGHTS}, batch=23)
    with pytest.raises(PopgraphError, match="'class_weights' and 'sample_weights' together"):
        trainer_of("nll", class_weights=CLASS_WEIGHT).fit(X, LABELS, sample_weight=WEIGHTS)
    with pytest.raises(PopgraphError, match=r"f32\[N, 2\] do not fit a loss with 1 axes"):
        trainer_of("nll").fit(X, LABELS, sample_weight=np.ones((23, 2), np.float32))


def test_evaluate_and_predict_take_keras_names() -> None:
    trainer = trainer_of("cross_entropy", backend="reference")
    trainer.prepare(X, LABELS)
    options = {"batch_size": 8, "verbose": 0}
    assert trainer.evaluate(x=X, y=LABELS, return_dict=True, **options) == trainer.evaluate(
        (X, LABELS), batch=8
    )
    np.testing.assert_array_equal(trainer.predict(x=X, **options), trainer.predict(X))
    with pytest.raises(PopgraphError, match="return_dict=False: the result is a dict"):
        trainer.evaluate(X, LABELS, return_dict=False)
    with pytest.raises(PopgraphError, match="predict does not take steps=1"):
        trainer.predict(X, steps=1)


def test_class_weights_of_answers_and_a_validation_batch() -> None:
    """A target of [N, 1] has the classes 0 and 1."""
    text = NET.replace("[N, 3]", "[N, 1]").replace("[4, 3]", "[4, 1]").replace("END", "x @ w")
    trainer = Trainer(text, "bce_with_logits", "SGD(0.5)", backend="reference")
    answers = (LABELS > 0).astype(np.float32)[:, None]
    trainer.prepare(X, answers)
    z = np.asarray(trainer.predict(X), np.float64)
    trainer.fit(X, answers, class_weight={1: 3.0}, batch=23, validation_data=(X, answers))
    each = softplus(z) - z * answers
    assert trainer.history["loss"][0] == pytest.approx((each * (1 + 2 * answers)).mean(), rel=1e-5)
    expected = trainer.history["val_loss"]
    found = trainer.evaluate(X, answers)["loss"]
    trainer.fit(X, answers, validation_data=(X, answers), validation_batch_size=5)
    assert expected == [pytest.approx(found)] and len(trainer.history["val_loss"]) == 2
    with pytest.raises(PopgraphError, match="class_weight needs one class for each sample"):
        trainer_of("mse", backend="reference").fit(X, ANSWERS, class_weight={1: 3.0})
    with pytest.raises(PopgraphError, match="batch_size must be an integer"):
        trainer.fit(X, answers, batch_size="8")
