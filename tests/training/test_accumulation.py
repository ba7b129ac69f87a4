"""Tests micro-batches in the trainer: one update of the accumulated gradients of a whole batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popgraph
import popgraph.popart as popart
from popgraph.engine.plan import StepPlan
from popgraph.support.arrays import Array
from popgraph.support.errors import PopgraphError, RunError
from popgraph.support.warnings import DoubtfulTrainingWarning
from popgraph.training.trainer import Trainer
from tests.training.test_checkpoints import StopAt

NET = """
graph net(x: f32[N, 6]) -> (y: f32[N, 3]) {
    weight w: f32[6, 8] = glorot_uniform(seed=1)
    weight v: f32[8, 3] = glorot_uniform(seed=2)
    h = x @ w |> Tanh
    y = h @ v
}
"""
RNG = np.random.default_rng(7)
X = RNG.normal(size=(45, 6)).astype(np.float32)
LABELS = X[:, :3].argmax(1)
DATA = {"x": X, "labels": LABELS}
HELD_OUT = {"x": X[:9], "labels": LABELS[:9]}
SUM = 'ai.graphcore.nllloss(Softmax(y), labels, reduction="Sum")'


def trained(model: Any = NET, loss: str = "cross_entropy", **options: Any) -> Trainer:
    optimizer = options.pop("optimizer", "SGD(0.2, momentum=0.9, weight_decay=0.01)")
    settings = {"epochs": 2, "batch": 16, "seed": 3, "metrics": ["accuracy"], **options}
    return popgraph.train(model, DATA, loss, optimizer, **settings)


def weights(trainer: Trainer) -> dict[str, Array]:
    return dict(trainer.weights())


def assert_alike(found: Trainer, wanted: Trainer, tolerance: float = 1e-5) -> None:
    """The same weights and the same history, up to rounding."""
    for name, weight in weights(wanted).items():
        np.testing.assert_allclose(weights(found)[name], weight, rtol=tolerance, atol=tolerance)
    for ours, theirs in zip(found.history.steps, wanted.history.steps, strict=True):
        assert ours.keys() - {"loss_scale"} == theirs.keys()
        assert [ours[name] for name in theirs] == pytest.approx([*theirs.values()], rel=tolerance)


@pytest.mark.parametrize("backend", ["c", "reference"])
@pytest.mark.parametrize("loss", ["cross_entropy", SUM])
@pytest.mark.parametrize("optimizer", ["SGD(0.02, momentum=0.9)", "Adam(0.02)", "Lamb(0.01)"])
def test_micro_batches_train_as_whole_batches(backend: str, loss: str, optimizer: str) -> None:
    """45 samples: the last batch has 13, which are three micro-batches of 4 and one of 1."""
    options: dict[str, Any] = {"loss": loss, "backend": backend, "optimizer": optimizer}
    options["schedule"] = "cosine(steps=6)"
    whole = trained(**options, validation=HELD_OUT)
    split = trained(**options, validation=HELD_OUT, accumulate=4)
    assert_alike(split, whole)
    for ours, theirs in zip(split.history.epochs, whole.history.epochs, strict=True):
        for name in theirs.keys() - {"seconds"}:
            assert ours[name] == pytest.approx(theirs[name], rel=1e-5)


def test_a_batch_of_fewer_rows_than_micro_batches() -> None:
    data = (X[:21], LABELS[:21])
    whole = popgraph.train(NET, data, "cross_entropy", "SGD(0.2)", batch=8)
    split = popgraph.train(NET, data, "cross_entropy", "SGD(0.2)", batch=8, accumulate=8)
    assert_alike(split, whole)
    fewer = popgraph.train(NET, (X[:3], LABELS[:3]), "cross_entropy", "SGD(0.2)", accumulate=4)
    plain = popgraph.train(NET, (X[:3], LABELS[:3]), "cross_entropy", "SGD(0.2)")
    assert_alike(fewer, plain)


def test_streams_of_batches() -> None:
    batches = [(X[start : start + 20], LABELS[start : start + 20]) for start in range(0, 45, 20)]
    whole = popgraph.train(NET, batches, "cross_entropy", "Adam(0.02)", epochs=2)
    split = popgraph.train(NET, batches, "cross_entropy", "Adam(0.02)", epochs=2, accumulate=5)
    assert_alike(split, whole)


@pytest.mark.parametrize("optimizer", [popart.SGD, popart.Adam])
def test_accumulation_has_the_same_bits_as_a_session(optimizer: Any) -> None:
    """Compares with a session whose accumulation factor is 4, with mean reduction."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4, 6], "x")
    labels = builder.addInputTensor("INT32", [4], "labels")
    made = np.random.default_rng(5).normal(size=(6, 3)).astype(np.float32)
    w = builder.addInitializedInputTensor(made, "w")
    y = builder.aiOnnx.softmax([builder.aiOnnx.matmul([x, w], "m")], axis=-1)
    loss = builder.aiGraphcore.nllloss([y, labels], popart.ReductionType.Mean)
    builder.addOutputTensor(loss)
    values = {"defaultLearningRate": (0.1, False), "defaultWeightDecay": (0.01, False)}
    rule = optimizer(values)
    numbers = LABELS.astype(np.int32)

    options = popart.SessionOptions()
    options.enableGradientAccumulation, options.accumulationFactor = True, 4
    options.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    flow = popart.DataFlow(2, {loss: popart.AnchorReturnType("All")})
    session = popart.TrainingSession(
        builder.getModelProto(),
        flow,
        loss,
        rule,
        popart.DeviceManager().createCpuDevice(),
        userOptions=options,
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    inputs = {"x": X[:32].reshape(2, 4, 4, 6), "labels": numbers[:32].reshape(2, 4, 4)}
    session.run(popart.PyStepIO(inputs, anchors))
    session.weightsToHost()
    found = {"w": np.empty_like(made)}
    session.readWeights(popart.PyWeightsIO(found))

    data = {"x": X[:32], "labels": numbers[:32]}
    trainer = Trainer(builder.getModelProto(), loss, rule, accumulate=4)
    trainer.fit(data, shuffle=False)
    assert len(trainer.history.steps) == 2
    np.testing.assert_array_equal(weights(trainer)["w"], found["w"])
    losses = [row[loss] for row in trainer.history.steps]
    assert losses == pytest.approx(anchors[loss].mean(1).tolist(), rel=1e-6)


WIDE = """
graph net(x: f32[N, 3, 16, 16]) -> (y: f32[N, 10]) {
    weight a: f32[16, 3, 3, 3] = he_normal(seed=1)
    weight b: f32[16, 16, 3, 3] = he_normal(seed=2)
    weight c: f32[16, 10] = glorot_uniform(seed=3)
    h = Conv(x, a, pads=[1, 1, 1, 1]) |> Relu
    g = Conv(h, b, pads=[1, 1, 1, 1]) |> Relu
    y = ReduceMean(g, [2, 3], keepdims=0) @ c
}
"""


def test_memory_is_that_of_a_micro_batch() -> None:
    """A batch of 64 in micro-batches of 8 needs the arena of a batch of 8."""
    x = np.zeros((64, 3, 16, 16), np.float32)
    labels = np.zeros(64, np.int64)

    def arena(batch: int, accumulate: int) -> int:
        trainer = Trainer(WIDE, "cross_entropy", "Adam(0.001)", accumulate=accumulate)
        trainer.prepare(x, labels, batch=batch)
        return trainer.arena

    assert arena(64, 8) <= 1.2 * arena(8, 1)
    assert arena(64, 1) > 3 * arena(8, 1)


def test_checkpoints_are_between_updates(tmp_path: Path) -> None:
    """Checkpoints within and at the end of an epoch, whose last batch has fewer samples."""
    dropping = NET.replace("Tanh", "Dropout(0.3)")
    whole = trained(dropping, accumulate=4, epochs=3)
    for steps in (2, 3, 4):
        path = tmp_path / f"{steps}.ckpt"
        with pytest.raises(KeyboardInterrupt):
            trained(dropping, accumulate=4, epochs=3, checkpoint=path, callbacks=[StopAt(steps)])
        again = trained(dropping, accumulate=4, epochs=3, checkpoint=path, resume=True)
        assert again.history.steps == whole.history.steps
        for name, weight in weights(whole).items():
            np.testing.assert_array_equal(weights(again)[name], weight)
    with pytest.raises(RunError, match="in 4 micro-batches"):
        trained(dropping, checkpoint=path, resume=True)


def test_dropout_draws_a_mask_in_every_micro_batch() -> None:
    """Both micro-batches have equal rows, so equal losses would mean equal masks."""
    net = "graph net(x: f32[N, 64]) -> (y: f32[N, 64]) {\n    weight w: f32[64] = ones\n"
    net += "    y = x * w |> Dropout(0.5)\n}"
    x = np.ones((2, 64), np.float32)
    trainer = Trainer(net, "mse", "SGD(0.0)", accumulate=2)
    seen: list[Array] = []
    trainer.prepare(x, x, batch=2)
    program = trainer._prepared.executable
    run = program.run

    def keep(inputs: Any, donate: Any = ()) -> dict[str, Array]:
        seen.append(run(inputs)["y"])
        return {**run(inputs), "y": seen[-1]}

    program.run = keep  # type: ignore[method-assign]
    trainer.fit(x, x, batch=2)
    assert not np.array_equal(seen[0], seen[1])


def test_running_statistics_move_with_every_micro_batch() -> None:
    net = """
graph net(x: f32[N, 6]) -> (y: f32[N, 6]) {
    weight scale: f32[6] = ones
    weight shift: f32[6] = zeros
    weight mean: f32[6] = zeros
    weight variance: f32[6] = ones
    y = BatchNormalization(x, scale, shift, mean, variance)
}
"""
    trainer = popgraph.train(
        net, (X[:16], X[:16]), "mse", "SGD(0.1)", batch=16, accumulate=2, shuffle=False
    )
    expected = 0.1 * (0.9 * X[:8].mean(0) + X[8:16].mean(0))
    np.testing.assert_allclose(weights(trainer)["mean"], expected, rtol=1e-5, atol=1e-6)


def test_gradient_checks_use_a_micro_batch() -> None:
    trainer = Trainer(NET, "cross_entropy", "SGD(0.1)", accumulate=4)
    assert not trainer.check(DATA, batch=16).problems
    trainer.fit(DATA, batch=16)
    assert [one.name for one in trainer.layers()] == ["w", "v"]
    assert trainer.predict(X).shape == (45, 3)  # type: ignore[union-attr]
    assert trainer.evaluate(DATA)["loss"] < 2
    assert trainer.request().options.training is not None


def test_values_that_became_infinite_are_named() -> None:
    net, bad = NET.replace("Tanh", "Relu"), X.copy()
    bad[13, 2] = np.inf
    with pytest.raises(RunError, match="input 'x' holds inf in sample 13"):
        popgraph.train(net, (bad, LABELS), "cross_entropy", "SGD(0.1)", batch=16, accumulate=4)


def test_quick_programs_are_replaced_between_micro_batches() -> None:
    whole = trained()
    split = trained(accumulate=4, quick=True)
    split.wait()
    split.fit(DATA, batch=16)
    whole.fit(DATA, batch=16)
    assert_alike(split, whole, tolerance=1e-4)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"accumulate": 0}, "accumulate must be an integer of at least 1, not 0"),
        ({"accumulate": 2.0}, "accumulate is int or None, not 2.0 (float)"),
        ({"accumulate": True}, "accumulate must be an integer of at least 1, not True"),
        ({"accumulate": 3, "batch": 16}, "a batch of 16 samples does not divide into 3"),
        ({"accumulate": 32, "batch": 16}, "a batch of 16 samples does not divide into 32"),
    ],
)
def test_invalid_accumulation(options: dict[str, Any], text: str) -> None:
    with pytest.raises(PopgraphError) as caught:
        trained(**options)
    assert text in caught.value.what and caught.value.where == "accumulate"


