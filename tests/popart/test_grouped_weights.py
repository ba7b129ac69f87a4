"""Tests replicas with grouped weights or collectives against NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import popgraph.popart as popart
from popgraph.dialects.program import GraphOp
from popgraph.support.arrays import Array

REPLICAS = 4
GENERATOR = np.random.default_rng(3)
GROUPS = {
    "neighbours": popart.CommGroup(popart.CommGroupType.Consecutive, 2),
    "apart": popart.CommGroup(popart.CommGroupType.Orthogonal, 2),
    "each": popart.CommGroup(popart.CommGroupType.Ungrouped, 0),
    "all": popart.CommGroup(),
}
EVERY = popart.VariableRetrievalMode.AllReplicas
RATE, MOMENTUM = 0.1, 0.5


def options(accumulation: int = 1, replicas: int = REPLICAS) -> Any:
    made = popart.SessionOptions()
    made.enableReplicatedGraphs, made.replicatedGraphCount = True, replicas
    made.enableGradientAccumulation, made.accumulationFactor = accumulation > 1, accumulation
    return made


def settings_of(name: str, mode: Any = popart.VariableRetrievalMode.OnePerGroup) -> Any:
    return popart.VariableSettings(GROUPS[name], mode)


class Two:
    """The model (x @ w) @ v with grouped w, and its training by NumPy."""

    def __init__(self, settings: Any) -> None:
        self.groups = settings.groups(REPLICAS)
        self.held = {replica: at for at, group in enumerate(self.groups) for replica in group}
        self.w = GENERATOR.normal(size=(len(self.groups), 3, 2)).astype(np.float32)
        self.v = GENERATOR.normal(size=(2, 2)).astype(np.float32)
        self.moving = [np.zeros_like(self.w), np.zeros_like(self.v)]
        self.builder = popart.Builder()
        x = self.builder.addInputTensor("FLOAT", [2, 3], "x")
        stacked = self.w if len(self.groups) > 1 else self.w[0]
        w = self.builder.addInitializedInputTensor(stacked, settings, "w")
        v = self.builder.addInitializedInputTensor(self.v, "v")
        product = self.builder.aiOnnx.matmul([x, w])
        # Has this shape only if the axis of the groups is removed.
        self.hidden = self.builder.reshape_const(self.builder.aiOnnx, [product], [2, 2])
        self.y = self.builder.aiOnnx.matmul([self.hidden, v])
        sum_ = popart.ReductionType.Sum
        self.loss = self.builder.aiGraphcore.identityloss([self.y], sum_)

    def result(self, x: Array, replica: int) -> Array:
        found: Array = x @ self.w[self.held[replica]] @ self.v
        return found

    def train(self, data: Array, rate_of_w: float) -> None:
        """SGD with momentum by NumPy on data [steps, micro-batches, replicas]."""
        ones = np.ones((2, 2), np.float32)
        for step in data:
            gradients = [np.zeros_like(self.w), np.zeros_like(self.v)]
            for micro in step:
                for replica, x in enumerate(micro):
                    group = self.held[replica]
                    gradients[0][group] += x.T @ (ones @ self.v.T)
                    gradients[1] += (x @ self.w[group]).T @ ones
            pairs = zip(self.moving, gradients, strict=True)
            self.moving = [MOMENTUM * old + new for old, new in pairs]
            self.w = self.w - rate_of_w * self.moving[0]
            self.v = self.v - RATE * self.moving[1]


def device(backend: str = "reference") -> Any:
    made = popart.DeviceManager().createIpuModelDevice({"numIPUs": REPLICAS})
    made.backend = backend
    return made


@pytest.mark.parametrize("name", GROUPS)
def test_each_group_computes_with_its_own_weights(name: str) -> None:
    two = Two(settings_of(name))
    session = popart.InferenceSession(
        two.builder.getModelProto(),
        popart.DataFlow(2, [two.y]),
        device(),
        userOptions=options(),
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    data = GENERATOR.normal(size=(2, REPLICAS, 2, 3)).astype(np.float32)
    session.run(popart.PyStepIO({"x": data}, anchors))
    for batch, rows in enumerate(data):
        for replica, x in enumerate(rows):
            wanted = two.result(x, replica)
            np.testing.assert_allclose(anchors[two.y][batch, replica], wanted, 1e-5, 1e-6)


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("returned", ["OnePerGroup", "AllReplicas"])
@pytest.mark.parametrize(("accumulation", "backend"), [(1, "reference"), (3, "c")])
def test_gradients_are_summed_over_a_group(
    name: str, returned: str, accumulation: int, backend: str, tmp_path: Path
) -> None:
    settings = settings_of(name, popart.VariableRetrievalMode[returned])
    two = Two(settings)
    first = {"x": GENERATOR.normal(size=(2, accumulation, REPLICAS, 2, 3)).astype(np.float32)}
    rule = popart.SGD({"defaultLearningRate": (RATE, False), "defaultMomentum": (MOMENTUM, True)})
    rule.insertSpecific("w", {"learningRate": (2 * RATE, False)})
    session = popart.TrainingSession(
        two.builder.getModelProto(),
        popart.DataFlow(1, [two.y, "Gradient___w"]),
        two.loss,
        rule,
        device(backend),
        userOptions=options(accumulation),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    for step in first["x"]:
        session.run(popart.PyStepIO({"x": step}, anchors))
        gradients = anchors["Gradient___w"].reshape(accumulation, REPLICAS, 3, 2)
        local = step[0, 1].T @ (np.ones((2, 2)) @ two.v.T)
        np.testing.assert_allclose(gradients[0, 1], local, 1e-4, 1e-5)
        two.train(step[None], 2 * RATE)
    session.weightsToHost()
    count = settings.numReplicasReturningVariable(REPLICAS)
    arrays = {"w": np.zeros((count, 3, 2), np.float32), "v": np.zeros((2, 2), np.float32)}
    session.readWeights(popart.PyWeightsIO(arrays))
    wanted = [two.w[two.held[at]] for at in range(REPLICAS)] if returned[0] == "A" else two.w
    np.testing.assert_allclose(arrays["w"], wanted, 1e-4, 1e-5)
    np.testing.assert_allclose(arrays["v"], two.v, 1e-4, 1e-5)
    session.modelToHost(tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    assert [one.name for one in model.graph.initializer] == ["w", "v", "Accl___v", "Accl___w"]
    assert all(one.float_data for one in model.graph.initializer)
    kept = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    np.testing.assert_allclose(kept["w"].reshape(two.w.shape), two.w, 1e-4, 1e-5)
    trained = {id: array.copy() for id, array in session.weights().items()}
    session.run(popart.PyStepIO({"x": first["x"][0]}, anchors))
    session.resetHostWeights(tmp_path / "model.onnx")
    session.weightsFromHost()
    session.weightsToHost()
    for id, array in trained.items():
        np.testing.assert_array_equal(session.weights()[id], array, id)
    session.readWeights(popart.PyWeightsIO(again := {"w": np.zeros_like(arrays["w"])}))
    np.testing.assert_array_equal(again["w"], arrays["w"])
    written = {**arrays, "w": arrays["w"] if count > 1 else arrays["w"][0]}
    session.writeWeights(popart.PyWeightsIO(written))
    session.weightsFromHost()
    session.weightsToHost()
    again = {"w": np.zeros_like(arrays["w"])}
    session.readWeights(popart.PyWeightsIO(again))
    np.testing.assert_array_equal(again["w"], arrays["w"])


@pytest.mark.parametrize("name", GROUPS)
def test_accumulators_are_per_replica(name: str) -> None:
    """Accumulators are per replica; a group sums its gradients once a batch is complete."""
    two = Two(settings_of(name))
    ids = [f"{prefix}{weight}" for prefix in ("Gradient___", "Accum___") for weight in "wv"]
    session = popart.TrainingSession(
        two.builder.getModelProto(),
        popart.DataFlow(2, ids),
        two.loss,
        popart.SGD({"defaultLearningRate": (RATE, False)}),
        device("c"),
        userOptions=options(3),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    data = GENERATOR.normal(size=(2, 3, REPLICAS, 2, 3)).astype(np.float32)
    session.run(popart.PyStepIO({"x": data}, anchors))
    for weight, shape in {"w": (3, 2), "v": (2, 2)}.items():
        gradients, own = anchors[f"Gradient___{weight}"], anchors[f"Accum___{weight}"]
        assert own.shape == (2, 3, REPLICAS, *shape)
        np.testing.assert_allclose(own, gradients.cumsum(1), 1e-5, 1e-5)
        assert not np.allclose(own[:, :, 0], own[:, :, 1])


def test_a_new_optimizer_applies_to_all_groups() -> None:
    two = Two(settings_of("each"))
    session = popart.TrainingSession(
        two.builder.getModelProto(),
        popart.DataFlow(1, [two.y]),
        two.loss,
        popart.SGD({"defaultLearningRate": (RATE, False)}),
        device(),
        userOptions=options(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    still = popart.SGD({"defaultLearningRate": (0.0, False)})
    session.updateOptimizerFromHost(still)
    data = GENERATOR.normal(size=(REPLICAS, 2, 3)).astype(np.float32)
    session.run(popart.PyStepIO({"x": data}, session.initAnchorArrays()))
    session.weightsToHost()
    found = {"w": np.zeros_like(two.w)}
    session.readWeights(popart.PyWeightsIO(found))
    np.testing.assert_array_equal(found["w"], two.w)


def test_statistics_are_per_replica_with_grouped_weights() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4, 2, 1, 1], "x")
    scale = np.ones((2, 2), np.float32)
    w = builder.addInitializedInputTensor(scale, settings_of("each"), "w")
    zeros, ones = np.zeros(2, np.float32), np.ones(2, np.float32)
    names = [builder.addInitializedInputTensor(a, n) for a, n in ((zeros, "b"), (zeros, "m"))]
    var = builder.addInitializedInputTensor(ones, "s")
    y = builder.aiOnnx.batchnormalization([x, w, *names, var], 5, 1e-5, 0.5)[0]
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    given = options(replicas=2)
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [y]),
        loss,
        popart.SGD({"defaultLearningRate": (0.0, False)}),
        device(),
        userOptions=given,
    )
    session.prepareDevice()
    session.weightsFromHost()
    data = GENERATOR.normal(size=(2, 4, 2, 1, 1)).astype(np.float32)
    session.run(popart.PyStepIO({"x": data}, session.initAnchorArrays()))
    session.weightsToHost()
    mean = np.zeros(2, np.float32)
    session.readWeights(popart.PyWeightsIO({"m": mean}))
    np.testing.assert_allclose(mean, 0.5 * data[0].mean(axis=(0, 2, 3)), 1e-4, 1e-6)


@pytest.mark.parametrize("backend", ["reference", "c"])
def test_collectives_of_replicas(backend: str) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3], "x")
    graphcore = builder.aiGraphcore
    whole = graphcore.replicatedallreduce([x])
    most = graphcore.replicatedallreduce([x], popart.CollectiveOperator.Max, GROUPS["neighbours"])
    share = graphcore.replicatedreducescatter([x])
    every = builder.customOp("ReplicatedAllGather", 1, "ai.graphcore", [x], {}, 1)[0]
    ids = [whole, most, share, every]
    session = popart.InferenceSession(
        builder.getModelProto(), popart.DataFlow(1, ids), device(backend), userOptions=options()
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    data = GENERATOR.normal(size=(REPLICAS, 2, 3)).astype(np.float32)
    session.run(popart.PyStepIO({"x": data}, anchors))
    np.testing.assert_allclose(anchors[whole], [data.sum(0)] * REPLICAS, 1e-5, 1e-6)
    pairs = [data[:2].max(0)] * 2 + [data[2:].max(0)] * 2
    np.testing.assert_array_equal(anchors[most], pairs)
    filled = np.append(data.sum(0).reshape(-1), [0, 0]).reshape(REPLICAS, 2)
    np.testing.assert_allclose(anchors[share], filled, 1e-5, 1e-6)
    np.testing.assert_array_equal(anchors[every], [data.reshape(-1)] * REPLICAS)


def test_collectives_of_one_replica() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3], "x")
    y = builder.aiGraphcore.replicatedreducescatter([x])
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]))
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    data = GENERATOR.normal(size=(2, 3)).astype(np.float32)
    session.run(popart.PyStepIO({"x": data}, anchors))
    np.testing.assert_array_equal(anchors[y], data.reshape(-1))


def test_a_weight_without_an_axis_for_its_groups() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3], "x")
    settings = settings_of("each")
    w = builder.addInitializedInputTensor(np.ones(3, np.float32), settings, "w")
    assert builder.getTensorShape(w) == [3]
    y = builder.aiOnnx.mul([x, w])
    flow = popart.DataFlow(1, [y])
    with pytest.raises(popart.popart_internal_exception, match="should match numGroups: 4"):
        popart.InferenceSession(builder.getModelProto(), flow, userOptions=options())


def test_retrieval_modes_that_popart_refuses() -> None:
    reduced = settings_of("each", popart.VariableRetrievalMode.AllReduceReplicas)
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3], "x")
    w = builder.addInitializedInputTensor(np.ones((4, 3), np.float32), reduced, "w")
    y = builder.aiOnnx.mul([x, w])
    flow = popart.DataFlow(1, [y])
    with pytest.raises(popart.popart_unsupported_exception, match="w is to come back reduced"):
        popart.InferenceSession(builder.getModelProto(), flow, userOptions=options())


def test_replicas_of_one_program_draw_uniform_numbers_of_their_own() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [20], "x")
    drawn = builder.aiOnnx.randomuniformlike([x])
    y = builder.aiGraphcore.replicatedallreduce([drawn])
    session = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(1, [drawn, y]),
        device(),
        userOptions=options(),
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    data = np.zeros((REPLICAS, 20), np.float32)
    session.run(popart.PyStepIO({"x": data}, anchors))
    assert len(np.unique(anchors[drawn])) > 70
    np.testing.assert_allclose(anchors[y], [anchors[drawn].sum(0)] * REPLICAS, 1e-6)


@pytest.mark.parametrize("backend", ["reference", "c"])
def test_replicas_of_one_program_draw_numbers_of_their_own(backend: str) -> None:
    """Replicas draw different masks, and the gradient of each uses its own mask."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [50], "x")
    w = builder.addInitializedInputTensor(np.ones((2, 50), np.float32), settings_of("each"), "w")
    y = builder.aiOnnx.dropout([builder.aiOnnx.mul([x, w])], 1, 0.5)[0]
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [y, "Gradient___x"]),
        loss,
        popart.ConstSGD(0.1),
        device(backend),
        userOptions=options(replicas=2),
    )
    session.prepareDevice()
    session.weightsFromHost()
    session.setRandomSeed(5)
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": np.ones((2, 50), np.float32)}, anchors))
    first, second = anchors[y]
    assert np.sum(first != second) > 5
    np.testing.assert_array_equal(anchors["Gradient___x"], anchors[y])


