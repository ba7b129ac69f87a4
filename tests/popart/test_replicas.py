"""Tests micro-batches and replicas: shapes of a step, and equality with one large batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import popgraph.popart as popart
from popgraph.support.arrays import Array

STEPS = 3
MICRO = 2
"""Rows of a micro-batch."""

OPTIMIZERS: dict[str, Any] = {
    "SGD": lambda: popart.ConstSGD(0.1),
    "SGD with decay": lambda: popart.SGD({"defaultWeightDecay": (0.1, True)}),
    "momentum": lambda: popart.SGD({"defaultMomentum": (0.9, True)}),
    "streamed momentum": lambda: popart.SGD({"defaultMomentum": (0.9, False)}),
    "separate momentum": lambda: popart.SGD(
        {"defaultMomentum": (0.9, True), "defaultWeightDecay": (0.1, True)},
        accumulatorAndMomentum=popart.SGDAccumulatorAndMomentum.Separate,
    ),
    "Adam": lambda: popart.Adam({"defaultLearningRate": (0.05, False)}),
    "RMSProp": lambda: popart.Adaptive({}, mode=popart.AdaptiveMode.RMSProp),
    "clipped": lambda: popart.Adam(
        {"defaultLearningRate": (0.05, False)},
        clip_norm_settings=[popart.ClipNormSettings.clipAllWeights(0.3)],
    ),
}


def linear(rows: int, settings: Any = None, reduction: Any = None) -> tuple[Any, str, str]:
    """A model of tanh(x @ w), the name of the result, and the name of its L1 loss."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [rows, 3], settings or popart.InputSettings(), "x")
    first = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)
    w = builder.addInitializedInputTensor(first, "w")
    y = builder.aiOnnx.tanh([builder.aiOnnx.matmul([x, w])])
    loss = builder.aiGraphcore.l1loss([y], 1.0, reduction or popart.ReductionType.Sum)
    return builder, y, loss


def device(backend: str = "reference") -> Any:
    made = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2})
    made.backend = backend
    return made


def trained(
    data: Array, rows: int, make: Any, reduction: Any, options: Any, backend: str = "reference"
) -> dict[str, Array]:
    """The weights after steps on `data`, whose first axis is that of the steps."""
    builder, _, loss = linear(rows, reduction=reduction)
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [loss]),
        loss,
        make(),
        device(backend),
        userOptions=options,
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    for step in data:
        session.run(popart.PyStepIO({"x": np.ascontiguousarray(step)}, anchors))
    session.weightsToHost()
    return dict(session.weights())


def options(accumulation: int = 1, replicas: int = 1, mean: bool = False) -> Any:
    made = popart.SessionOptions()
    made.enableGradientAccumulation, made.accumulationFactor = accumulation > 1, accumulation
    made.enableReplicatedGraphs, made.replicatedGraphCount = replicas > 1, replicas
    if mean:
        made.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    return made


SCHEDULES = [(2, 1), (1, 2), (3, 2)]
"""Micro-batches and replicas."""


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize(("accumulation", "replicas"), SCHEDULES)
def test_micro_batches_and_replicas_train_as_one_large_batch(
    name: str, mean: bool, accumulation: int, replicas: int
) -> None:
    runs = accumulation * replicas
    shape = (STEPS, 1, accumulation, replicas, MICRO, 3)
    data = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    reduction = popart.ReductionType.Mean if mean else popart.ReductionType.Sum
    make = OPTIMIZERS[name]
    found = trained(data, MICRO, make, reduction, options(accumulation, replicas, mean))
    large = trained(data, MICRO * runs, make, reduction, options())
    np.testing.assert_allclose(found["w"], large["w"], rtol=2e-5, atol=1e-6)
    assert np.abs(large["w"] - np.linspace(-1, 1, 6).reshape(3, 2)).max() > 1e-3


