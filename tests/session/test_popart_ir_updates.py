"""Tests of what PopART's IR makes of optimizers: updates, accumulation, clipping, merging."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import popgraph.session as popart
from tests.session.popart_graphs import layers, options, trained, types, weight


@pytest.mark.parametrize(
    ("optimizer", "wanted"),
    [
        (popart.ConstSGD(0.1), {"SGD0VarUpdate": 1}),
        (
            popart.SGD({"defaultMomentum": (0.9, True)}),
            {"Accumulate": 1, "SGD1VarUpdate": 1, "SGD1AcclUpdate": 1},
        ),
        (
            popart.SGD(
                {"defaultMomentum": (0.9, True)},
                accumulatorAndMomentum=popart.SGDAccumulatorAndMomentum.Separate,
            ),
            {"SGD1AcclUpdate": 1, "Accumulate": 1, "SGD1VarUpdate": 1},
        ),
        (
            popart.SGD({"defaultMomentum": (0.9, True), "nesterov": (True, True)}),
            {"Accumulate": 2, "SGD1Nesterov": 1, "AccumulatorScale": 1, "SGD1VarUpdate": 1},
        ),
        (popart.Adam({}), {"Accumulate": 2, "AdamUpdater": 1, "AdamVarUpdate": 1}),
        (
            popart.Adam({}, mode=popart.AdamMode.Lamb),
            {"Accumulate": 2, "AdamUpdater": 1, "LambSquare": 2, "AdamVarUpdate": 1},
        ),
        (
            popart.Adaptive({}, mode=popart.AdaptiveMode.RMSProp),
            {"Accumulate": 1, "RMSPropUpdater": 1, "ScaledVarUpdate": 1},
        ),
        (
            popart.Adaptive({}, mode=popart.AdaptiveMode.AdaDelta),
            {"Accumulate": 2, "AdaDeltaUpdater": 1, "ScaledVarUpdate": 1},
        ),
    ],
    ids=["sgd", "momentum", "separate", "nesterov", "adam", "lamb", "rmsprop", "adadelta"],
)
def test_optimizers_are_written_as_their_operators(optimizer: Any, wanted: dict[str, int]) -> None:
    builder = popart.Builder()
    loss = layers(builder, 1)
    found = Counter(types(trained(builder, loss, optimizer=optimizer)))
    assert {name: found[name] for name in wanted} == wanted


def test_states_have_the_types_in_which_they_are_kept() -> None:
    builder = popart.Builder()
    loss = layers(builder, 1)
    optimizer = popart.Adam({}, accl1_type=popart.DataType.FLOAT16)
    ops = trained(builder, loss, optimizer=optimizer)["maingraph"]
    (updater,) = (op for op in ops if op["type"] == "AdamUpdater")
    kinds = {one["name"].partition("___")[0]: one["type"] for one in updater["inputs"]}
    assert kinds == {"Accl1": "FLOAT16", "Accl2": "FLOAT", "Step": "FLOAT"}


def test_numbers_that_may_change_are_inputs_of_updates() -> None:
    builder = popart.Builder()
    loss = layers(builder, 1)
    rule = popart.SGD({"defaultLearningRate": (0.1, False), "lossScaling": (2.0, False)})
    graphs = trained(builder, loss, optimizer=rule)
    update = graphs["maingraph"][-1]
    names = [one["name"] for one in update["inputs"]]
    assert "scaledLearningRate0___default___FLOAT" in names
    read = {one["name"] for op in graphs["maingraph"] for one in op["inputs"]}
    assert "lossScaling_FLOAT" in read


@pytest.mark.parametrize(
    ("optimizer", "accumulation", "replicas", "wanted"),
    [
        (popart.ConstSGD(0.1), 1, 2, ["ReplicatedAllReduce", "SGD0VarUpdate"]),
        (popart.ConstSGD(0.1), 2, 1, ["Accumulate", "AccumulatorScale", "SGD0VarUpdate"]),
        (
            popart.SGD({"defaultMomentum": (0.9, True)}),
            2,
            2,
            ["Accumulate", "ReplicatedAllReduceInplace", "SGD1AcclUpdate", "SGD1VarUpdate"],
        ),
        (
            popart.SGD({"defaultMomentum": (0.9, True)}),
            1,
            2,
            ["Accumulate", "ReplicatedAllReduce", "SGD1AcclUpdate", "SGD1VarUpdate"],
        ),
    ],
)
def test_gradients_of_micro_batches_and_replicas_are_added_up(
    optimizer: Any, accumulation: int, replicas: int, wanted: list[str]
) -> None:
    builder = popart.Builder()
    loss = layers(builder, 1)
    given = options(
        accumulationFactor=accumulation,
        enableGradientAccumulation=accumulation > 1,
        replicatedGraphCount=replicas,
        enableReplicatedGraphs=replicas > 1,
    )
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": replicas})
    graphs = trained(builder, loss, optimizer=optimizer, given=given, device=device)
    names = {"SGD0VarUpdate", "SGD1VarUpdate", "SGD1AcclUpdate"}
    ops = [
        op
        for op in graphs["maingraph"]
        if op["type"] in names or op["type"].startswith(("Accum", "Replicated"))
    ]
    assert sorted(op["type"] for op in ops) == wanted
    outer = {
        op["type"]
        for op in ops
        if op["attributes"]["__execution_context"] == "AccumulateOuterFragment"
    }
    assert outer == (set(wanted) - {"Accumulate"} if accumulation > 1 else set())


def updates_of(optimizer: Any, **given: object) -> list[dict[str, Any]]:
    """What is written for one layer after its gradients."""
    builder = popart.Builder()
    loss = layers(builder, 1)
    ops = trained(builder, loss, optimizer=optimizer, given=options(**given))["maingraph"]
    first = next(
        at for at, op in enumerate(ops) if op["type"].startswith(("SGD", "Accum", "Cast", "Scale"))
    )
    return ops[first:]


def read_by(op: dict[str, Any]) -> set[str]:
    return {one["name"] for one in op["inputs"]}


MEAN = popart.ReductionType.Mean
RUNNING = popart.MeanReductionStrategy.Running
DOUBLE = {"enableGradientAccumulation": True, "accumulationFactor": 2}


def test_an_accumulator_is_emptied_after_what_it_held_is_used() -> None:
    found = [op["type"] for op in updates_of(popart.ConstSGD(0.1), **DOUBLE)]
    assert found == ["Accumulate", "SGD0VarUpdate", "AccumulatorScale"]


def test_a_running_mean_counts_micro_batches_and_needs_no_emptying() -> None:
    given = {
        "accumulationAndReplicationReductionType": MEAN,
        "meanAccumulationAndReplicationReductionStrategy": RUNNING,
    }
    found = updates_of(popart.ConstSGD(0.1), **DOUBLE, **given)
    gathered, counted = found[:2]
    assert read_by(gathered) == {"Accum___w0", "Gradient___w0", "Counter___"}
    assert "Counter___" in read_by(counted)
    assert {op["type"] for op in found[2:]} == {"SGD0VarUpdate", "AccumulatorScale"}
    (emptied,) = (op for op in found if op["type"] == "AccumulatorScale")
    assert read_by(emptied) == {counted["outputs"][0]["name"]}


def test_a_decaying_adam_reads_its_weight() -> None:
    (updater,) = (
        op
        for op in updates_of(popart.Adam({"defaultWeightDecay": (0.1, True)}))
        if op["type"] == "AdamUpdater"
    )
    assert "w0" in read_by(updater)


def test_moments_of_scaled_gradients_follow_the_loss_scale() -> None:
    rule = popart.Adam({"lossScaling": (2.0, False)}, scaled_optimizer_state=True)
    builder = popart.Builder()
    loss = layers(builder, 2)
    ops = trained(builder, loss, optimizer=rule)["maingraph"]
    found = Counter(op["type"] for op in ops)
    assert found["RescaleAccumulate"] == 4
    assert found["CopyVarUpdate"] == found["Div"] == 1
    (ratio,) = (op for op in ops if op["type"] == "Div")
    assert read_by(ratio) == {"lossScaling_FLOAT", "PreviousLossScaling_FLOAT"}


@pytest.mark.parametrize(
    ("optimizer", "clipped"),
    [
        (popart.SGD, {"SGD0VarUpdate"}),
        (popart.Adam, {"Accumulate"}),
    ],
)
def test_clipping_scales_what_goes_into_the_update(optimizer: Any, clipped: set[str]) -> None:
    rule = optimizer({}, clip_norm_settings=[popart.ClipNormSettings.clipAllWeights(3.0)])
    builder = popart.Builder()
    loss = layers(builder, 3)
    ops = trained(builder, loss, optimizer=rule)["maingraph"]
    found = Counter(op["type"] for op in ops)
    counts = {"ReduceSumSquare": 3, "Sum": 1, "Sqrt": 1, "Max": 1, "Div": 1}
    assert {name: found[name] for name in counts} == counts
    (norm,) = (op for op in ops if op["type"] == "Sqrt")
    assert norm["outputs"][0]["name"] == "GlobalNorm___0"
    scaled = {op["outputs"][0]["name"] for op in ops if "_clipped" in op["outputs"][0]["name"]}
    assert len(scaled) == 3
    assert {op["type"] for op in ops if read_by(op) & scaled} == clipped


def test_clipping_some_weights_leaves_the_others_alone() -> None:
    settings = [popart.ClipNormSettings(["w0"], 1.0), popart.ClipNormSettings(["w2"], 2.0)]
    builder = popart.Builder()
    loss = layers(builder, 3)
    rule = popart.SGD({}, clip_norm_settings=settings)
    ops = trained(builder, loss, optimizer=rule)["maingraph"]
    names = [op["outputs"][0]["name"] for op in ops]
    assert {"GlobalNorm___0", "GlobalNorm___1"} <= set(names)
    (update,) = (op for op in ops if "UpdatedVar___w1" in [one["name"] for one in op["outputs"]])
    assert "Gradient___w1" in read_by(update)


def test_norms_of_several_ipus_are_added_on_one() -> None:
    builder = popart.Builder()
    with builder.virtualGraph(0):
        value = builder.addInputTensor("FLOAT", [2, 4], "x")
        first = builder.addInitializedInputTensor(np.ones((4, 4), np.float32), "w0")
        value = builder.aiOnnx.matmul([value, first])
    with builder.virtualGraph(1):
        second = builder.addInitializedInputTensor(np.ones((4, 4), np.float32), "w1")
        loss = builder.aiGraphcore.identityloss([builder.aiOnnx.matmul([value, second])])
    ops = trained(
        builder,
        loss,
        optimizer=popart.SGD({}, clip_norm_settings=[popart.ClipNormSettings.clipAllWeights(1.0)]),
        given=options(virtualGraphMode=popart.VirtualGraphMode.Manual),
        device=popart.DeviceManager().createIpuModelDevice({"numIPUs": 2}),
    )["maingraph"]
    by_output = {one["name"]: op for op in ops for one in op["outputs"]}
    for op in ops:
        if op["type"] not in ("IpuCopy", "IdentityLossGrad"):
            homes = {
                by_output[name]["attributes"].get("__destIpu")
                or by_output[name]["attributes"]["__ipu_number"]
                for name in read_by(op) & by_output.keys()
            }
            assert homes <= {op["attributes"]["__ipu_number"]}, op["type"]


def test_sums_of_gradients_may_grow_as_gradients_come() -> None:
    builder = popart.Builder()
    value, matrix = builder.addInputTensor("FLOAT", [2, 4], "x"), weight(builder, 4, 4)
    for _ in range(3):
        value = builder.aiOnnx.matmul([value, matrix])
    loss = builder.aiGraphcore.identityloss([value])
    whole = trained(builder, loss)["maingraph"]
    grown = trained(builder, loss, given=options(decomposeGradSum=True))["maingraph"]
    assert Counter(op["type"] for op in whole)["Sum"] == 1
    found = Counter(op["type"] for op in grown)
    assert (found["Sum"], found["Init"], found["AddLhsInplace"]) == (0, 1, 3)
    added = [op for op in grown if op["type"] == "AddLhsInplace"]
    assert added[-1]["outputs"][0]["name"] == "Gradient___w"
    assert read_by(added[0]) >= {"Gradient___w_init"}
    products = [at for at, op in enumerate(grown) if op["type"] == "MatMul"]
    assert grown.index(added[0]) < products[-1]


def updated_sizes(kind: popart.MergeVarUpdateType, **given: object) -> list[int]:
    """How many elements each update changes, of three matrices of 16."""
    builder = popart.Builder()
    loss = layers(builder, 3)
    ops = trained(builder, loss, given=options(mergeVarUpdate=kind, **given))["maingraph"]
    shapes = [op["inputs"][0]["shape"] for op in ops if op["type"] == "SGD0VarUpdate"]
    return sorted(np.prod([int(one) for one in shape.strip("[]").split()]) for shape in shapes)


def test_updates_may_be_merged() -> None:
    kinds = popart.MergeVarUpdateType
    assert updated_sizes(kinds.Off) == [16, 16, 16]
    assert updated_sizes(kinds.All) == [48]
    assert updated_sizes(kinds.AutoTight, mergeVarUpdateMemThreshold=4 * 20) == [8, 20, 20]
    assert updated_sizes(kinds.AutoTight, mergeVarUpdateMemThreshold=4 * 16) == [16, 16, 16]
    assert updated_sizes(kinds.AutoLoose) == [48]
    assert updated_sizes(kinds.AutoLoose, mergeVarUpdateMemThreshold=4 * 20) == [16, 32]


def test_a_threshold_below_an_element_ends() -> None:
    kinds = popart.MergeVarUpdateType
    assert updated_sizes(kinds.AutoTight, mergeVarUpdateMemThreshold=1) == [1] * 48
    assert updated_sizes(kinds.AutoLoose, mergeVarUpdateMemThreshold=0) == [16, 16, 16]
    with pytest.raises(popart.popart_exception, match="MemThreshold must be positive"):
        updated_sizes(kinds.AutoTight, mergeVarUpdateMemThreshold=0)


def test_updates_with_other_numbers_stay_apart() -> None:
    builder = popart.Builder()
    loss = layers(builder, 3)
    rule = popart.SGD({"defaultLearningRate": (0.1, True)})
    rule.insertSpecific("w1", {"learningRate": (0.2, True)})
    given = options(mergeVarUpdate=popart.MergeVarUpdateType.All)
    found = Counter(types(trained(builder, loss, optimizer=rule, given=given)))
    assert (found["SGD0VarUpdate"], found["ConcatInplace"]) == (2, 2)


@pytest.mark.parametrize("loss_of", ["nll", "mul"])
def test_a_loss_scale_may_be_of_single_precision(loss_of: str) -> None:
    builder = popart.Builder()
    data = builder.addInputTensor("FLOAT16", [8, 4], "x")
    matrix = builder.addInitializedInputTensor(np.ones((4, 4), np.float16), "w0")
    value = builder.aiOnnx.matmul([data, matrix])
    if loss_of == "nll":
        labels = builder.addInputTensor("INT32", [8], "labels")
        loss = builder.aiGraphcore.nllloss([builder.aiOnnx.softmax([value], 1), labels])
    else:
        value = builder.aiOnnx.reducesum([value], keepdims=0)
        loss = builder.aiOnnx.mul([value, builder.aiOnnx.exp([value])])
    rule = popart.SGD({"lossScaling": (2.0, False)})
    given = options(ensureFp32LossScaleTensor=True)
    ops = trained(builder, loss, optimizer=rule, given=given)["maingraph"]
    scaled = [
        one["type"] for op in ops for one in op["inputs"] if one["name"] == "lossScaling_FLOAT16"
    ]
    assert set(scaled) == {"FLOAT"}
    casts = [op for op in ops if op["type"] == "Cast"]
    assert bool(casts) is (loss_of == "mul")


@pytest.mark.parametrize("prepared", [False, True])
def test_sums_over_replicas_are_merged_where_they_are_asked_to_be(prepared: bool) -> None:
    settings = popart.ReplicatedCollectivesSettings()
    settings.mergeAllReduceCollectives = True
    settings.prepareScheduleForMergingCollectives = prepared
    outer = popart.AccumulateOuterFragmentSettings()
    outer.schedule = popart.AccumulateOuterFragmentSchedule.OverlapCycleOptimized
    given = options(
        replicatedCollectivesSettings=settings,
        accumulateOuterFragmentSettings=outer,
        enableReplicatedGraphs=True,
        replicatedGraphCount=2,
    )
    builder = popart.Builder()
    loss = layers(builder, 3)
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2})
    ops = trained(builder, loss, given=given, device=device)["maingraph"]
    merged = [op for op in ops if op["type"] == "MutliReplicatedAllReduce"]
    assert sum(len(op["outputs"]) for op in merged) == 3
    assert len(merged) == (1 if prepared else 3)
    assert not [op for op in ops if op["type"] == "ReplicatedAllReduce"]