@pytest.mark.parametrize("state", ["UpdatedVar___w", "Accl1___w", "Step___w", "w"])
def test_states_of_groups_can_be_anchored(state: str) -> None:
    two = Two(settings_of("each"))
    session = popart.TrainingSession(
        two.builder.getModelProto(),
        popart.DataFlow(1, [state]),
        two.loss,
        popart.Adam({"defaultLearningRate": (RATE, False)}),
        device(),
        userOptions=options(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    data = GENERATOR.normal(size=(REPLICAS, 2, 3)).astype(np.float32)
    session.run(popart.PyStepIO({"x": data}, anchors))
    session.weightsToHost()
    held = session.weights()[state.removeprefix("UpdatedVar___")]
    np.testing.assert_array_equal(anchors[state], held)
    assert not np.array_equal(held, two.w)


@pytest.mark.parametrize("backend", ["reference", "c"])
@pytest.mark.parametrize("grouped", [False, True])
def test_collectives_of_constant_weights_are_those_of_variables(
    grouped: bool, backend: str
) -> None:
    """Collectives of constants are not folded by a single replica."""
    found = []
    for constant in (True, False):
        builder = popart.Builder()
        settings = settings_of("neighbours" if grouped else "all")
        first = np.arange(12, dtype=np.float32).reshape(2, 6)
        w = builder.addInitializedInputTensor(first if grouped else first[1], settings, "w")
        graphcore, domain = builder.aiGraphcore, "ai.graphcore"
        combined = [
            graphcore.replicatedallreduce([w], one)
            for name, one in popart.CollectiveOperator.__members__.items()
            if not name.startswith("Logical")
        ]
        share = graphcore.replicatedreducescatter([w])
        every = builder.customOp("ReplicatedAllGather", 1, domain, [w], {}, 1)[0]
        twice = graphcore.replicatedallreduce([builder.aiOnnx.add([share, share])])
        ids = [*combined, share, every, twice]
        made = options()
        made.constantWeights = constant
        session = popart.InferenceSession(
            builder.getModelProto(), popart.DataFlow(1, ids), device(backend), userOptions=made
        )
        session.prepareDevice()
        session.weightsFromHost()
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({}, anchors))
        found.append({id: anchors[id] for id in ids})
    constants, variables = found
    for id, array in variables.items():
        np.testing.assert_array_equal(constants[id], array, id)


def test_collectives_in_a_called_graph() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3], "x")
    called = builder.createSubgraphBuilder()
    inner = called.addInputTensor("FLOAT", [2, 3])
    called.addOutputTensor(called.aiGraphcore.replicatedallreduce([inner]))
    y = builder.aiGraphcore.call([x], 1, called)[0]
    session = popart.InferenceSession(
        builder.getModelProto(), popart.DataFlow(1, [y]), device(), userOptions=options()
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    data = GENERATOR.normal(size=(REPLICAS, 2, 3)).astype(np.float32)
    session.run(popart.PyStepIO({"x": data}, anchors))
    np.testing.assert_allclose(anchors[y], [data.sum(0)] * REPLICAS, 1e-5, 1e-6)


def test_collectives_in_a_branch_are_refused() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2], "x")
    chosen = builder.addInputTensor("BOOL", [], "chosen")
    branches = [builder.createSubgraphBuilder() for _ in range(2)]
    for branch in branches:
        branch.addInputTensorFromParentGraph(x)
        branch.addOutputTensor(branch.aiGraphcore.replicatedallreduce([x]))
    y = builder.aiOnnx.logical_if([chosen], 1, branches[1], branches[0])[0]
    flow = popart.DataFlow(1, [y])
    with pytest.raises(
        popart.popart_exception, match="are not supported inside a loop or a branch"
    ):
        popart.InferenceSession(builder.getModelProto(), flow, device(), userOptions=options())


