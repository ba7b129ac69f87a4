"""Runs on every rank: distributed replicas compute the numbers of replicas in one process."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import popgraph.popart as popart
from popgraph.support.arrays import Array
from popgraph.support.ranks.world import world

RANKS, RANK = world().size, world().rank
STEPS, ACCUMULATION, MICRO, FEATURES = 3, 2, 4, 3

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "SGD": lambda: popart.ConstSGD(0.1),
    "momentum, decay, scaled": lambda: popart.SGD(
        {
            "defaultMomentum": (0.9, True),
            "defaultWeightDecay": (0.1, True),
            "lossScaling": (16.0, False),
        }
    ),
    "separate momentum": lambda: popart.SGD(
        {"defaultMomentum": (0.9, False)},
        accumulatorAndMomentum=popart.SGDAccumulatorAndMomentum.Separate,
    ),
    "Adam": lambda: popart.Adam({"defaultLearningRate": (0.05, False)}),
    "clipped": lambda: popart.SGD(
        {"defaultMomentum": (0.5, True)},
        clip_norm_settings=[popart.ClipNormSettings.clipAllWeights(0.3)],
    ),
}


def network(
    *,
    drops: bool = False,
    normalizes: bool = False,
    communicates: bool = False,
    shared: tuple[int, int, int] | None = None,
) -> tuple[bytes, str]:
    """The model of two layers with an L1 loss, and the name of the loss."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [MICRO, FEATURES], "x")
    random = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> str:
        return builder.addInitializedInputTensor(random.normal(size=shape).astype("f"), name)

    if shared is None:
        w = weight("w", FEATURES, 5)
    else:
        groups, stride, size = shared
        values = random.normal(size=(groups, FEATURES, 5)).astype("f")
        w = builder.addInitializedInputTensor(values, popart.VariableSettings(stride, size), "w")
    y = builder.aiOnnx.tanh([builder.aiOnnx.matmul([x, w])])
    if normalizes:
        settings = [weight(name, 5) for name in ("scale", "bias", "mean")]
        variance = builder.addInitializedInputTensor(np.ones(5, np.float32), "variance")
        y = builder.aiOnnx.unsqueeze([y], [2])
        (y, *_) = builder.aiOnnx.batchnormalization([y, *settings, variance], num_outputs=5)
        y = builder.aiOnnx.squeeze([y], [2])
    if drops:
        (y,) = builder.aiOnnx.dropout([y], 1, ratio=0.5)
    if communicates:
        y = builder.aiGraphcore.replicatedallreduce([y])
    y = builder.aiOnnx.matmul([y, weight("v", 5, 2)])
    y = builder.aiOnnx.add([y, weight("b", 2)])
    loss = builder.aiGraphcore.l1loss([y], 0.1, popart.ReductionType.Sum)
    return builder.getModelProto(), loss


def options(replicas: int, *, accumulation: int = 1, mean: bool = False) -> Any:
    made = popart.SessionOptions()
    made.enableGradientAccumulation, made.accumulationFactor = accumulation > 1, accumulation
    made.enableReplicatedGraphs, made.replicatedGraphCount = replicas > 1, replicas
    if mean:
        made.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    return made


def spread(made: Any, replicas: int) -> Any:
    """Changes the options for a rank that runs `replicas` of the replicas."""
    made.enableDistributedReplicatedGraphs = True
    made.globalReplicationFactor, made.globalReplicaOffset = replicas * RANKS, replicas * RANK
    return made


def trained(
    model: bytes,
    loss: str,
    optimizer: Any,
    made: Any,
    data: Array,
    backend: str = "reference",
    anchor: str = "",
) -> tuple[dict[str, Array], Array]:
    """
    The weights after all steps, and the values of an anchor (by default the loss).

    Axes of `data` are steps, micro-batches, replicas, ...
    """
    device = popart.DeviceManager().createCpuDevice(backend=backend)
    flow = popart.DataFlow(1, [loss, anchor] if anchor else [loss])
    session = popart.TrainingSession(model, flow, loss, optimizer, device, userOptions=made)
    session.prepareDevice()
    if draws(model):
        session.setRandomSeed(7)
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    losses = []
    for step in data:
        session.run(popart.PyStepIO({"x": np.ascontiguousarray(step)}, anchors))
        losses.append(anchors[anchor or loss].copy())
    session.weightsToHost()
    return dict(session.weights()), np.array(losses)