@pytest.mark.parametrize("running", [False, True])
def test_accumulators_of_a_running_mean(running: bool) -> None:
    """The strategy of a mean matters for clipping, and for anchored accumulators."""
    builder, _, loss = linear(1)
    made = options(accumulation=3, mean=True)
    if running:
        strategy = popart.MeanReductionStrategy.Running
        made.meanAccumulationAndReplicationReductionStrategy = strategy
    limit = 1.0
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(2, ["Gradient___w", "Accum___w"]),
        loss,
        popart.SGD(
            {"defaultLearningRate": (0.1, True)},
            [popart.ClipNormSettings.clipAllWeights(limit)],
        ),
        device(),
        userOptions=made,
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    data = np.random.default_rng(2).normal(size=(2, 3, 1, 3)).astype(np.float32)
    session.run(popart.PyStepIO({"x": data}, anchors))
    w = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)
    for gradients, kept in zip(anchors["Gradient___w"], anchors["Accum___w"], strict=True):
        counts = np.arange(1, 4).reshape(3, 1, 1) if running else 1
        so_far = gradients.cumsum(0) / counts
        np.testing.assert_allclose(kept, so_far, 1e-5, 1e-6)
        taken = so_far[2] * limit / max(limit, np.linalg.norm(so_far[2]))
        w = w - 0.1 * taken / (1 if running else 3)
    session.weightsToHost()
    np.testing.assert_allclose(session.weights()["w"], w, 1e-5, 1e-6)


SEPARATE: dict[str, Any] = {"accumulatorAndMomentum": popart.SGDAccumulatorAndMomentum.Separate}


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize(("accumulation", "replicas"), [(1, 1), (1, 2), (3, 1), (3, 2)])
@pytest.mark.parametrize("kind", ["SGD0", "SGD1", "SGD2"])
def test_sgd_clips_weight_updates_as_popart_does(
    kind: str, accumulation: int, replicas: int, mean: bool
) -> None:
    """
    PopART clips the summed gradient (SGD0) or the velocity (SGD1, SGD2), but keeps the velocity.

    PopART sums the velocities of replicas that accumulate.
    """
    rate, momentum, scale, limit = 0.1, 0.0 if kind == "SGD0" else 0.5, 4.0, 0.2
    builder, _, loss = linear(1)
    values = {"defaultLearningRate": (rate, True), "lossScaling": (scale, True)}
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [GRADIENT]),
        loss,
        popart.SGD(
            values | {"defaultMomentum": (momentum, True)},
            clip_norm_settings=[popart.ClipNormSettings.clipAllWeights(limit)],
            **(SEPARATE if kind == "SGD2" else {}),
        ),
        device(),
        userOptions=options(accumulation, replicas, mean),
    )
    session.prepareDevice()
    session.weightsFromHost()
    w, velocity = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2), np.zeros((3, 2))
    summed = kind == "SGD1" and accumulation > 1
    for data in np.random.default_rng(2).normal(size=(3, accumulation, replicas, 1, 3)):
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({"x": data.astype(np.float32)}, anchors))
        gradient = anchors[GRADIENT].reshape(-1, 3, 2).sum(0)  # with the loss scale
        divisor = scale * (accumulation * replicas if mean else 1)
        velocity = momentum * velocity + gradient / divisor
        shown = gradient if kind == "SGD0" else velocity * (replicas if summed else 1)
        shrink = limit / max(limit, float(np.linalg.norm(shown)))
        assert shrink < 1
        w = w - rate * velocity * shrink
    session.weightsToHost()
    np.testing.assert_allclose(session.weights()["w"], w, 1e-4, 1e-5)


def test_anchored_states_show_accumulated_gradients() -> None:
    """A velocity accumulates each gradient; its own update follows the last micro-batch."""
    builder, _, loss = linear(1)
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(2, ["Gradient___w", "Accl___w"]),
        loss,
        popart.SGD({"defaultLearningRate": (0.1, True), "defaultMomentum": (0.5, True)}),
        device(),
        userOptions=options(accumulation=3),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    data = np.random.default_rng(2).normal(size=(2, 3, 1, 3)).astype(np.float32)
    session.run(popart.PyStepIO({"x": data}, anchors))
    before = np.zeros((3, 2), np.float32)
    for gradients, velocities in zip(anchors["Gradient___w"], anchors["Accl___w"], strict=True):
        so_far = before + gradients.cumsum(0)
        np.testing.assert_allclose(velocities, so_far, 1e-5, 1e-6)
        before = 0.5 * so_far[-1]
    session.weightsToHost()
    np.testing.assert_allclose(session.weights()["Accl___w"], before, 1e-5, 1e-6)