def test_a_model_of_one_size_is_that_of_a_micro_batch() -> None:
    fixed = NET.replace("N", "4")
    trainer = trained(fixed, accumulate=4, shuffle=False)
    assert_alike(trainer, trained(shuffle=False, drop_last=True))
    with pytest.raises(RunError, match="batch size of 4 in each of 2 micro-batches, not 16"):
        trained(fixed, accumulate=2)


@pytest.mark.parametrize(
    "options",
    [
        {"loss": "Sqrt(cross_entropy(y, labels))"},
        {"loss": "cross_entropy(y, labels, ignore_index=0)"},
        {"class_weights": [1.0, 2.0, 0.5]},
    ],
)
def test_losses_that_are_not_means_over_samples_warn(options: dict[str, Any]) -> None:
    """A weighted mean has another divisor in each micro-batch, so a warning is given."""
    with pytest.warns(DoubtfulTrainingWarning, match="averaged over 2 micro-batches"):
        trained(accumulate=2, **options)


def test_plans_split_rows() -> None:
    plan = StepPlan(accumulate=4)
    given = {"x": np.arange(10)}
    found = [(part.inputs["x"].tolist(), part.share) for part in plan.split(given, 4)]
    assert found == [([0, 1, 2, 3], 0.4), ([4, 5, 6, 7], 0.4), ([8, 9], 0.2)]
    assert [part.rows for part in plan.split(given, 1)] == [3, 3, 3, 1]