def test_collectives_of_one_replica_in_a_branch() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2], "x")
    chosen = builder.addInputTensor("BOOL", [], "chosen")
    branches = [builder.createSubgraphBuilder() for _ in range(2)]
    for branch in branches:
        branch.addInputTensorFromParentGraph(x)
        branch.addOutputTensor(branch.aiGraphcore.replicatedallreduce([x]))
    y = builder.aiOnnx.logical_if([chosen], 1, branches[1], branches[0])[0]
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), device())
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    given = {"x": np.array([1, 2], np.float32), "chosen": np.array(True)}
    session.run(popart.PyStepIO(given, anchors))
    np.testing.assert_array_equal(anchors[y], [1, 2])


CLIPPED = {"w": ["w"], "v": ["v"], "both": ["v", "w"], "all": []}


@pytest.mark.parametrize("clipped", CLIPPED)
@pytest.mark.parametrize(("name", "running"), [("neighbours", False), ("apart", True)])
def test_each_replica_clips_by_a_norm_of_its_own(name: str, clipped: str, running: bool) -> None:
    """
    Gradients are summed or averaged over groups; then each replica clips by its own norm.

    So replicas differ in v, too, and the host reads v of the first one.
    """
    weights, limit, micro = CLIPPED[clipped], 2.0, 2
    made = options(micro)
    if running:
        made.accumulationAndReplicationReductionType = popart.ReductionType.Mean
        strategy = popart.MeanReductionStrategy.Running
        made.meanAccumulationAndReplicationReductionStrategy = strategy
    settings = popart.ClipNormSettings
    group = settings(weights, limit) if weights else settings.clipAllWeights(limit)
    two = Two(settings_of(name, EVERY))
    session = popart.TrainingSession(
        two.builder.getModelProto(),
        popart.DataFlow(1, [two.y]),
        two.loss,
        popart.SGD({"defaultLearningRate": (RATE, True)}, [group]),
        device(),
        userOptions=made,
    )
    session.prepareDevice()
    session.weightsFromHost()
    w, v = [two.w[at] for at in (two.held[r] for r in range(REPLICAS))], [two.v] * REPLICAS
    ones = np.ones((2, 2), np.float32)
    for data in GENERATOR.normal(size=(2, micro, REPLICAS, 2, 3)).astype(np.float32):
        session.run(popart.PyStepIO({"x": data}, session.initAnchorArrays()))
        x = data.swapaxes(0, 1)
        dw = [sum(part.T @ ones @ v[r].T for part in x[r]) for r in range(REPLICAS)]
        dv = [sum((part @ w[r]).T @ ones for part in x[r]) for r in range(REPLICAS)]
        members = [two.groups[two.held[r]] for r in range(REPLICAS)]
        dw = [sum(dw[one] for one in members[r]) for r in range(REPLICAS)]
        dv = [sum(dv)] * REPLICAS
        if running:
            dw = [one / (micro * len(members[0])) for one in dw]
            dv = [one / (micro * REPLICAS) for one in dv]
        chosen = weights or ["v", "w"]
        for r in range(REPLICAS):
            parts = [part[r] for name, part in (("w", dw), ("v", dv)) if name in chosen]
            shrink = limit / max(limit, np.sqrt(sum((part**2).sum() for part in parts)))
            w[r] = w[r] - RATE * dw[r] * (shrink if "w" in chosen else 1)
            v[r] = v[r] - RATE * dv[r] * (shrink if "v" in chosen else 1)
    session.weightsToHost()
    found = {"w": np.zeros((REPLICAS, 3, 2), np.float32), "v": np.zeros((2, 2), np.float32)}
    session.readWeights(popart.PyWeightsIO(found))
    firsts = [w[group[0]] for group in two.groups]
    wanted = [firsts[two.held[r]] for r in range(REPLICAS)]
    np.testing.assert_allclose(found["w"], wanted, 1e-4, 1e-5)
    np.testing.assert_allclose(found["v"], v[0], 1e-4, 1e-5)
    before = session.weights()
    session.weightsFromHost()
    session.weightsToHost()
    for id, array in session.weights().items():
        assert array.shape == before[id].shape