def draws(model: bytes) -> bool:
    return b"Dropout" in model


def same(
    optimizer: Callable[[], Any],
    local: int = 1,
    *,
    backend: str = "reference",
    tolerance: float = 1e-5,
    narrow: str = "",
    buckets: int | None = None,
    kind: dict[str, Any] | None = None,
    shards: Sequence[str] = (),
    **how: Any,
) -> None:
    """Checks that ranks of `local` replicas train as one process with all replicas."""
    model, loss = network(**(kind or {}))
    total, accumulation = local * RANKS, how.get("accumulation", 1)
    axes = (STEPS, accumulation, total, MICRO, FEATURES)
    data = np.random.default_rng(1).normal(size=axes).astype(np.float32)
    together, all_losses = trained(model, loss, optimizer(), options(total, **how), data, backend)
    mine = slice(RANK * local, RANK * local + local)
    made = spread(options(local, **how), local)
    made.exchangeType = narrow
    set_shards(made, shards)
    if buckets is not None:
        made.exchangeBucketBytes = buckets
    own_weights, losses = trained(model, loss, optimizer(), made, data[:, :, mine], backend)
    shape = (STEPS, accumulation, local)
    whole = all_losses.reshape(STEPS, accumulation, total)
    np.testing.assert_allclose(losses.reshape(shape), whole[:, :, mine], rtol=tolerance)
    assert "w" in own_weights
    for name, value in together.items():
        if name.startswith(("Accum___", "Counter___")):
            continue  # Replicas of one process share an accumulator; those of ranks have one each.
        own = kind == {"normalizes": True} and name in ("mean", "variance")
        if own and RANK:
            continue  # One process keeps the running statistics of its first replica only.
        np.testing.assert_allclose(
            own_weights[name], value, rtol=tolerance, atol=tolerance, err_msg=name
        )
    assert not np.allclose(together["w"], network_weight(model, "w")), "nothing was trained"


def set_shards(made: Any, kinds: Sequence[str]) -> None:
    """Enables replicated tensor sharding for tensors of these kinds."""
    for kind in kinds:
        location = popart.TensorLocationSettings(
            popart.TensorLocation(popart.TensorStorage.OnChip, popart.ReplicatedTensorSharding.On),
            minElementsForReplicatedTensorSharding=3,
        )
        setattr(made, f"{kind}TensorLocationSettings", location)


def network_weight(model: bytes, name: str) -> Array:
    import onnx
    from onnx import numpy_helper

    tensors = onnx.load_from_string(model).graph.initializer
    return next(numpy_helper.to_array(one) for one in tensors if one.name == name)


def test_optimizers() -> None:
    for optimizer, mean in zip(OPTIMIZERS.values(), itertools.cycle((False, True))):
        same(optimizer, mean=mean)


def test_replicas_of_ranks() -> None:
    same(OPTIMIZERS["Adam"], 2, accumulation=ACCUMULATION, mean=True)


def test_accumulation() -> None:
    for name in ("SGD", "separate momentum"):
        same(OPTIMIZERS[name], accumulation=ACCUMULATION)


def test_accumulators() -> None:
    """The accumulators of a replica hold its own gradients, whichever process runs the others."""
    for name, prefix in (("SGD", "Accum___"), ("momentum, decay, scaled", "Accl___")):
        model, loss = network()
        for local, mean in ((1, True), (2, False)):
            shape = (STEPS, ACCUMULATION, local * RANKS, MICRO, FEATURES)
            data = np.random.default_rng(1).normal(size=shape).astype(np.float32)
            how: dict[str, Any] = {"accumulation": ACCUMULATION, "mean": mean}
            given = options(local * RANKS, **how), data
            _, whole = trained(model, loss, OPTIMIZERS[name](), *given, anchor=f"{prefix}w")
            mine = slice(RANK * local, RANK * local + local)
            own_run = spread(options(local, **how), local), data[:, :, mine]
            _, own = trained(model, loss, OPTIMIZERS[name](), *own_run, anchor=f"{prefix}w")
            own = own.reshape(STEPS, ACCUMULATION, local, *own.shape[-2:])
            np.testing.assert_allclose(own, whole[:, :, mine], rtol=1e-5, atol=1e-5)