def anchored(
    optimizer: Any, made: Any, returned: dict[str, Any], backend: str = "reference", **how: bool
) -> dict[str, Array]:
    """The anchors of a step of two batches."""
    builder, y, loss = linear(1)
    if how.get("talks"):
        y = builder.aiGraphcore.replicatedallreduce([y])
        loss = builder.aiGraphcore.l1loss([y], 1.0, popart.ReductionType.Sum)
    flow = popart.DataFlow(2, {id: popart.AnchorReturnType(*how) for id, how in returned.items()})
    session = popart.TrainingSession(
        builder.getModelProto(), flow, loss, optimizer, device(backend), userOptions=made
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    shape = (2, made.accumulationFactor, made.replicatedGraphCount, 1, 3)
    data = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    session.run(popart.PyStepIO({"x": data}, anchors))
    return dict(anchors)


PLAIN = {"defaultLearningRate": (0.1, True)}
GRADIENT, ACCUMULATED, VELOCITY = (
    f"{prefix}w"
    for prefix in (
        popart.reservedGradientPrefix(),
        popart.reservedAccumPrefix(),
        popart.reservedAcclPrefix(),
    )
)


@pytest.mark.parametrize("backend", ["reference", "c"])
@pytest.mark.parametrize("talks", [False, True])
@pytest.mark.parametrize("kind", ["sum", "mean", "running mean"])
@pytest.mark.parametrize("factor", [2, 4])
def test_each_replica_accumulates_its_own_gradients(
    factor: int, kind: str, talks: bool, backend: str
) -> None:
    """Replicas all-reduce their gradients once a batch is complete, as PopART's do."""
    made = options(factor, 2, mean=kind != "sum")
    if kind == "running mean":
        strategy = popart.MeanReductionStrategy.Running
        made.meanAccumulationAndReplicationReductionStrategy = strategy
    every = {GRADIENT: ("All",), ACCUMULATED: ("All",)}
    found = anchored(popart.SGD(PLAIN), made, every, backend, talks=talks)
    counts = np.arange(1, factor + 1).reshape(factor, 1, 1, 1) if kind == "running mean" else 1
    own = found[GRADIENT].cumsum(1) / counts
    assert own.shape == (2, factor, 2, 3, 2), "batches, micro-batches, replicas and a weight"
    np.testing.assert_allclose(found[ACCUMULATED], own, 1e-5, 1e-6)
    assert not np.allclose(own[:, :, 0], own[:, :, 1])
    for returned, picked in {("Final",): own[-1, -1], ("EveryN", 2): own[:, 1::2]}.items():
        some = anchored(popart.SGD(PLAIN), made, {ACCUMULATED: returned}, backend, talks=talks)
        picked = picked.reshape(some[ACCUMULATED].shape)
        np.testing.assert_allclose(some[ACCUMULATED], picked, 1e-5, 1e-6)


@pytest.mark.parametrize("talks", [False, True])
@pytest.mark.parametrize("mean", [False, True])
def test_accumulating_velocities_are_per_replica(mean: bool, talks: bool) -> None:
    """The update averages the velocities, so each replica scales its gradients by their number."""
    optimizer = popart.SGD(PLAIN | {"defaultMomentum": (0.5, True)})
    made = options(2, 2, mean=mean)
    every = {GRADIENT: ("All",), VELOCITY: ("All",)}
    found = anchored(optimizer, made, every, talks=talks)
    start = np.zeros((3, 2), np.float32)
    for gradients, velocities in zip(found[GRADIENT], found[VELOCITY], strict=True):
        own = start + gradients.cumsum(0) * (1 / 2 if mean else 2)
        np.testing.assert_allclose(velocities, own, 1e-5, 1e-6)
        start = 0.5 * own[-1].mean(0)


@pytest.mark.parametrize(("replicas", "talks"), [(1, False), (2, False), (2, True)])
@pytest.mark.parametrize(
    ("name", "backend"), [*((name, "reference") for name in OPTIMIZERS), ("Adam", "c")]
)
def test_anchored_weights_and_states_change_after_the_last_micro_batch(
    name: str, backend: str, replicas: int, talks: bool
) -> None:
    """All micro-batches show the values after the previous batch; `Final` shows the new ones."""
    made = options(3, replicas)
    builder, y, loss = linear(1)
    if talks:
        y = builder.aiGraphcore.replicatedallreduce([y])
        loss = builder.aiGraphcore.l1loss([y], 1.0, popart.ReductionType.Sum)

    def session(anchors: list[str], returned: str = "All") -> Any:
        found = popart.TrainingSession(
            builder.getModelProto(),
            popart.DataFlow(1, [loss, *anchors], popart.AnchorReturnType(returned)),
            loss,
            OPTIMIZERS[name](),
            device(backend),
            userOptions=made,
        )
        found.prepareDevice()
        found.weightsFromHost()
        return found

    def held(found: Any) -> dict[str, Array]:
        found.weightsToHost()
        return {id: array.copy() for id, array in found.weights().items()}

    adding = ("Accum___", "Accl___", "Counter___")
    states = [id for id in held(session([])) if not id.startswith(adding)]
    updated = "UpdatedVar___w"
    trained, final = session([*states, updated]), session(states, "Final")
    for seed in range(2):
        before, anchors = held(trained), trained.initAnchorArrays()
        data = np.random.default_rng(seed).normal(size=(3, replicas, 1, 3)).astype(np.float32)
        trained.run(popart.PyStepIO({"x": data}, anchors))
        left = final.initAnchorArrays()
        final.run(popart.PyStepIO({"x": data}, left))
        for id in states:
            shown = anchors[id].reshape(3 * replicas, *before[id].shape)
            np.testing.assert_array_equal(shown, np.broadcast_to(before[id], shown.shape), id)
        after = held(trained)
        for id in states:
            shown = left[id].reshape(replicas, *after[id].shape)
            np.testing.assert_array_equal(shown, np.broadcast_to(after[id], shown.shape), id)
        last = anchors[updated].reshape(3, replicas, 3, 2)[-1, 0]
        np.testing.assert_array_equal(last, after["w"])
        assert all(np.any(after[id] != before[id]) for id in states)


def test_anchored_states_are_equal_on_all_replicas() -> None:
    """Replicas that run before the update show the updated states, too."""
    ids = ("UpdatedVar___w", "Accl1___w", "w")
    for accumulation in (1, 2):
        made = options(accumulation, 2)
        found = anchored(popart.Adam({}), made, dict.fromkeys(ids, ("All",)))
        for id in ids:
            first, second = np.moveaxis(found[id].reshape(-1, 2, 3, 2), 1, 0)
            np.testing.assert_array_equal(first, second)


def test_absent_accumulators_cannot_be_anchored() -> None:
    wanted = {ACCUMULATED: ("All",)}
    with pytest.raises(popart.popart_exception, match="Anchor tensor `Accum___w' not in Ir"):
        anchored(popart.SGD(PLAIN), options(1, 2), wanted)  # gradients are not accumulated
    with pytest.raises(popart.popart_exception, match="Anchor tensor `Accum___w' not in Ir"):
        anchored(popart.SGD({"defaultMomentum": (0.9, True)}), options(2, 1), wanted)


def test_kernels_accumulate_as_the_reference_does() -> None:
    data = np.random.default_rng(1).normal(size=(STEPS, 2, 2, MICRO, 3)).astype(np.float32)
    given = (data, MICRO, OPTIMIZERS["momentum"], popart.ReductionType.Sum, options(2, 2))
    found, wanted = trained(*given, backend="c"), trained(*given)
    np.testing.assert_allclose(found["w"], wanted["w"], rtol=2e-5, atol=1e-6)


def doubled(returned: Any, batches: int, options: Any, data: Array, settings: Any = None) -> Array:
    """The anchor of 2x in a training session, since only training has micro-batches."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2], settings or popart.InputSettings(), "x")
    w = builder.addInitializedInputTensor(np.array([2.0, 2.0], np.float32), "w")
    y = builder.aiOnnx.mul([x, w])
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(batches, {y: returned}),
        loss,
        popart.SGD({"defaultLearningRate": (0.0, False)}),
        device(),
        userOptions=options,
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": data}, anchors))
    found: Array = anchors[y]
    return found


def test_anchors_have_axes_for_batches_micro_batches_and_replicas() -> None:
    data = np.arange(24, dtype=np.float32).reshape(3, 2, 2, 2)  # batches, micro-batches, replicas
    both = options(accumulation=2, replicas=2)

    def anchored(*returned: Any) -> Array:
        return doubled(popart.AnchorReturnType(*returned), 3, both, data)

    np.testing.assert_array_equal(anchored("All"), 2 * data)
    np.testing.assert_array_equal(anchored("Final"), 2 * data[-1, -1])
    np.testing.assert_array_equal(anchored("Sum"), 2 * data.sum(axis=(0, 1)))


def test_every_nth_counts_micro_batches() -> None:
    data = np.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], np.float32)
    found = doubled(popart.AnchorReturnType("EveryN", 2), 2, options(accumulation=2), data)
    np.testing.assert_array_equal(found, 2 * data[:, 1])


def test_replicas_share_an_input_that_is_broadcast() -> None:
    data = np.array([[1, 2], [3, 4]], np.float32)  # micro-batches
    both = options(accumulation=2, replicas=2)
    settings = popart.InputSettings(popart.ReplicatedStreamMode.Broadcast)
    found = doubled(popart.AnchorReturnType("All"), 1, both, data, settings)
    np.testing.assert_array_equal(found, 2 * data[:, None].repeat(2, axis=1))


def test_a_model_keeps_replica_settings() -> None:
    builder, y, _ = linear(2, popart.InputSettings(popart.ReplicatedStreamMode.Broadcast))
    read = popart.Builder(builder.getModelProto())
    session = popart.InferenceSession(
        read.getModelProto(), popart.DataFlow(1, [y]), device(), userOptions=options(replicas=2)
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": np.ones((2, 3), np.float32)}, anchors))
    assert anchors[y].shape == (2, 2, 2)
    assert session.replicationFactor == 2


def normalized(replicas: int, batches: Array) -> dict[str, Array]:
    """The weights of a session whose normalization keeps running statistics."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4, 2, 1], "x")
    first = {"scale": 1.0, "bias": 0.0, "mean": 0.0, "var": 1.0}
    weights = [
        builder.addInitializedInputTensor(np.full(2, value, np.float32), name)
        for name, value in first.items()
    ]
    y = builder.aiOnnx.batchnormalization([x, *weights], 5 if replicas else 1, 1e-5, 0.9)[0]
    loss = builder.aiGraphcore.l1loss([y], 1.0, popart.ReductionType.Sum)
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(len(batches), []),
        loss,
        popart.ConstSGD(1e-3),
        device(),
        userOptions=options(replicas=replicas),
    )
    session.prepareDevice()
    session.weightsFromHost()
    for _ in range(2):
        session.run(popart.PyStepIO({"x": np.ascontiguousarray(batches)}, {}))
    session.weightsToHost()
    return dict(session.weights())


