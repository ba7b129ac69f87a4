"""Tests pipelines in the trainer: micro-batches go through stages of a model on threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popgraph
from popgraph.engine.staged_executable import StagedExecutable
from popgraph.support.errors import RunError
from popgraph.training.trainer import Trainer
from tests.training.test_accumulation import SUM, X, assert_alike, trained
from tests.training.test_checkpoints import StopAt

DEEP = """
graph net(x: f32[N, 6]) -> (y: f32[N, 3]) {
    weight a: f32[6, 8] = glorot_uniform(seed=1)
    weight b: f32[8, 8] = glorot_uniform(seed=3)
    weight c: f32[8, 8] = glorot_uniform(seed=4)
    weight v: f32[8, 3] = glorot_uniform(seed=2)
    h = x @ a |> Tanh
    g = h @ b |> Tanh
    k = g @ c |> Tanh
    y = (k + h) @ v
}
"""
DROPPING = DEEP.replace("g @ c |> Tanh", "g @ c |> Tanh |> Dropout(0.3)")
HOW: list[dict[str, Any]] = [
    {"stages": 2, "accumulate": 4, "loss": SUM},
    {"stages": 3, "accumulate": 8, "clip": 0.1, "loss_scale": "auto", "optimizer": "Adam(0.02)"},
    {"stages": 2, "accumulate": 2, "recompute": "checkpoints", "threads": 4},
]


@pytest.mark.parametrize("how", HOW)
def test_pipelines_train_as_whole_batches(how: dict[str, Any]) -> None:
    how = dict(how)
    options = {name: how.pop(name) for name in ("loss", "optimizer") if name in how}
    found = trained(DEEP, **options, **how)
    assert isinstance(found._prepared.executable, StagedExecutable)
    assert found.arena
    assert_alike(found, trained(DEEP, **options, clip=how.get("clip")))


def test_a_resumed_pipeline_has_the_same_bits(tmp_path: Path) -> None:
    path, options = tmp_path / "run.ckpt", {"stages": 2, "accumulate": 4, "epochs": 3}
    whole = trained(DROPPING, **options)
    with pytest.raises(KeyboardInterrupt):
        trained(DROPPING, **options, checkpoint=path, callbacks=[StopAt(4)])
    again = trained(DROPPING, **options, checkpoint=path, resume=True)
    assert again.history.steps == whole.history.steps
    for name, weight in whole.weights().items():
        np.testing.assert_array_equal(again.weights()[name], weight)


def test_a_pipeline_has_the_masks_and_statistics_of_one_program() -> None:
    norm = DROPPING.replace(
        "g = h @ b", "g = BatchNormalization(h @ b, scale, shift, mean, variance)"
    ).replace(
        "    h = x",
        "    weight scale: f32[8] = ones\n    weight shift: f32[8] = zeros\n"
        "    weight mean: f32[8] = zeros\n    weight variance: f32[8] = ones\n    h = x",
    )
    found = trained(norm, stages=2, accumulate=4)
    assert_alike(found, trained(norm, accumulate=4))


def test_readers_of_a_weight_are_on_one_stage() -> None:
    """Stages are not cut between readers of one weight, even for an equal cost."""
    shared = DEEP.replace("g @ c", "g @ b").replace("weight c", "const c")
    assert_alike(trained(shared, stages=2, accumulate=4), trained(shared))


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"stages": 2}, "2 stages need as many micro-batches to keep busy, not 1"),
        ({"stages": 2, "accumulate": 4, "replicas": 2}, "replicas of a pipeline"),
        ({"stages": 2, "accumulate": 4, "quick": True}, "quick would replace"),
        ({"stages": 9, "accumulate": 16}, "the model does not divide into 9 stages"),
    ],
)
def test_invalid_pipelines(how: dict[str, Any], text: str) -> None:
    with pytest.raises(RunError, match=text) as caught:
        trained(DEEP, **how)
    assert caught.value.where in ("stages", "replicas")


def test_an_error_in_a_stage_ends_the_training() -> None:
    labels = X[:, :3].argmax(1)
    labels[13] = 7
    trainer = Trainer(DEEP, "cross_entropy", "SGD(0.1)", stages=2, accumulate=4)
    with pytest.raises(popgraph.PopgraphError, match="7"):
        trainer.fit({"x": X, "labels": labels}, batch=16)