def test_dropout_and_statistics() -> None:
    same(OPTIMIZERS["SGD"], 2, kind={"drops": True})
    same(OPTIMIZERS["SGD"], kind={"normalizes": True})


def test_compiled() -> None:
    momentum = OPTIMIZERS["momentum, decay, scaled"]
    same(momentum, accumulation=ACCUMULATION, backend="c", buckets=64)
    same(OPTIMIZERS["SGD"], backend="c", narrow="bf16", tolerance=0.05)


def test_collectives() -> None:
    """Replicas with collectives draw from random streams of their own."""
    same(OPTIMIZERS["SGD"], kind={"communicates": True})
    same(OPTIMIZERS["SGD"], 2, kind={"communicates": True, "drops": True})


def test_sharded_states() -> None:
    """Each rank keeps and updates a shard; weights and states are read back whole."""
    plain = lambda: popart.SGD({"defaultMomentum": (0.9, True), "lossScaling": (8.0, False)})  # noqa: E731
    states, all_of_them = ("optimizerState",), ("optimizerState", "accumulator")
    same(plain, accumulation=ACCUMULATION, shards=states, mean=True)
    same(OPTIMIZERS["Adam"], shards=states, backend="c")
    same(OPTIMIZERS["Adam"], 2, accumulation=ACCUMULATION, shards=all_of_them, mean=True)
    same(plain, accumulation=ACCUMULATION, shards=("accumulator",), backend="c")
    weights = ("weight", *all_of_them)
    same(OPTIMIZERS["Adam"], shards=weights, accumulation=ACCUMULATION, mean=True)
    same(plain, shards=("weight",), backend="c")
    same(plain, accumulation=ACCUMULATION, shards=("weight",))


def test_norms_of_sharded_gradients() -> None:
    """Sharded gradients are clipped by their norm over all shards, like whole ones."""
    clipped = OPTIMIZERS["clipped"]
    settings = popart.ClipNormSettings
    stages = ("optimizerState",), ("optimizerState", "accumulator"), ("weight",)
    for shards, mean in zip(stages, (True, False, True), strict=True):
        same(clipped, accumulation=ACCUMULATION, shards=shards, mean=mean)
    same(clipped, 2, shards=("optimizerState",), backend="c")
    groups = [settings(["w"], 0.2), settings(["v", "b"], 0.1)]
    adam = lambda: popart.Adam(  # noqa: E731
        {"defaultLearningRate": (0.05, False)}, clip_norm_settings=groups
    )
    every = ("weight", "optimizerState", "accumulator")
    same(adam, shards=every, backend="c")
    by_hand(2, None, accumulation=ACCUMULATION, shards=every)


def test_norms_of_weight_groups() -> None:
    """Each replica clips by a norm of its own, whichever process runs the others."""
    for local, *shared in ((1, 2, 1, 1), (2, 2, 1, 2), (2, 2, 2, 2), (2, 4, 1, 1)):
        by_hand(local, tuple(shared), accumulation=1 + local % 2)