def test_running_statistics_are_per_replica() -> None:
    """The host reads those of the first replica, which are independent of the second."""
    data = np.random.default_rng(2).normal(size=(3, 2, 4, 2, 1)).astype(np.float32)
    data[:, 1] += 10
    alone, both = normalized(1, data[:, 0]), normalized(2, data)
    for name in ("mean", "var"):
        np.testing.assert_allclose(both[name], alone[name], rtol=1e-6)
    assert not np.allclose(both["scale"], alone["scale"], rtol=1e-4)


WRONG: dict[str, tuple[Any, str]] = {
    "no micro-batch": (
        lambda: trained_with(enableGradientAccumulation=True, accumulationFactor=0),
        "accumulationFactor is 0, and must be at least 1",
    ),
    "no replica": (
        lambda: trained_with(enableReplicatedGraphs=True, replicatedGraphCount=0),
        "replicatedGraphCount is 0, and must be at least 1",
    ),
    "odd number of IPUs": (
        lambda: trained_with(enableReplicatedGraphs=True, replicatedGraphCount=3),
        "the number of IPUs must be divisible by the replication factor",
    ),
    "no reduction": (
        lambda: trained_with(
            accumulationAndReplicationReductionType=popart.ReductionType.NoReduction
        ),
        "gradients of micro-batches and replicas are added up or averaged",
    ),
}


