"""Tests replicas on threads: they train like one program on the whole batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popgraph
from popgraph.engine.replicas import ParallelCopies
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError
from popgraph.training.trainer import Trainer
from tests.training.test_accumulation import LABELS, NET, SUM, X, assert_alike, trained
from tests.training.test_checkpoints import StopAt

DROPPING = NET.replace("Tanh", "Dropout(0.3)")


@pytest.mark.parametrize("backend", ["c", "reference"])
@pytest.mark.parametrize("loss", ["cross_entropy", SUM])
@pytest.mark.parametrize(
    "how",
    [
        {"replicas": 2},
        {"replicas": 4, "clip": 0.5},
        {"replicas": 2, "accumulate": 4, "loss_scale": "auto"},
        {"replicas": 2, "accumulate": 2, "threads": 2, "recompute": "checkpoints"},
    ],
)
def test_replicas_train_as_whole_batches(backend: str, loss: str, how: dict[str, Any]) -> None:
    """The last batch of 13 samples leaves a replica with fewer rows, or none."""
    options: dict[str, Any] = {"loss": loss, "optimizer": "Adam(0.02)", "backend": backend}
    whole = trained(**options, clip=how.get("clip"))
    assert_alike(trained(**options, **how), whole)


def test_results_of_replicas_do_not_depend_on_thread_timing() -> None:
    options: dict[str, Any] = {"replicas": 3, "accumulate": 2, "batch": 12, "epochs": 4}
    one, other = trained(DROPPING, **options), trained(DROPPING, **options)
    assert one.history.steps == other.history.steps
    for name, weight in one.weights().items():
        np.testing.assert_array_equal(other.weights()[name], weight)


def test_a_resumed_training_has_the_same_bits(tmp_path: Path) -> None:
    path, options = tmp_path / "run.ckpt", {"replicas": 2, "accumulate": 2, "epochs": 3}
    whole = trained(DROPPING, **options)
    with pytest.raises(KeyboardInterrupt):
        trained(DROPPING, **options, checkpoint=path, callbacks=[StopAt(4)])
    again = trained(DROPPING, **options, checkpoint=path, resume=True)
    assert again.history.steps == whole.history.steps
    with pytest.raises(RunError, match="of 2 replicas"):
        trained(DROPPING, accumulate=4, epochs=3, checkpoint=path, resume=True)


def test_replicas_share_weights_and_have_accumulators() -> None:
    trainer = trained(replicas=3, batch=12)
    program = trainer._prepared.executable
    assert isinstance(program, ParallelCopies)
    for twin in program._twins:
        assert np.shares_memory(twin.variable("w"), program._others.variable("w"))
        ours, theirs = (one.variable("Accum___w") for one in (twin, program._others))
        assert not np.shares_memory(ours, theirs)


def test_replicas_draw_different_masks_and_average_statistics() -> None:
    net = """
graph net(x: f32[N, 6]) -> (y: f32[N, 6]) {
    weight scale: f32[6] = ones
    weight shift: f32[6] = zeros
    weight mean: f32[6] = zeros
    weight variance: f32[6] = ones
    y = BatchNormalization(x, scale, shift, mean, variance) |> Dropout(0.5)
}
"""
    outputs: list[Array] = []
    trainer = Trainer(net, "mse", "SGD(0.1)", replicas=2)
    same = np.concatenate([X[:8], X[:8]])
    trainer.prepare(same, same, batch=16)
    program = trainer._prepared.executable
    assert isinstance(program, ParallelCopies)
    run = program.run_together

    def keep(inputs: Any) -> list[dict[str, Array]]:
        found = run(inputs)
        outputs.extend(one["y"] for one in found)
        return found

    program.run_together = keep  # type: ignore[method-assign]
    other = np.concatenate([X[:8], X[:8]])
    trainer.fit(other, other, batch=16, shuffle=False)
    assert not np.array_equal(outputs[0], outputs[1])
    np.testing.assert_allclose(trainer.weights()["mean"], 0.1 * X[:8].mean(0), rtol=1e-5)


def test_an_error_in_one_replica_ends_the_training() -> None:
    labels = LABELS.copy()
    labels[13] = 7
    with pytest.raises(popgraph.PopgraphError, match="7"):
        popgraph.train(NET, (X, labels), "cross_entropy", "SGD(0.1)", batch=16, replicas=2)


def test_options_that_exclude_replicas() -> None:
    with pytest.raises(RunError, match="quick would replace"):
        trained(replicas=2, quick=True)
    with pytest.raises(RunError, match="a batch of 16 samples does not divide into 6"):
        trained(replicas=3, accumulate=2)
