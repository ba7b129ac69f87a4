"""Tests that virtual graphs and pipeline stages change no result, and PopART's checks of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import popgraph.popart as popart
from popgraph.support.arrays import Array


def two_layers(places: list[dict[str, int]], shared: bool = False) -> tuple[Any, str, str]:
    """Two matmuls and a loss, each with annotations such as {"virtualGraph": 0}."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 2], "x")
    w = builder.addInitializedInputTensor(np.array([[1, 2], [3, 4]], np.float32), "w")
    v = w if shared else builder.addInitializedInputTensor(np.ones((2, 2), np.float32), "v")
    y = builder.aiOnnx.matmul([x, w])
    z = builder.aiOnnx.matmul([y, v])
    loss = builder.aiGraphcore.identityloss([z], popart.ReductionType.Sum)
    for id, notes in zip((y, z, loss), places, strict=False):
        for name, number in notes.items():
            getattr(builder, name)(id, number)
    return builder, z, loss


def options(**asked: object) -> Any:
    made = popart.SessionOptions()
    made.virtualGraphMode, made.enablePipelining = popart.VirtualGraphMode.Manual, True
    for name, value in asked.items():
        setattr(made, name, value)
    return made


def device(ipus: int = 2) -> Any:
    made = popart.DeviceManager().createIpuModelDevice({"numIPUs": ipus})
    made.backend = "reference"
    return made


def on(*ipus: int) -> list[dict[str, int]]:
    return [{"virtualGraph": ipu} for ipu in ipus]


DATA = np.arange(12, dtype=np.float32).reshape(3, 2, 2)


def inferred(options: Any, places: list[dict[str, int]], batches: int = 3, **named: Any) -> Array:
    builder, z, _ = two_layers(places, named.pop("shared", False))
    returned = popart.AnchorReturnType(*named.pop("returned", ("All",)))
    session = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(batches, {z: returned}),
        named.pop("device", None) or device(),
        userOptions=options,
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": DATA[:batches]}, anchors))
    found: Array = anchors[z]
    return found


def trained(options: Any, places: list[dict[str, int]]) -> Array:
    builder, _, loss = two_layers(places)
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [loss]),
        loss,
        popart.ConstSGD(0.01),
        device(),
        userOptions=options,
    )
    session.prepareDevice()
    session.weightsFromHost()
    session.run(popart.PyStepIO({"x": DATA}, session.initAnchorArrays()))
    session.weightsToHost()
    return session.weights()["w"]


@pytest.mark.parametrize(
    "places", [on(0, 1, 1), [{"pipelineStage": n, "virtualGraph": n} for n in (0, 1, 1)]]
)
def test_a_pipeline_infers_as_without(places: list[dict[str, int]]) -> None:
    plain = inferred(popart.SessionOptions(), [])
    np.testing.assert_array_equal(inferred(options(), places), plain)


def test_a_pipeline_that_accumulates_trains_as_without() -> None:
    three = {"enableGradientAccumulation": True, "accumulationFactor": 3}
    plain = options(enablePipelining=False, virtualGraphMode=popart.VirtualGraphMode.Off, **three)
    np.testing.assert_array_equal(trained(options(**three), on(0, 1, 1)), trained(plain, []))


def test_stages_require_no_pipeline() -> None:
    """Without a pipeline, stages are ignored, as in PopART."""
    loose = options(enablePipelining=False)
    backwards = [{"virtualGraph": 0, "pipelineStage": 3}, *on(0, 0)]
    assert inferred(loose, backwards).shape == (3, 2, 2)


