"""Explicit main loops and host copies: what PopART's IR shows, and that no number changes."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import popgraph.session as popart
from popgraph.support.arrays import Array

LAYERS, BATCHES, FACTOR = 3, 6, 6
MANUAL = popart.VirtualGraphMode.Manual
Operators = dict[str, list[dict[str, Any]]]


class Layers:
    """A session that trains layers, of which each may be on an IPU, in a stage, of its own."""

    def __init__(
        self,
        *,
        batches: int = BATCHES,
        factor: int = FACTOR,
        returned: str = "All",
        anchors: tuple[str, ...] = ("Gradient___w0",),
        places: bool = False,
        again: bool = False,
        strategy: popart.ExchangeStrategy = popart.ExchangeStrategy.JustInTime,
        tiles: popart.TileSet = popart.TileSet.Compute,
        **asked: Any,
    ) -> None:
        builder, random = popart.Builder(), np.random.default_rng(0)
        where = popart.InputSettings(tiles, strategy)
        y = builder.addInputTensor("FLOAT", [2, 3], where, "x")
        for at in range(LAYERS):
            first = random.normal(size=(3, 3)).astype(np.float32)
            w = builder.addInitializedInputTensor(first, f"w{at}")
            product = builder.aiOnnx.matmul([y, w])
            y = builder.aiOnnx.tanh([product])
            for id in (product, y) if places else ():
                builder.virtualGraph(id, at)
                builder.pipelineStage(id, at)
            if again:
                builder.recomputeOutputInBackwardPass(y)
        loss = builder.aiGraphcore.l1loss([y], 0.1)
        if places:
            builder.virtualGraph(loss, LAYERS - 1)
            builder.pipelineStage(loss, LAYERS - 1)
        options = popart.SessionOptions()
        options.enableExplicitIR(True)
        options.enableGradientAccumulation = factor > 1
        options.accumulationFactor = factor
        options.enableOutlining = options.enableMergeExchange = False
        for name, value in asked.items():
            setattr(options, name, value)
        device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 4})
        device.backend = "reference"
        ids = dict.fromkeys([loss, *anchors], popart.AnchorReturnType(returned, tiles, strategy))
        self.loss, self.shape = loss, (batches, factor, 2, 3)
        self.session = popart.TrainingSession(
            builder.getModelProto(),
            popart.DataFlow(batches, ids),
            loss,
            popart.ConstSGD(0.1),
            device,
            userOptions=options,
        )

    def graphs(self) -> Operators:
        found: Operators = json.loads(self.session._serializeIr(popart.IrSerializationFormat.JSON))
        return found

    def trained(self) -> dict[str, Array]:
        """Weights and anchors after a step."""
        self.session.prepareDevice()
        self.session.weightsFromHost()
        anchors = self.session.initAnchorArrays()
        data = np.random.default_rng(1).normal(size=self.shape).astype(np.float32)
        self.session.run(popart.PyStepIO({"x": data}, anchors))
        self.session.weightsToHost()
        weights = {f"w{at}": self.session.weights()[f"w{at}"] for at in range(LAYERS)}
        return {**weights, **anchors}


def of_type(operators: list[dict[str, Any]], type_: str) -> list[dict[str, Any]]:
    return [op for op in operators if op["type"] == type_]


def read(op: dict[str, Any]) -> list[str]:
    return [one["name"] for one in op["inputs"]]


def test_a_step_is_a_loop_of_batches_and_these_are_loops_of_micro_batches() -> None:
    graphs = Layers().graphs()
    assert list(graphs) == ["maingraph", "stepGraph", "accumulationGraph"]
    (step,) = graphs["maingraph"]
    (micro,) = of_type(graphs["stepGraph"], "Loop")
    for loop, name, turns in ((step, "step", BATCHES), (micro, "accumulation", FACTOR)):
        assert (loop["type"], loop["name"]) == ("Loop", f"{name}Loop")
        assert loop["attributes"]["callee"] == f"{name}Graph"
        assert loop["attributes"]["tripCountValue"] == str(turns)
    # what a batch changes goes round, and is written after the loop
    assert [one["name"] for one in micro["outputs"]] == [
        f"stepGraph/FinalReducedGradient___w{at}" for at in range(LAYERS)
    ]
    assert read(micro)[:3] == [f"stepGraph/Accum___w{at}" for at in range(LAYERS)]
    updates = [op["type"] for op in graphs["stepGraph"]]
    assert updates == ["Loop", *["SGD0VarUpdate"] * LAYERS, *["AccumulatorScale"] * LAYERS]
    inner = graphs["accumulationGraph"]
    assert {op["attributes"]["__execution_context"] for op in inner} == {"Subgraph"}
    assert {op["attributes"]["scope"] for op in inner} == {"accumulationGraph"}
    assert len(of_type(inner, "HostLoadInplace")) == 1
    stores = sorted(read(op)[0] for op in of_type(inner, "HostStore"))
    assert stores == ["accumulationGraph/Gradient___w0", "accumulationGraph/L1:0"]


@pytest.mark.parametrize(
    ("batches", "factor", "names"),
    [(4, 1, ["stepGraph"]), (1, 4, ["accumulationGraph"]), (1, 1, [])],
)
def test_a_loop_of_one_turn_is_none(batches: int, factor: int, names: list[str]) -> None:
    graphs = Layers(batches=batches, factor=factor).graphs()
    assert list(graphs) == ["maingraph", *names]
    inner = graphs[[*graphs][-1]]
    assert len(of_type(inner, "HostStore")) == 2
    kinds = {op["attributes"]["__execution_context"] for op in graphs["maingraph"]}
    assert kinds == {"Normal"}


@pytest.mark.parametrize("returned", ["Final", "Sum"])
def test_loops_hand_on_an_anchor_that_comes_back_once(returned: str) -> None:
    graphs = Layers(returned=returned).graphs()
    main, inner = graphs["maingraph"], graphs["accumulationGraph"]
    first = f"anchor{returned}___Gradient___w0"
    assert sorted(read(op)[0] for op in of_type(main, "HostStore")) == [
        f"{first}_out",
        f"anchor{returned}___L1:0_out",
    ]
    assert not of_type(inner, "HostStore")
    assert {op["outputs"][0]["name"] for op in of_type(main, "Init")} >= {first}
    assert read(of_type(main, "Loop")[0])[1] == first
    assert f"stepGraph/{first}" in read(of_type(graphs["stepGraph"], "Loop")[0])
    sums = [op for op in inner if first in "".join(read(op))]
    assert len(sums) == (returned == "Sum")


def test_host_copies_alone_make_no_loops() -> None:
    """They come first and last, unless something else orders them."""
    graphs = Layers(enableExplicitMainLoops=False, explicitRecomputation=False).graphs()
    assert list(graphs) == ["maingraph"]
    for type_ in ("HostLoadInplace", "HostStore"):
        for op in of_type(graphs["maingraph"], type_):
            assert op["attributes"]["schedulePriority"] == "-inf"


def test_layers_are_outlined_in_loops() -> None:
    graphs = Layers(enableOutlining=True).graphs()
    calls = of_type(graphs["accumulationGraph"], "Call")
    assert {op["attributes"]["callee"] for op in calls} <= set(graphs)
    assert len(calls) > 1


def test_what_is_computed_again_is_in_the_loop_of_micro_batches() -> None:
    inner = Layers(again=True).graphs()["accumulationGraph"]
    kinds = [op["attributes"]["recomputetype"] for op in of_type(inner, "Tanh")]
    assert sorted(kinds) == ["Checkpoint"] * LAYERS + ["Recomputed"] * LAYERS


def test_a_pipeline_of_explicit_loops_has_no_stashes_of_implicit_ones() -> None:
    graphs = Layers(places=True, enablePipelining=True, virtualGraphMode=MANUAL).graphs()
    assert of_type(graphs["accumulationGraph"], "IpuCopy")
    types = {op["type"] for ops in graphs.values() for op in ops}
    assert "DynamicUpdateInplace" in types and types.isdisjoint(["Stash", "RestoreInplace"])


KINDS = popart.RecomputationType
PIPELINE = {"places": True, "enablePipelining": True, "virtualGraphMode": MANUAL}
IMPLICIT = {"enableExplicitMainLoops": False, "useHostCopyOps": False}
SAME: dict[str, dict[str, Any]] = {
    "loops": {},
    "aliases": {"aliasZeroCopy": True},
    "host copies": {"enableExplicitMainLoops": False},
    "recomputation": {"autoRecomputation": KINDS.RecomputeAll},
    "notes": {"again": True},
    "pipeline": PIPELINE,
    "pipeline that recomputes": {**PIPELINE, "autoRecomputation": KINDS.Pipeline},
    "pipeline with notes": {**PIPELINE, "again": True},
    "implicit pipeline": {**PIPELINE, **IMPLICIT, "explicitRecomputation": False},
}


@pytest.fixture(scope="module")
def plain() -> dict[str, Array]:
    return Layers(explicitRecomputation=False, **IMPLICIT).trained()


@pytest.mark.parametrize("name", SAME)
def test_loops_copies_and_stages_change_no_number(name: str, plain: dict[str, Array]) -> None:
    found = Layers(**SAME[name]).trained()
    assert np.abs(plain["Gradient___w0"]).max() > 1e-3
    for id, wanted in plain.items():
        np.testing.assert_allclose(found[id], wanted, 1e-5, 1e-6, err_msg=id)


def test_explicit_and_implicit_pipelines_update_weights_alike() -> None:
    """Without accumulation, batches under way meet older weights in both."""
    once = {**PIPELINE, "factor": 1}
    explicit = Layers(**once).trained()
    implicit = Layers(**once, **IMPLICIT, explicitRecomputation=False).trained()
    alone = Layers(factor=1).trained()
    for id, wanted in implicit.items():
        np.testing.assert_array_equal(explicit[id], wanted)
    assert not np.allclose(alone["w0"], explicit["w0"], 1e-6)


def test_stages_compute_again_on_their_own_ipu() -> None:
    graphs = Layers(**PIPELINE, autoRecomputation=popart.RecomputationType.RecomputeAll).graphs()
    ops = [op for found in graphs.values() for op in found]
    again = [op["attributes"] for op in ops if op["attributes"]["recomputetype"] == "Recomputed"]
    assert again
    for one in again:
        stage = int(one["scope"].removeprefix("PipelineStage_")[0])
        assert stage >= 2  # gradients begin where the loss is
        assert one["__ipu_number"] == str(4 - stage)


def test_a_pipeline_in_a_loop_keeps_slices_of_its_tensors() -> None:
    graphs = Layers(**PIPELINE).graphs()
    outer = graphs["stepGraph"]
    first, last = (graphs[f"PipelineStage_{stage}_main_subgraph({stage})"] for stage in (0, 4))
    (update,) = (
        op for op in of_type(first, "DynamicUpdateInplace") if read(op)[2].endswith("Tanh:0")
    )
    stash, counter, _ = (name.split("/", 1)[1] for name in read(update))
    assert (stash, counter) == ("Stashed___Tanh:0", "Counter___Tanh:0")
    assert update["inputs"][0]["shape"] == "[5 2 3]"  # stages 0 to 4
    (restored,) = (op for op in of_type(last, "DynamicSliceInplace") if read(op)[0].endswith(stash))
    assert [op for op in of_type(last, "TanhGrad") if restored["outputs"][0]["name"] in read(op)]
    stages = [op for name, ops in graphs.items() if name.startswith("Pipeline") for op in ops]
    counters, stashes = of_type(stages, "IncrementModInplace"), "DynamicUpdateInplace"
    kept = len(of_type(stages, stashes))
    assert len(counters) == kept + len(of_type(stages, "DynamicSliceInplace"))
    begun = [op for op in of_type(outer, "Init") if op["name"].startswith("Init_")]
    assert len(begun) == kept + len(counters)
    used = {id for op in outer if op["type"] in ("Loop", "Call") for id in read(op)}
    assert {op["outputs"][0]["name"] for op in begun} <= used


def test_a_micro_batch_with_a_mistake_counts() -> None:
    """The update of the batch that it was the last of is made, and the next batch begins anew."""
    builder = popart.Builder()
    rows = builder.addInputTensor("INT32", [1], "rows")
    w = builder.addInitializedInputTensor(np.zeros(4, np.float32), "w")
    picked = builder.aiOnnx.gather([w, rows])
    loss = builder.aiGraphcore.identityloss([picked], popart.ReductionType.Sum)
    options = popart.SessionOptions()
    options.enableGradientAccumulation, options.accumulationFactor = True, 2
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, []),
        loss,
        popart.ConstSGD(1.0),
        popart.DeviceManager().createCpuDevice(),
        userOptions=options,
    )
    session.prepareDevice()
    session.weightsFromHost()
    for picks, fails in (([0, 9], True), ([1, 1], False)):
        batch = popart.PyStepIO({rows: np.array(picks, np.int32)[:, None]}, {})
        with pytest.raises(popart.popart_exception) if fails else nullcontext():
            session.run(batch)
    session.weightsToHost()
    found = np.empty(4, np.float32)
    session.readWeights(popart.PyWeightsIO({w: found}))
    assert found.tolist()[:3] == [-1, -2, 0]
