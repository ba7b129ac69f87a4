"""Tests steps on batches of varying row counts: the second count compiles an open program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import popgraph
from popgraph import Trainer
from popgraph.support.arrays import Array

MODELS = {
    "mlp": """
graph mlp(x: f32[N, 20], label: i64[N]) -> loss {
    weight w: f32[20, 24] = glorot_uniform
    weight b: f32[24] = zeros
    weight v: f32[24, 5] = glorot_uniform
    loss = SoftmaxCrossEntropyLoss(Relu(x @ w + b) @ v, label)
}
""",
    "convolutions": """
graph convolutions(x: f32[N, 2, 8, 8], label: i64[N]) -> loss {
    weight w: f32[8, 2, 3, 3] = he_normal
    weight b: f32[8] = zeros
    weight scale: f32[8] = ones
    weight shift: f32[8] = zeros
    weight mean: f32[8] = zeros
    weight spread: f32[8] = ones
    weight deep: f32[8, 1, 3, 3] = he_normal
    weight v: f32[128, 5] = glorot_uniform
    h = MaxPool(Relu(Conv(x, w, b, pads=[1, 1, 1, 1])), kernel_shape=[2, 2], strides=[2, 2])
    (n, _, _) = BatchNormalization(h, scale, shift, mean, spread, training_mode=1)
    d = Conv(n, deep, pads=[1, 1, 1, 1], group=8)
    loss = SoftmaxCrossEntropyLoss(Flatten(Relu(d)) @ v, label)
}
""",
    "attention": """
graph attention(x: f32[N, 6, 16], label: i64[N]) -> loss {
    weight w: f32[16, 48] = glorot_uniform
    weight scale: f32[16] = ones
    weight shift: f32[16] = zeros
    weight head: f32[16, 5] = glorot_uniform
    (q, k, v) = Split(LayerNormalization(x, scale, shift) @ w, axis=-1, num_outputs=3)
    mixed = Softmax(q @ Transpose(k, perm=[0, 2, 1])) @ v
    loss = SoftmaxCrossEntropyLoss(ReduceMean(x + mixed, [1], keepdims=0) @ head, label)
}
""",
    "words": """
graph words(x: i64[N, 7], label: i64[N]) -> loss {
    weight table: f32[11, 16] = glorot_uniform
    weight head: f32[16, 5] = glorot_uniform
    loss = SoftmaxCrossEntropyLoss(ReduceMean(Gather(table, x), [1], keepdims=0) @ head, label)
}
""",
}
ROWS = {"mlp": (20,), "convolutions": (2, 8, 8), "attention": (6, 16), "words": (7,)}
BATCHES = (16, 7, 16, 3, 11, 2, 13)
OPTIONS: dict[str, dict[str, Any]] = {
    "Adam": {"optimizer": "Adam(0.01)"},
    "clipped": {"clip": 0.1},
    "two threads": {"threads": 2},
}


def batches(name: str) -> list[dict[str, Array]]:
    generator = np.random.default_rng(0)
    shape = ROWS[name]
    return [
        {
            "x": generator.integers(0, 11, (rows, *shape))
            if name == "words"
            else generator.standard_normal((rows, *shape)).astype(np.float32),
            "label": generator.integers(0, 5, rows),
        }
        for rows in BATCHES
    ]


def trained(name: str, **options: Any) -> tuple[Array, Mapping[str, Array], Trainer]:
    """The losses of one step on each batch, and the weights after them."""
    trainer = Trainer(MODELS[name], "loss", **{"optimizer": "SGD(0.1)", **options})
    history = trainer.fit(batches(name), epochs=1)
    return np.array([row["loss"] for row in history.steps]), trainer.weights(), trainer


def bounds(trainer: Trainer) -> list[dict[str, int]]:
    """The largest number of rows of each program of a training."""
    return [dict(one.bounds) for one in trainer.programs]


@pytest.mark.budget(30)
@pytest.mark.parametrize(
    ("name", "chosen"), [*((name, "SGD") for name in MODELS), *(("mlp", one) for one in OPTIONS)]
)
def test_steps_on_any_row_count_equal_the_reference(name: str, chosen: str) -> None:
    options = OPTIONS.get(chosen, {})
    losses, weights, trainer = trained(name, **options)
    assert bounds(trainer) == [{}, {"N": 16}], "one for the first batch, and one for all others"
    rest = {key: value for key, value in options.items() if key != "threads"}
    expected, theirs, _ = trained(name, backend="reference", **rest)
    np.testing.assert_allclose(losses, expected, 1e-4, 1e-5)
    for key, value in theirs.items():
        np.testing.assert_allclose(weights[key], value, 1e-3, 1e-5, err_msg=key)


def test_a_batch_of_one_row_has_its_own_program() -> None:
    trainer = Trainer(MODELS["mlp"], "loss", popgraph.SGD(0.1))
    data = batches("mlp")
    one = {name: array[:1] for name, array in data[2].items()}
    trainer.fit([data[0], data[1], one], epochs=1)
    assert bounds(trainer) == [{}, {"N": 16}, {}]