def called(inner: int | None) -> None:
    """A pipeline of two calls of one graph, whose node is on an IPU."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2], "x")
    body = builder.createSubgraphBuilder()
    y = body.aiOnnx.abs([body.addInputTensor("FLOAT", [2])])
    if inner is not None:
        body.virtualGraph(y, inner)
    body.addOutputTensor(y)
    first = builder.aiGraphcore.call([x], 1, body)[0]
    builder.virtualGraph(first, 0)
    second = builder.aiOnnx.add([first, x])  # Inputs may be read on several IPUs.
    builder.virtualGraph(second, 1)
    popart.InferenceSession(
        builder.getModelProto(), popart.DataFlow(3, [second]), device(), userOptions=options()
    )


def test_a_cpu_stands_for_any_number_of_ipus() -> None:
    cpu = popart.DeviceManager().createCpuDevice(backend="reference")
    plain = inferred(popart.SessionOptions(), [])
    np.testing.assert_array_equal(inferred(options(), on(0, 1, 1), device=cpu), plain)


def test_a_call_is_on_the_ipu_of_its_graph() -> None:
    called(0)


class Deep:
    """Three matmuls with tanh between them, trained in a pipeline."""

    def __init__(
        self,
        stages: tuple[int, ...] = (0, 1, 2),
        ipus: tuple[int, ...] = (0, 1, 2),
        shared: bool = False,
        mode: Any = popart.VirtualGraphMode.Manual,
        backend: str = "reference",
        anchors: list[str] | None = None,
        **asked: Any,
    ) -> None:
        generator = np.random.default_rng(5)
        self.mode = mode
        self.weights = [generator.normal(size=(2, 2)).astype(np.float32) for _ in stages]
        builder = popart.Builder()
        y = builder.addInputTensor("FLOAT", [2, 2], "x")
        names = [
            builder.addInitializedInputTensor(w, f"w{at}") for at, w in enumerate(self.weights)
        ]
        for at, (stage, ipu) in enumerate(zip(stages, ipus, strict=True)):
            with self._place(builder, stage, ipu):
                y = builder.aiOnnx.matmul([y, names[0 if shared and at == 2 else at]])
                y = builder.aiOnnx.tanh([y])
        with self._place(builder, stages[-1], ipus[-1]):
            loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
        self.batches = 7
        made = device(2 if mode is popart.VirtualGraphMode.Auto else 4)
        made.backend = backend
        self.session = popart.TrainingSession(
            builder.getModelProto(),
            popart.DataFlow(self.batches, anchors or [loss]),
            loss,
            popart.SGD({"defaultLearningRate": (0.1, True), "defaultMomentum": (0.5, True)}),
            made,
            userOptions=options(
                virtualGraphMode=mode,
                accumulationFactor=5 if asked.get("enableGradientAccumulation") else 1,
                **asked,
            ),
        )
        self.session.prepareDevice()
        self.session.weightsFromHost()

    @contextmanager
    def _place(self, builder: Any, stage: int, ipu: int) -> Iterator[None]:
        if self.mode is popart.VirtualGraphMode.Auto:
            yield
        else:
            with builder.pipelineStage(stage), builder.virtualGraph(ipu):
                yield

    def run(self, data: Array) -> Array:
        anchors = self.session.initAnchorArrays()
        self.session.run(popart.PyStepIO({"x": data}, anchors))
        (found,) = anchors.values()
        return found

    def trained(self) -> list[Array]:
        self.session.weightsToHost()
        return [self.session.weights()[f"w{at}"] for at in range(len(self.weights))]


def cycles(weights: list[Array], speeds: list[Array], data: Array) -> Array:
    """The losses of a pipelined step in NumPy, cycle by cycle."""
    layers, losses = len(weights), np.zeros(len(data), np.float32)
    kept: dict[tuple[int, int], Array] = {}
    gradients: dict[int, Array] = {}
    for cycle in range(len(data) + 2 * layers - 2):
        for stage in range(2 * layers - 1):
            batch = cycle - stage
            if not 0 <= batch < len(data):
                continue
            if stage < layers:
                kept[batch, 0] = data[batch]
                kept[batch, stage + 1] = np.tanh(kept[batch, stage] @ weights[stage])
            if stage == layers - 1:
                losses[batch] = kept[batch, layers].sum()
                gradients[batch] = np.ones((2, 2), np.float32)
            if stage >= layers - 1:
                at = 2 * layers - 2 - stage
                dy = gradients[batch] * (1 - kept[batch, at + 1] ** 2)
                gradients[batch] = dy @ weights[at].T
                speeds[at][...] = 0.5 * speeds[at] + kept[batch, at].T @ dy
                weights[at][...] -= 0.1 * speeds[at]
    return losses


@pytest.mark.parametrize("backend", ["reference", "c"])
def test_a_pipeline_that_updates_at_once_trains_with_older_weights(backend: str) -> None:
    deep = Deep(backend=backend)
    weights = [w.copy() for w in deep.weights]
    speeds = [np.zeros_like(w) for w in weights]
    for data in np.random.default_rng(6).normal(size=(2, 7, 2, 2)).astype(np.float32):
        wanted = cycles(weights, speeds, data)
        np.testing.assert_allclose(deep.run(data), wanted, 1e-4, 1e-5)
    for found, w in zip(deep.trained(), weights, strict=True):
        np.testing.assert_allclose(found, w, 1e-4, 1e-5)
    assert set(deep.session.weights()) == {f"{a}w{n}" for n in range(3) for a in ("", "Accl___")}


def test_a_pipeline_restores_stashed_tensors() -> None:
    deep = Deep(anchors=["Restored___Tanh:0", "Tanh:0"], enableGradientAccumulation=True)
    anchors = deep.session.initAnchorArrays()
    data = np.random.default_rng(6).normal(size=(7, 5, 2, 2)).astype(np.float32)
    deep.session.run(popart.PyStepIO({"x": data}, anchors))
    np.testing.assert_array_equal(anchors["Restored___Tanh:0"], anchors["Tanh:0"])
    assert np.abs(anchors["Tanh:0"]).max() > 0.1


def operators(**asked: Any) -> list[dict[str, Any]]:
    deep = Deep(enableGradientAccumulation=True, **asked)
    found = json.loads(deep.session._serializeIr(popart.IrSerializationFormat.JSON))
    ops: list[dict[str, Any]] = found["maingraph"]
    return ops


def ipu_of(op: dict[str, Any]) -> str:
    return str(op["attributes"]["__ipu_number"])


def of_type(ops: list[dict[str, Any]], type_: str) -> dict[str, tuple[str, str]]:
    """The IPU and stage of operators of a type, by their first operand."""
    return {
        op["inputs"][0]["name"]: (ipu_of(op), op["attributes"]["__pipeline_stage"])
        for op in ops
        if op["type"] == type_
    }


def test_the_ir_of_a_pipeline_says_where_nodes_and_their_gradients_are() -> None:
    ops = operators()
    assert of_type(ops, "Tanh") == {
        "MatMul:0": ("0", "0"),
        "MatMul:0/1": ("1", "1"),
        "MatMul:0/2": ("2", "2"),
    }
    assert set(of_type(ops, "TanhGrad").values()) == {("2", "2"), ("1", "3"), ("0", "4")}


def test_consecutive_stages_on_an_ipu_are_merged() -> None:
    """Consecutive stages on one IPU are merged, so their weights have the same delay."""
    data = np.random.default_rng(6).normal(size=(7, 2, 2)).astype(np.float32)
    apart, together = Deep((0, 1, 2), (0, 0, 1)), Deep((0, 0, 1), (0, 0, 1))
    np.testing.assert_array_equal(apart.run(data), together.run(data))
    np.testing.assert_array_equal(apart.trained(), together.trained())


@pytest.mark.parametrize(("ratios", "last"), [((), 2), ((0.1, 0.9), 1)])
def test_ipus_share_a_pipeline_by_cost(ratios: tuple[float, ...], last: int) -> None:
    """`last` is the first layer on the second IPU."""
    data = np.random.default_rng(6).normal(size=(7, 2, 2)).astype(np.float32)
    shared = Deep(mode=popart.VirtualGraphMode.Auto, virtualGraphSplitRatios=list(ratios))
    ops = json.loads(shared.session._serializeIr(popart.IrSerializationFormat.JSON))["maingraph"]
    products = [op for op in ops if op["type"] == "MatMul"]
    homes = {op["inputs"][1]["name"].removeprefix("Delayed___"): ipu_of(op) for op in products}
    ipus = tuple(int(homes[f"w{at}"]) for at in range(3))
    assert ipus == tuple(int(at >= last) for at in range(3))
    assigned = Deep(ipus, ipus)
    np.testing.assert_array_equal(shared.run(data), assigned.run(data))


def shared_out(ipus: int, *, trains: bool) -> list[int]:
    """The IPUs of matmul, relu, matmul, softmax, loss: 2 features, 2 hidden units, 16 classes."""
    builder = popart.Builder()
    x, labels = builder.addInputTensor("FLOAT", [2, 2]), builder.addInputTensor("INT32", [2])
    weights = [np.ones((2, 2), np.float32), np.ones((2, 16), np.float32)]
    first, second = map(builder.addInitializedInputTensor, weights)
    layer = builder.aiOnnx.matmul([x, first])
    row = builder.aiOnnx.reshape([layer, builder.aiOnnx.constant(np.array([2, 2], np.int64))])
    active = builder.aiOnnx.relu([row])
    scores = builder.aiOnnx.matmul([active, second])
    shares = builder.aiOnnx.softmax([scores])
    loss = builder.aiGraphcore.nllloss([shares, labels])
    made = options(virtualGraphMode=popart.VirtualGraphMode.Auto, enablePipelining=False)
    given = builder.getModelProto(), popart.DataFlow(1, [loss])
    session: Any
    if trains:
        rule = popart.ConstSGD(0.1)
        session = popart.TrainingSession(*given, loss, rule, device(ipus), userOptions=made)
    else:
        session = popart.InferenceSession(*given, device(ipus), userOptions=made)
    ops = json.loads(session._serializeIr(popart.IrSerializationFormat.JSON))["maingraph"]
    homes = {op["outputs"][0]["name"]: op for op in reversed(ops) if op["outputs"]}
    return [int(ipu_of(homes[id])) for id in (layer, active, scores, shares, loss)]


def test_ipus_balance_bytes_of_weights_and_saved_tensors() -> None:
    """
    PopART's rule balances cumulative bytes: 32, 48, 192, 320 and 456 in training.

    MatMul: its weight and its input; Relu and Softmax: their result; Nll: both inputs; Reshape
    reads nothing. In inference, weights alone: 16 and 144 bytes.
    """
    assert shared_out(2, trains=True) == [0, 0, 0, 1, 1]
    assert shared_out(3, trains=True) == [0, 0, 0, 1, 2]
    assert shared_out(2, trains=False) == [0, 1, 1, 1, 1]
    match = r"^\[AutoVirtualGraph\] Couldn't find enough splits for 7 IPUs. Only found 5"
    with pytest.raises(popart.popart_exception, match=match):
        shared_out(7, trains=True)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "one IPU": (
        lambda: inferred(options(), on(0, 0, 0), device=device(1)),
        r"Pipelining requires more than 1 IPU \(currently 1\) and the 'virtualGraphMode' session "
        r"option to not be VirtualGraphMode::Off \(currently VirtualGraphMode::Manual\)",
    ),
    "no virtual graphs": (
        lambda: inferred(options(virtualGraphMode=popart.VirtualGraphMode.Off), []),
        r"Pipelining requires more than 1 IPU \(currently 2\) .* \(currently VirtualGraphMode::Off",
    ),
    "some nodes on IPUs": (
        lambda: inferred(options(enablePipelining=False), on(0)),
        r"Either all Ops must have their .* or none must\..*\n  -1 : 2\n  0 : 1",
    ),
    "no nodes on IPUs": (
        lambda: inferred(options(enablePipelining=False), []),
        "is VirtualGraphMode::Manual, but no Ops have been annotated with virtual graph",
    ),
    "an IPU that is not there": (
        lambda: inferred(options(enablePipelining=False), on(0, 10, 10)),
        r"inputs=\[\S+_c10, v\], outputs=\[\S+\]\) has been assigned to an invalid .* graph 10",
    ),
    "a call of what is nowhere": (
        lambda: called(None),
        r'Op Op\(.*\) in subgraph ".*" does not have a virtual graph id',
    ),
    "a call of what is elsewhere": (
        lambda: called(1),
        r"The virtual graph id \(1\) for Op Op\(.* does not match the virtual graph id \(0\) of",
    ),
    "some stages": (
        lambda: inferred(options(), [{"virtualGraph": 0, "pipelineStage": 0}, *on(1, 1)]),
        r"Only some ops have had their pipeline stage set. Ops missing the pipeline stage:\n  Op\(",
    ),
    "a stage on two IPUs": (
        lambda: inferred(options(), [{"virtualGraph": n, "pipelineStage": 0} for n in (0, 1, 1)]),
        r"have the same pipeline stage 0, but different virtual graph ids \{0, 1\}",
    ),
    "stages backwards": (
        lambda: inferred(options(), on(1, 0, 0)),
        "is consumed in an earlier pipeline stage than it is produced",
    ),
    "a negative stage": (
        lambda: inferred(options(), [{"virtualGraph": 0, "pipelineStage": -1} for _ in range(3)]),
        "Op has bad pipeline stage -1",
    ),
    "a weight on two IPUs": (
        lambda: inferred(options(), on(0, 1, 1), shared=True),
        "Can not copy variable tensor w between virtual graphs when pipelining",
    ),
    "too few batches": (
        lambda: inferred(options(), on(0, 1, 1), batches=1),
        r"depth \(batchesPerStep\) must equal at least the number of pipeline stages \(2\)",
    ),
    "too few micro-batches": (
        lambda: trained(options(enableGradientAccumulation=True), on(0, 1, 1)),
        r"depth \(gradient accumulation factor\) must equal at least .* stages \(3\)",
    ),
    "every second batch": (
        lambda: inferred(options(), on(0, 1, 1), batches=2, returned=("EveryN", 2)),
        "AnchorReturnType::EVERYN is not valid for pipelined models",
    ),
    "too few batches to train": (
        lambda: trained(options(), on(0, 1, 1)),
        r"depth \(batchesPerStep\) must equal at least the number of pipeline stages \(3\)",
    ),
    "a stage that is missing": (
        lambda: inferred(
            options(), [{"virtualGraph": n, "pipelineStage": 2 * n} for n in (0, 1, 1)]
        ),
        "The set of pipeline stages for all Ops contains 2 stages, but stage 1 is missing",
    ),
    "explicit loops without explicit recomputation": (
        lambda: inferred(options(enableExplicitMainLoops=True, useHostCopyOps=True), on(0, 1, 1)),
        "Explicit pipelining requires explicit recomputation to be enabled",
    ),
    "a weight of two stages that is updated at once": (
        lambda: Deep(stages=(0, 1, 2), ipus=(0, 1, 0), shared=True),
        "but the pipeline updates it while batches are in flight",
    ),
    "recomputation": (
        lambda: inferred(
            options(),
            [{"virtualGraph": 0, "recomputeOutput": popart.RecomputeType.Recompute}, *on(1, 1)],
        ),
        "user annotation for recomputation is not allowed",
    ),
    "aliases": (
        lambda: inferred(options(aliasZeroCopy=True), on(0, 1, 1)),
        "Alias zero copy is not supported with implicit pipelining",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_pipelines_that_popart_refuses(name: str) -> None:
    call, text = REFUSED[name]
    with pytest.raises(popart.popart_exception, match=text):
        call()


@pytest.mark.parametrize("backend", ["reference", "c"])
def test_forward_only_programs(backend: str) -> None:
    """Uses the trained weights, and changes nothing."""
    chosen = device()
    chosen.backend = backend
    builder, z, loss = two_layers(on(0, 1, 1))
    names = {z: "All", loss: "All", "Gradient___w": "All"}
    flow = {id: popart.AnchorReturnType(kind) for id, kind in names.items()}
    asked = options(enableGradientAccumulation=True, accumulationFactor=4)
    asked.createImplicitPipeliningFwdOnlyProgram = True
    session = popart.TrainingSession(
        *(builder.getModelProto(), popart.DataFlow(1, flow), loss),
        *(popart.SGD({"defaultMomentum": (0.9, True)}), chosen),
        userOptions=asked,
    )
    session.prepareDevice()
    session.weightsFromHost()
    data = np.arange(16, dtype=np.float32).reshape(4, 2, 2) / 8
    w, v = np.array([[1, 2], [3, 4]], np.float32), np.ones((2, 2), np.float32)
    for _ in range(2):
        anchors = session.initAnchorArrays()
        anchors["Gradient___w"][...] = -7
        session.run("implicitPipeliningFwdOnly", popart.PyStepIO({"x": data}, anchors))
        np.testing.assert_allclose(anchors[z], data @ w @ v, rtol=1e-5)
        assert (anchors["Gradient___w"] == -7).all(), "nothing writes what only gradients compute"
        session.weightsToHost()
        held = session.weights()
        np.testing.assert_allclose(held["w"], w, rtol=1e-5)
        session.run(popart.PyStepIO({"x": data}, anchors))
        assert not (anchors["Gradient___w"] == -7).any()
        np.testing.assert_allclose(anchors[z], data @ w @ v, rtol=1e-5)
        session.weightsToHost()
        w, v = (np.array(session.weights()[name]) for name in "wv")
        assert not np.allclose(w, held["w"])
    with pytest.raises(popart.popart_exception, match=r"\[Devicex::run\] Program other not found"):
        session.run("other", popart.PyStepIO({"x": data}, anchors))
    graphs = json.loads(session._serializeIr(popart.IrSerializationFormat.JSON))
    stages = {int(op["attributes"].get("__pipeline_stage", -1)) for op in graphs["maingraph"]}
    assert {0, 1, 2, 3} <= stages


def test_forward_only_programs_of_replicas() -> None:
    builder, z, loss = two_layers(on(0, 1, 1))
    flow = {id: popart.AnchorReturnType("All") for id in (z, "Gradient___w")}
    asked = options(enableGradientAccumulation=True, accumulationFactor=4)
    asked.createImplicitPipeliningFwdOnlyProgram = asked.enableReplicatedGraphs = True
    asked.replicatedGraphCount = 2
    session = popart.TrainingSession(
        *(builder.getModelProto(), popart.DataFlow(1, flow), loss, popart.ConstSGD(0.1)),
        *(device(4),),
        userOptions=asked,
    )
    session.prepareDevice()
    session.weightsFromHost()
    data = np.arange(32, dtype=np.float32).reshape(4, 2, 2, 2) / 8
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": data}, anchors))
    session.weightsToHost()
    w, v = (np.array(session.weights()[name]) for name in "wv")
    session.run("implicitPipeliningFwdOnly", popart.PyStepIO({"x": data}, anchors))
    np.testing.assert_allclose(anchors[z], data @ w @ v, rtol=1e-5)


def test_forward_only_programs_compute_no_gradient(
    capfd: pytest.CaptureFixture[str],
) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 2], "x")
    w = builder.addInitializedInputTensor(np.ones((2, 2), np.float32), "w")
    with builder.virtualGraph(0):
        y = builder.aiOnnx.matmul([x, w])
        y = builder.aiGraphcore.printtensor([y])
    with builder.virtualGraph(1):
        loss = builder.aiGraphcore.l1loss([y], 0.1)
    asked = options(enableGradientAccumulation=True, accumulationFactor=4)
    asked.createImplicitPipeliningFwdOnlyProgram = True
    session = popart.TrainingSession(
        *(builder.getModelProto(), popart.DataFlow(1, [loss]), loss, popart.ConstSGD(0.1)),
        *(device(),),
        userOptions=asked,
    )
    session.prepareDevice()
    session.weightsFromHost()
    stepio = popart.PyStepIO({x: np.ones((4, 2, 2), np.float32)}, session.initAnchorArrays())
    session.run("implicitPipeliningFwdOnly", stepio)
    said = capfd.readouterr().err
    assert said.count(": [[") == 4 and "Gradient___" not in said
    session.run(stepio)
    assert "Gradient___" in capfd.readouterr().err


@pytest.mark.parametrize("value", [0.0, 2.0])
def test_forward_only_programs_abort_on_trained_weights(value: float) -> None:
    """The abort reads the weight before the update."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2], "x")
    w = builder.addInitializedInputTensor(np.array(value, np.float32), "w")
    with builder.virtualGraph(0):
        builder.aiGraphcore.abort([w])
        y = builder.aiOnnx.mul([x, w])
    with builder.virtualGraph(1):
        loss = builder.aiGraphcore.identityloss([y])
    asked = options(enableGradientAccumulation=True, accumulationFactor=4)
    asked.createImplicitPipeliningFwdOnlyProgram = True
    session = popart.TrainingSession(
        *(builder.getModelProto(), popart.DataFlow(1, [loss]), loss, popart.ConstSGD(0.1)),
        *(device(),),
        userOptions=asked,
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    stepio = popart.PyStepIO({x: np.ones((4, 2), np.float32)}, anchors)
    for handle in (("implicitPipeliningFwdOnly",), ()):
        if value:
            with pytest.raises(popart.poplar_application_runtime_error, match=r"^abort: the cond"):
                session.run(*handle, stepio)
        else:
            session.run(*handle, stepio)


def test_forward_only_programs_have_separate_stages() -> None:
    builder, z, loss = two_layers(on(0, 1, 1))
    asked = options(enableGradientAccumulation=True, accumulationFactor=3)
    asked.createImplicitPipeliningFwdOnlyProgram = True
    flow = popart.DataFlow(1, {z: popart.AnchorReturnType("All")})
    with pytest.raises(popart.popart_exception, match=r"number of pipeline stages \(4\)"):
        popart.TrainingSession(
            *(builder.getModelProto(), flow, loss, popart.ConstSGD(0.1), device()),
            userOptions=asked,
        )