STATISTICS = ["Gradient___w_statistics", "summedHistograms", "summedHistograms_reduced"]


def test_a_loss_scale_follows_the_gradients_of_all_replicas() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT16", [2, 3], "x")
    first = np.ones((2, 3, 2), np.float16)
    w = builder.addInitializedInputTensor(first, settings_of("each"), "w")
    y = builder.aiOnnx.matmul([x, w])
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    made = options(replicas=2)
    made.automaticLossScalingSettings = popart.AutomaticLossScalingSettings(True, None, 0.5, 0.1, 1)
    rule = popart.SGD({"defaultLearningRate": (0.0, False), "lossScaling": (2.0, False)})
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, ["Gradient___" + y, "finalLossScale", *STATISTICS]),
        loss,
        rule,
        device(),
        userOptions=made,
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    scales, larges = [], []
    for _ in range(3):
        given = {"x": np.stack([np.ones((2, 3)), np.full((2, 3), 2.0**14)]).astype(np.float16)}
        session.run(popart.PyStepIO(given, anchors))
        scales.append([float(anchors["Gradient___" + y].max()), *anchors["finalLossScale"]])
        larges.append([anchors[id][:, 1].tolist() for id in STATISTICS])
    assert scales == [[2, 2, 2], [1, 1, 1], [0.5, 0.5, 0.5]]
    # On replica 1, elements of `Gradient___w` are 2^15 * scale: above 32752 they are large.
    assert larges == [[[0, 6], [0, 6], [6, 6]]] * 2 + [[[0, 0], [0, 0], [0, 0]]]


def test_a_step_does_not_walk_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step must not walk the graph: everything is known when the program is compiled."""
    two = Two(settings_of("each"))
    session = popart.InferenceSession(
        two.builder.getModelProto(), popart.DataFlow(1, [two.y]), device("c"), userOptions=options()
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    given = {"x": np.zeros((REPLICAS, 2, 3), np.float32)}
    session.run(popart.PyStepIO(given, anchors))
    monkeypatch.setattr(GraphOp, "block", property(lambda self: pytest.fail("looked at")))
    session.run(popart.PyStepIO(given, anchors))


def test_groups_that_do_not_divide_the_replicas_name_the_weight() -> None:
    two = Two(settings_of("neighbours"))
    flow = popart.DataFlow(1, [two.y])
    with pytest.raises(popart.popart_exception, match="must be divisible") as caught:
        popart.InferenceSession(two.builder.getModelProto(), flow, userOptions=options(replicas=3))
    assert caught.value.__notes__ == ["  at: the weight w"]
