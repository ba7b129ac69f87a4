"""Tests of what PopART's IR makes of tensors off the chip, of shares, and of execution phases."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import popgraph.session as popart
from tests.session.popart_graphs import inferred, ir_of, layers, options, trained, types, weight

PHASES = popart.VirtualGraphMode.ExecutionPhases


def located(
    storage: str, *, sharded: bool = False, least: int = 0, **more: Any
) -> popart.TensorLocationSettings:
    sharding = popart.ReplicatedTensorSharding(int(sharded))
    place = popart.TensorLocation(getattr(popart.TensorStorage, storage), sharding, **more)
    return popart.TensorLocationSettings(place, least, least)


def ops_of(
    count: int = 1, *, optimizer: Any = None, replicas: int = 1, ipus: int = 1, **given: Any
) -> list[dict[str, Any]]:
    """What a session makes of so many layers."""
    builder = popart.Builder()
    loss = layers(builder, count)
    chosen = options(enableReplicatedGraphs=replicas > 1, replicatedGraphCount=replicas, **given)
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": ipus * replicas})
    return trained(builder, loss, optimizer=optimizer, given=chosen, device=device)["maingraph"]


def told(ops: list[dict[str, Any]], *starts: str) -> list[str]:
    return [op["type"] for op in ops if op["type"].startswith(starts)]


def read(op: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["shape"] for one in op["inputs"]}


def only(ops: list[dict[str, Any]], type_: str) -> dict[str, Any]:
    (found,) = (op for op in ops if op["type"] == type_)
    return found


def test_a_weight_off_the_chip_is_loaded_on_both_sides_of_the_loss_and_stored_once() -> None:
    ops = ops_of(weightTensorLocationSettings=located("OffChip"))
    order = ["Init", "RemoteLoadInplace", "RemoteLoadInplace", "SGD0VarUpdate", "RemoteStore"]
    assert told(ops, "Init", "Remote", "SGD0") == order
    loads = [read(op) for op in ops if op["type"] == "RemoteLoadInplace"]
    assert loads == [
        {"w0__init": "[4 4]", "RemoteArg___w0": "[1]"},
        {"w0__l0": "[4 4]", "RemoteArg___w0": "[1]"},
    ]
    assert list(read(only(ops, "RemoteStore"))) == ["w0__l1", "RemoteArg___w0"]
    buffers = {op["attributes"]["bufferid"] for op in ops if op["type"].startswith("Remote")}
    assert buffers == {"0"}


@pytest.mark.parametrize(
    ("least", "override", "loads"),
    [
        (16, {}, 2),
        (17, {}, 0),
        (17, {"w0": popart.TensorLocation(popart.TensorStorage.OffChip)}, 2),
    ],
)
def test_few_elements_stay_on_the_chip_unless_they_are_named(
    least: int, override: dict[str, Any], loads: int
) -> None:
    settings = located("OffChip", least=least)
    ops = ops_of(weightTensorLocationSettings=settings, tensorLocationSettingsOverride=override)
    assert told(ops, "RemoteLoad").count("RemoteLoadInplace") == loads


def test_states_off_the_chip_are_there_for_the_update_only() -> None:
    ops = ops_of(
        optimizer=popart.Adam({}),
        optimizerStateTensorLocationSettings=located("OffChip", least=2),
    )
    found = [op for op in ops if op["type"].startswith("Remote")]
    names = Counter(name for op in found for name in read(op) if name.startswith("RemoteArg"))
    assert names == {"RemoteArg___Accl1___w0": 2, "RemoteArg___Accl2___w0": 2}
    (updater,) = (op for op in ops if op["type"] == "AdamUpdater")
    assert "Step___w0" in read(updater)


def test_activations_off_the_chip_are_stored_and_loaded_for_the_gradients() -> None:
    builder = popart.Builder()
    loss = layers(builder, 2)
    given = options(activationTensorLocationSettings=located("OffChip"))
    ops = trained(builder, loss, given=given)["maingraph"]
    kinds = [op["type"] for op in ops]
    last_store = max(at for at, kind in enumerate(kinds) if kind == "RemoteStore")
    first_load = min(at for at, kind in enumerate(kinds) if kind == "RemoteLoadInplace")
    assert last_store < first_load
    assert kinds.count("RemoteStore") == kinds.count("RemoteLoadInplace") > 2
    assert any("Relu:0__l0" in read(op) for op in ops if op["type"] == "ReluGrad")


def test_an_operator_can_say_where_its_result_goes() -> None:
    builder = popart.Builder()
    data = builder.addInputTensor("FLOAT", [8, 4], "x")
    product = builder.aiOnnx.matmul([data, weight(builder, 4, 4)])
    kept = builder.aiOnnx.sigmoid([product])
    place = popart.TensorLocation(popart.TensorStorage.OffChip)
    builder.outputTensorLocation(kept, place)
    loss = builder.aiGraphcore.l1loss([kept], 0.1)
    ops = trained(builder, loss)["maingraph"]
    (stored,) = (op for op in ops if op["type"] == "RemoteStore")
    assert list(read(stored)) == ["Sigmoid:0", "RemoteArg___Sigmoid:0"]
    (gradient,) = (op for op in ops if op["type"] == "SigmoidGrad")
    assert "Sigmoid:0__l0" in read(gradient)


def test_shares_of_states_turn_sums_over_replicas_into_shares() -> None:
    ops = ops_of(
        optimizer=popart.Adam({}, mode=popart.AdamMode.Lamb),
        replicas=2,
        optimizerStateTensorLocationSettings=located("OnChip", sharded=True, least=2),
    )
    found = Counter(op["type"] for op in ops)
    assert found["ReplicatedAllReduce"] == 0
    assert found["ReplicatedReduceScatter"] == 2  # of the gradient, and of the weight for a while
    assert found["ReplicatedAllReduceInplace"] == 2  # of the squares
    assert found["ReplicatedAllGather"] == found["CopyVarUpdate"] == 1
    (gathered,) = (op for op in ops if op["type"] == "CopyVarUpdate")
    assert read(gathered) == {"w0": "[4 4]", "w0__g0": "[4 4]"}
    updater = only(ops, "AdamUpdater")
    assert {shape for name, shape in read(updater).items() if name.startswith("Accl")} == {"[8]"}
    contexts = [
        (op["type"], op["attributes"]["__execution_context"])
        for op in ops
        if op["type"].startswith("Remote")
    ]
    assert set(contexts) == {
        ("RemoteLoadInplace", "WeightsFromHostFragment"),
        ("RemoteStore", "WeightsToHostFragment"),
    }


def test_shares_of_weights_are_gathered_for_what_reads_the_whole() -> None:
    clip = popart.ClipNormSettings.clipAllWeights(1.0)
    ops = ops_of(
        optimizer=popart.SGD({}, clip_norm_settings=[clip]),
        replicas=2,
        weightTensorLocationSettings=located("OffChip", sharded=True),
    )
    gather, scatter = only(ops, "ReplicatedAllGather"), only(ops, "ReplicatedReduceScatter")
    assert read(gather) == {"w0__l0": "[8]", "RemoteArg___w0": "[1]"}
    assert read(scatter) == {"Gradient___w0": "[4 4]", "RemoteArg___w0": "[1]"}
    assert scatter["attributes"]["__collectiveReplicaGrouping"] == "[2 1 2]"
    assert scatter["attributes"]["__collectiveOperator"] == "0"
    assert set(read(only(ops, "ReduceSumSquare")).values()) == {"[8]"}
    assert told(ops, "ReplicatedAllReduce") == ["ReplicatedAllReduceInplace"]  # of the norm
    assert read(only(ops, "SGD0VarUpdate"))["w0__l1"] == "[8]"


def test_groups_that_share_add_up_across_groups() -> None:
    group = popart.CommGroup(popart.CommGroupType.Consecutive, 2)
    ops = ops_of(
        replicas=4,
        weightTensorLocationSettings=located("OffChip", sharded=True, shardingDomain=group),
    )
    scatter, across = only(ops, "ReplicatedReduceScatter"), only(ops, "ReplicatedAllReduce")
    assert scatter["attributes"]["__collectiveReplicaGrouping"] == "[4 1 2]"
    assert across["attributes"]["__collectiveReplicaGrouping"] == "[4 2 2]"
    assert list(read(across)) == [scatter["outputs"][0]["name"]]


def test_sharing_without_replicas_is_warned_of(capfd: pytest.CaptureFixture[str]) -> None:
    ops = ops_of(weightTensorLocationSettings=located("OnChip", sharded=True))
    assert not told(ops, "Remote", "Replicated")
    assert "Unable to shard tensor w0 due to lack of replication" in capfd.readouterr().err


def test_accumulators_cannot_be_shares_of_gradients_that_are_whole() -> None:
    given = {"enableGradientAccumulation": True, "accumulationFactor": 2}
    with pytest.raises(popart.popart_exception, match="modifies a sharded tensor, but not all"):
        ops_of(
            replicas=2, accumulatorTensorLocationSettings=located("OnChip", sharded=True), **given
        )


def test_main_loops_leave_out_what_happens_once() -> None:
    builder = popart.Builder()
    loss = layers(builder, 1)
    given = options(
        enableExplicitMainLoops=True,
        useHostCopyOps=True,
        enableGradientAccumulation=True,
        accumulationFactor=2,
        enableReplicatedGraphs=True,
        replicatedGraphCount=2,
        weightTensorLocationSettings=located("OnChip", sharded=True),
    )
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2})
    graphs = trained(builder, loss, given=given, device=device)
    main, inner = (types(graphs, name) for name in ("maingraph", "accumulationGraph"))
    assert main[:2] == ["Init", "RemoteLoadInplace"] and main[-1] == "RemoteStore"
    assert "ReplicatedAllGather" in inner and "ReplicatedReduceScatter" in main


def phases(count: int) -> popart.ExecutionPhaseSettings:
    settings = popart.ExecutionPhaseSettings()
    settings.phases = count
    return settings


def phase_of(op: dict[str, Any]) -> int:
    return int(op["attributes"]["__execution_phase"])


def test_phases_share_out_weights_and_load_them_one_phase_ahead() -> None:
    ops = ops_of(
        3,
        ipus=2,
        virtualGraphMode=PHASES,
        executionPhaseSettings=phases(3),
        weightTensorLocationSettings=located("OffChip"),
        autoRecomputation=popart.RecomputationType.Standard,
    )
    assert [phase_of(op) for op in ops] == sorted(map(phase_of, ops))
    assert {(phase_of(op) % 2, op["attributes"].get("__ipu_number")) for op in ops} >= {
        (0, "0"),
        (1, "1"),
    }
    loads = [(phase_of(op), next(iter(read(op)))) for op in ops if "RemoteLoad" in op["type"]]
    assert loads == [(-1, "w0__init"), (0, "w1__init"), (1, "w2__init"), (3, "w0__l0")]
    stores = [(phase_of(op), next(iter(read(op)))) for op in ops if op["type"] == "RemoteStore"]
    assert stores == [(2, "w2__l0"), (3, "w1__l0"), (4, "w0__l1")]
    relu = next(op for op in ops if op["type"].startswith("Relu"))
    assert relu["attributes"]["recomputetype"] == "Recompute"
    (copy, *_) = (op for op in ops if op["type"] == "IpuCopy")
    assert copy["attributes"]["schedulePriority"] == "-9003.000000"


def test_a_phase_may_be_on_its_ipu_only() -> None:
    builder = popart.Builder()
    data = builder.addInputTensor("FLOAT", [8, 4], "x")
    one = builder.aiOnnx.matmul([data, weight(builder, 4, 4)])
    with builder.virtualGraph(0):
        two = builder.aiOnnx.matmul([one, weight(builder, 4, 4, name="v")])
    given = options(virtualGraphMode=PHASES, executionPhaseSettings=phases(2))
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2})
    with pytest.raises(
        popart.popart_exception, match="inconsistent execution phase 1 and virtual graph ID 0"
    ):
        inferred(builder, two, given=given, device=device)


def test_numbers_do_not_depend_on_where_weights_are() -> None:
    found = []
    for settings in (located("OnChip"), located("OffChip")):
        builder = popart.Builder()
        data = builder.addInputTensor("FLOAT", [2, 4], "x")
        result = builder.aiOnnx.matmul([data, weight(builder, 4, 4)])
        session = popart.InferenceSession(
            builder.getModelProto(),
            popart.DataFlow(1, [result]),
            popart.DeviceManager().createCpuDevice(),
            userOptions=options(weightTensorLocationSettings=settings),
        )
        session.prepareDevice()
        session.weightsFromHost()
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({data: np.ones((2, 4), np.float32)}, anchors))
        found.append(anchors[result].copy())
    assert np.array_equal(*found)


def test_loads_and_stores_in_a_row_are_one_operator() -> None:
    ops = ops_of(
        2,
        enableMergeExchange=True,
        replicas=2,
        weightTensorLocationSettings=located("OnChip", sharded=True),
    )
    kinds = [op["type"] for op in ops]
    assert kinds[:3] == ["Init", "Init", "MultiExchange"] and kinds[-1] == "MultiExchange"
    assert not told(ops, "Remote")
    load, store = ops[2], ops[-1]
    assert [one["name"] for one in load["outputs"]] == ["w1__l0", "w0__l0"]
    assert len(load["inputs"]) == len(store["inputs"]) == 4 and not store["outputs"]
    buffers = {"w0": 0, "w1": 1}
    assert load["attributes"]["exchangeDescriptors"] == ",".join(
        f"(direction=Load, remoteBufferId={buffers[id]}, hostStreamTensorId=, vGraphId=-1, "
        "tiles=Compute)"
        for id in ("w1", "w0")
    )


def test_inputs_that_one_operator_reads_are_loaded_at_once() -> None:
    builder = popart.Builder()
    one, two = (builder.addInputTensor("FLOAT", [3], name) for name in ("one", "two"))
    total = builder.aiOnnx.add([one, two])
    given = options(useHostCopyOps=True, enableMergeExchange=True)
    graphs = inferred(builder, total, given=given)
    assert types(graphs) == ["Init", "Init", "MultiExchange", "AddLhsInplace", "HostStore"]
    assert "hostStreamTensorId=one" in str(graphs["maingraph"][2]["attributes"])


def test_what_is_on_other_tiles_is_copied() -> None:
    tiles = popart.TileSet
    builder = popart.Builder()
    where = popart.InputSettings(tiles.IO, popart.ExchangeStrategy.JustInTime)
    data = builder.addInputTensor("FLOAT", [3], where, "data")
    kept = weight(builder, 3)
    result = builder.aiOnnx.add([builder.aiOnnx.exp([data]), kept])
    place = popart.TensorLocation(
        popart.TensorStorage.OffChip, tiles.IO, tiles.IO, popart.ReplicatedTensorSharding.Off
    )
    given = options(
        useHostCopyOps=True,
        numIOTiles=32,
        constantWeights=False,
        weightTensorLocationSettings=popart.TensorLocationSettings(place, 0, 0),
    )
    session = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(1, {result: popart.AnchorReturnType("All", tiles.IO)}),
        userOptions=given,
    )
    ops = ir_of(session)["maingraph"]
    copies = {op["inputs"][0]["name"]: op for op in ops if op["type"] == "IoTileCopy"}
    assert set(copies) == {"data__t2", f"{kept}__l0", result}
    assert [
        op["outputs"][0]["name"] for op in copies.values() if op["attributes"]["tileSet"] == "1"
    ] == [f"{result}_tioc"]
    on_io = {op["type"] for op in ops if op["attributes"]["tileSet"] == "1"}
    assert on_io == {"Init", "HostLoadInplace", "RemoteLoadInplace", "IoTileCopy", "HostStore"}


def test_an_order_that_phases_contradict_is_given_up(capsys: pytest.CaptureFixture[str]) -> None:
    """A velocity would wait for its weight, which waits for the norm of all gradients."""
    clip = [popart.ClipNormSettings.clipAllWeights(1.0)]
    ops = ops_of(
        3,
        ipus=2,
        optimizer=popart.SGD({"defaultMomentum": (0.9, True)}, clip),
        virtualGraphMode=PHASES,
        executionPhaseSettings=phases(3),
        weightTensorLocationSettings=located("OffChip"),
    )
    assert [phase_of(op) for op in ops] == sorted(map(phase_of, ops))
    assert told(ops, "SGD1VarUpdate") == ["SGD1VarUpdate"] * 3
    lines = [line for line in capsys.readouterr().err.splitlines() if "popart:transform" in line]
    assert lines
    for line in lines:
        assert "_var_update (SGD1VarUpdate)" in line and "but execution phases disagree (" in line
        assert line.endswith("Removing constraint.")
