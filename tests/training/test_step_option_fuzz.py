"""Fuzzes options of training steps: random networks train as on whole batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

import popgraph
from popgraph.support.errors import RunError
from popgraph.training.trainer import Trainer

WIDTH, CLASSES = 5, 3
LAYERS = {
    "dense": "MatMul({0}, {weight})",
    "tanh": "Tanh({0})",
    "relu": "Relu({0} + 0.1)",
    "sigmoid": "Sigmoid({0})",
    "scaled": "{0} * {vector}",
    "shifted": "{0} + {vector}",
    "residual": "{0} + Tanh(MatMul({0}, {weight}))",
    "softmax": "Softmax({0}, axis=-1)",
}
LOSSES = {
    "cross_entropy": "cross_entropy(MatMul({0}, head), labels)",
    "both": "cross_entropy(MatMul({0}, head), labels) + 0.1 * ReduceMean({0} * {0}, keepdims=0)",
    "sum": 'ai.graphcore.nllloss(Softmax(MatMul({0}, head), axis=-1), labels, reduction="Sum")',
}
OPTIMIZERS = (
    "SGD(0.02)",
    "SGD(0.02, momentum=0.9, weight_decay=0.01)",
    "SGD(0.02, momentum=0.9, nesterov=true, combined=false)",
    "Adam(0.01, epsilon=0.1)",
    "AdaMax(0.01, epsilon=0.1)",
    "RMSProp(0.01, epsilon=0.1)",
)


@dataclass(frozen=True)
class Drawn:
    """A network, its data and the options of its steps."""

    layers: tuple[str, ...]
    loss: str
    optimizer: str
    rows: int
    """Rows of a micro-batch."""
    samples: int
    options: tuple[tuple[str, Any], ...]

    @property
    def runs(self) -> int:
        said = dict(self.options)
        return int(said.get("accumulate", 1) * said.get("replicas", 1))

    @property
    def text(self) -> str:
        weights, lines, value = ["    weight head: f32[5, 3] = glorot_uniform(seed=99)"], [], "x"
        for number, name in enumerate(self.layers):
            weight, vector = f"w{number}", f"v{number}"
            if "{weight}" in LAYERS[name]:
                weights.append(f"    weight {weight}: f32[5, 5] = glorot_uniform(seed={number})")
            if "{vector}" in LAYERS[name]:
                weights.append(f"    weight {vector}: f32[5] = normal(0.0, 1.0, seed={number})")
            layer = LAYERS[name].format(value, weight=weight, vector=vector)
            lines.append(f"    h{number} = {layer}")
            value = f"h{number}"
        body = "\n".join([*weights, *lines, f"    y = MatMul({value}, head)"])
        loss = LOSSES[self.loss].format(value)
        return (
            f"graph net(x: f32[N, {WIDTH}]) -> (y: f32[N, {CLASSES}]) {{\n{body}\n}}\n"
            f"train (labels: i32[N]) {{\n    loss = {loss}\n    optimizer = {self.optimizer}\n}}\n"
        )

    def trained(self, backend: str = "reference", **options: Any) -> Trainer:
        rng = np.random.default_rng(3)
        x = rng.normal(size=(self.samples, WIDTH)).astype(np.float32)
        labels = rng.integers(0, CLASSES, self.samples).astype(np.int32)
        data = {"x": x, "labels": labels}
        settings: dict[str, Any] = {"batch": self.rows * self.runs, "epochs": 2, **options}
        return popgraph.train(self.text, data, backend=backend, **settings)


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    choices = {
        "accumulate": st.integers(1, 5),
        "replicas": st.integers(1, 3),
        "clip": st.sampled_from([0.1, 1.0]),
        "loss_scale": st.sampled_from([0.5, 128.0, "auto"]),
        "recompute": st.sampled_from(["checkpoints", "norms"]),
        "schedule": st.just("cosine(steps=5)"),
    }
    names = draw(st.sets(st.sampled_from(sorted(choices)), min_size=1))
    said = {name: draw(choices[name]) for name in sorted(names)}
    if "replicas" not in said and said.get("accumulate", 1) != 1 and draw(st.booleans()):
        said["stages"] = 2
    options = tuple(said.items())
    layers = draw(st.lists(st.sampled_from(sorted(LAYERS)), min_size=1, max_size=4))
    return Drawn(
        layers=tuple(layers),
        loss=draw(st.sampled_from(sorted(LOSSES))),
        optimizer=draw(st.sampled_from(OPTIMIZERS)),
        rows=draw(st.integers(1, 4)),
        samples=draw(st.integers(1, 30)),
        options=options,
    )


def assert_whole(one: Drawn, backend: str) -> None:
    """Compares with a training that keeps only the options that change results: clip, schedule."""
    given = dict(one.options)
    kept = {name: given[name] for name in ("clip", "schedule") if name in given}
    try:
        found, wanted = one.trained(backend, **given), one.trained(**kept)
    except RunError as error:
        assume(error.where != "stages")
        raise
    for name, weight in wanted.weights().items():
        np.testing.assert_allclose(found.weights()[name], weight, 1e-3, 1e-4, err_msg=name)
    losses = [[row["loss"] for row in each.history.steps] for each in (found, wanted)]
    np.testing.assert_allclose(losses[0], losses[1], 1e-3)


@given(drawn())
@settings(max_examples=max(8, settings.default.max_examples))
def test_options_train_as_whole_batches(one: Drawn) -> None:
    assert_whole(one, "reference")


@given(drawn())
@settings(max_examples=max(4, settings.default.max_examples // 4))
def test_options_train_as_whole_batches_in_c(one: Drawn) -> None:
    assert_whole(one, "c")


def test_fuzz_kills_means_that_do_not_count_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants a bug in the host: a short micro-batch has the weight of a full one."""
    monkeypatch.setattr("popgraph.training.driver.ScheduledDriver.scale_gradients", lambda *_: None)

    @settings(max_examples=100, phases=[Phase.generate], database=None)
    @given(drawn())
    def holds(one: Drawn) -> None:
        assert_whole(one, "reference")

    with pytest.raises((AssertionError, ExceptionGroup)):
        holds()