def trained_with(**asked: object) -> None:
    made = popart.SessionOptions()
    for name, value in asked.items():
        setattr(made, name, value)
    trained(np.ones((1, MICRO, 3), np.float32), MICRO, OPTIMIZERS["SGD"], None, made)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_options_are_refused(name: str) -> None:
    call, text = WRONG[name]
    with pytest.raises(popart.popart_exception, match=text):
        call()


def test_a_buffer_of_the_wrong_size_says_how_steps_are_shaped() -> None:
    with pytest.raises(popart.popart_runtime_error) as caught:
        doubled(popart.AnchorReturnType("All"), 2, options(2, 2), np.ones((2, 2), np.float32))
    text = str(caught.value.args[0])
    assert "Expected 16, but received 4." in text
    assert "replication  factor = 2\n   accumulation factor = 2\n   batches per step    = 2" in text


def test_replicas_draw_different_numbers() -> None:
    """Replicas of a model without weights draw different numbers."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [50], "x")
    y = builder.aiOnnx.dropout([x], 1, 0.5)[0]
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [y]),
        loss,
        popart.ConstSGD(0.1),
        device(),
        userOptions=options(2, 2),
    )
    session.prepareDevice()
    session.setRandomSeed(7)
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": np.ones((2, 2, 50), np.float32)}, anchors))
    assert len({drawn.tobytes() for drawn in anchors[y].reshape(4, 50)}) == 4