def by_hand(
    local: int,
    shared: tuple[int, int, int] | None,
    *,
    accumulation: int,
    shards: Sequence[str] = (),
) -> None:
    """Checks sessions against NumPy where weight w may have groups: a norm for each replica."""
    model, loss = network(shared=shared)
    total, limit, rate = local * RANKS, 0.3, 0.1
    shape = (STEPS, accumulation, total, MICRO, FEATURES)
    data = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    clip = [popart.ClipNormSettings.clipAllWeights(limit)]
    optimizer = popart.SGD({"defaultLearningRate": (rate, True)}, clip)
    mine = slice(RANK * local, RANK * local + local)
    made = spread(options(local, accumulation=accumulation), local)
    set_shards(made, shards)
    found, _ = trained(model, loss, optimizer, made, data[:, :, mine])
    everyone = list(range(total))
    groups = popart.VariableSettings(*shared[1:]).groups(total) if shared else [everyone]
    firsts = {name: network_weight(model, name) for name in ("w", "v", "b")}
    firsts["w"] = firsts["w"].reshape(len(groups), FEATURES, 5)
    members = {r: group for group in groups for r in group}
    of_group = {r: number for number, group in enumerate(groups) for r in group}
    own = {r: [firsts["w"][of_group[r]], firsts["v"], firsts["b"]] for r in everyone}
    shrunk = 0
    for step in data:
        slopes = {r: slopes_of(own[r], step[:, r]) for r in everyone}
        for r in everyone:
            taken = [sum(slopes[one][0] for one in members[r])]
            taken += [sum(slopes[one][at] for one in everyone) for at in (1, 2)]
            norm = np.sqrt(sum((one**2).sum() for one in taken))
            shrunk += norm > limit
            factor = rate * limit / max(limit, norm)
            own[r] = [old - factor * one for old, one in zip(own[r], taken, strict=True)]
    assert shrunk > total
    stacked = [own[group[0]][0] for group in groups]
    np.testing.assert_allclose(found["w"].reshape(firsts["w"].shape), stacked, 1e-4, 1e-5)
    for name, wanted in zip(("v", "b"), own[mine.start][1:], strict=True):
        np.testing.assert_allclose(found[name], wanted, 1e-4, 1e-5)


def slopes_of(weights: Sequence[Array], micro_batches: Array) -> list[Array]:
    """The gradients of w, v and b, summed over all rows of all micro-batches."""
    w, v, b = weights
    x = micro_batches.reshape(-1, FEATURES)
    hidden = np.tanh(x @ w)
    above = 0.1 * np.sign(hidden @ v + b)
    below = (above @ v.T) * (1 - hidden**2)
    return [x.T @ below, hidden.T @ above, above.sum(0)]


def test_weight_groups() -> None:
    """Replicas of several ranks share a weight: adjacent ones, distant ones, or none."""
    for local, *shared in ((1, 2, 1, 1), (2, 2, 1, 2), (2, 2, 2, 2), (2, 4, 1, 1)):
        same(OPTIMIZERS["Adam"], local, kind={"shared": tuple(shared)}, mean=True)
    momentum = OPTIMIZERS["momentum, decay, scaled"]
    same(momentum, 2, accumulation=ACCUMULATION, kind={"shared": (2, 2, 2)}, backend="c")


def test_message_types_and_buckets() -> None:
    same(OPTIMIZERS["SGD"], narrow="bf16", tolerance=0.05)
    same(OPTIMIZERS["SGD"], buckets=1)


def test_mismatched_sessions() -> None:
    """Sessions that fit neither the number of ranks nor other sessions."""
    print_refusal(4)
    print_refusal(2, "f16" if RANK else "")


def print_refusal(total: int, message_type: str = "") -> None:
    """Prints why a session for `total` replicas cannot be prepared."""
    model, loss = network()
    made = popart.SessionOptions()
    made.enableDistributedReplicatedGraphs, made.exchangeType = True, message_type
    made.globalReplicationFactor, made.globalReplicaOffset = total, RANK
    flow, device = popart.DataFlow(1, [loss]), popart.DeviceManager().createCpuDevice()
    session = popart.TrainingSession(
        model, flow, loss, popart.ConstSGD(0.1), device, userOptions=made
    )
    try:
        session.prepareDevice()
    except popart.popart_exception as error:
        print(str(error).replace(f"rank {RANK} of", "rank 0 of"), flush=True)


if __name__ == "__main__":
    wanted = sys.argv[1:]
    for name, test in list(globals().items()):
        if name.startswith("test_") and (not wanted or name in wanted):
            test()
            print(f"{name} on rank {RANK}", flush=True)
