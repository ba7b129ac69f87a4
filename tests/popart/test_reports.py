"""Tests the reports of sessions: JSON and CBOR, memory, calls, steps, tiles."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import popgraph.popart as popart
from popgraph.ipu.machine import MK2
from popgraph.support.cbor import to_cbor

TILES = 4


def prepared(
    device: popart.DeviceInfo | None = None, userOptions: popart.SessionOptions | None = None
) -> tuple[popart.TrainingSession, str]:
    """A session that trains a layer with a weight of shape [8, 5]."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4, 8], "x")
    w = builder.addInitializedInputTensor(np.ones((8, 5), np.float32), "w")
    y = builder.aiOnnx.softmax([builder.aiOnnx.matmul([x, w])])
    loss = builder.aiGraphcore.l1loss([y], 0.1)
    options: dict[str, object] = {"numIPUs": 1, "tilesPerIPU": TILES}
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(2, [loss]),
        loss,
        popart.ConstSGD(0.1),
        device or popart.DeviceManager().createIpuModelDevice(options),
        userOptions=userOptions,
    )
    session.prepareDevice()
    session.weightsFromHost()
    return session, x


def run(session: popart.TrainingSession, x: str, name: str) -> None:
    data = np.random.default_rng(0).normal(size=(2, 4, 8)).astype(np.float32)
    session.run(popart.PyStepIO({x: data}, session.initAnchorArrays()), name)


@pytest.fixture(scope="module")
def graph() -> dict[str, Any]:
    session, _ = prepared()
    written = session.getGraphReport()
    report = json.loads(written)
    assert isinstance(written, bytes)
    assert session.getGraphReport(useCbor=True) == to_cbor(report)
    assert session.getTensorTileMap()
    assert json.loads(session.getSerializedGraph()) == report
    return dict(report)


def test_the_graph_report_counts_the_calls_of_kernels(graph: dict[str, Any]) -> None:
    sets = graph["computeSets"]
    count = graph["graph"]["numComputeSets"]
    assert count > 3
    assert all(len(column) == count for column in sets.values())
    assert sum(graph["vertexTypes"]["counts"]) == count
    assert graph["programs"] == [{"type": "Execute", "computeSet": n} for n in range(count)]
    assert {"MatMul:0", "Softmax:0"} <= set(sets["sources"])
    assert max(sets["flops"]) >= 2 * 4 * 8 * 5


def test_the_graph_report_lists_all_memory(graph: dict[str, Any]) -> None:
    memory = graph["memory"]
    categories = memory["byCategory"]
    assert categories["input"] == 4 * 8 * 4
    assert categories["variable"] == 8 * 5 * 4
    weight = next(row for row in memory["tensors"] if row["name"] == "w")
    assert (weight["shape"], weight["bytes"], weight["firstUse"]) == ([8, 5], 160, 0)
    in_use = memory["liveness"]["notAlwaysLive"]
    assert len(in_use) == len(graph["programs"])
    assert 0 < memory["liveness"]["maxNotAlwaysLive"] == max(in_use) <= categories["arena"]
    for row in memory["tensors"]:
        if row["category"] == "arena":
            assert row["offset"] + row["bytes"] <= categories["arena"]


def test_the_graph_report_maps_tensors_to_tiles(graph: dict[str, Any]) -> None:
    assert graph["target"]["totalTiles"] == TILES
    assert graph["tileMapping"]["w"].startswith("#tile.mapping<[8, 5] in [8, 5]")
    by_tile = graph["memory"]["byTile"]["total"]
    assert len(by_tile) == TILES
    assert by_tile == graph["ipu"]["memory"]["byTile"]
    assert graph["ipu"]["memory"]["alwaysLive"]["variables"] >= 8 * 5 * 4


def test_the_graph_report_has_the_steps_of_the_model(graph: dict[str, Any]) -> None:
    model = graph["ipu"]
    assert model["machine"]["bytesPerTile"] == MK2.tile_bytes
    assert max(step["flops"] for step in model["steps"]) >= 2 * 4 * 8 * 5
    for step in model["steps"]:
        assert step["cycles"] == step["compute"] + step["exchange"] + step["sync"]
    cycles = model["cycles"]
    assert cycles["total"] == sum(step["cycles"] for step in model["steps"])
    assert cycles["total"] == cycles["compute"] + cycles["exchange"] + cycles["sync"]
    assert {"MatMul:0", "Softmax:0"} <= {step["source"] for step in model["steps"]}


def test_the_execution_report_covers_steps_since_the_last_report() -> None:
    session, x = prepared()
    assert json.loads(session.getExecutionReport())["computeSets"] == []
    for name in ("first", "second"):
        run(session, x, name)
    session.weightsToHost()
    before = session.weights()["w"].copy()
    report = json.loads(session.getExecutionReport())
    assert (report["steps"], report["batchesPerStep"]) == (2, 2)
    assert [one["name"] for one in report["runs"]] == ["first", "second"]
    assert report["microseconds"] == pytest.approx(sum(r["microseconds"] for r in report["runs"]))
    graph = json.loads(session.getGraphReport())
    assert [one["name"] for one in report["computeSets"]] == graph["computeSets"]["names"]
    each = graph["ipu"]["cycles"]["total"]
    assert report["cycles"]["microBatch"]["total"] == each
    assert report["cycles"]["steps"] == report["simulation"]["cycles"] == 2 * 2 * each
    assert json.loads(session.getExecutionReport())["steps"] == 0
    session.weightsToHost()
    np.testing.assert_array_equal(session.weights()["w"], before)
    run(session, x, "third")
    assert isinstance(session.getExecutionReport(useCbor=True), bytes)


def test_the_summary_and_the_whole_report() -> None:
    session, x = prepared()
    run(session, x, "step")
    whole = json.loads(session.getReport())
    assert whole["execution"]["steps"] == 1
    text = session.getSummaryReport(resetProfile=False)
    expected = ("IPU(s) of 4 tiles", "always live", "Execution: 1 steps of 2 batches")
    for words in (*expected, "Model of 1 ipu2 with 4 tiles of 624 KiB", "cycles", "tile "):
        assert words in text
    assert "Execution: 1 steps" in session.getSummaryReport()
    assert "Execution: 0 steps" in session.getSummaryReport()


def test_report_options_select_parts_of_the_summary() -> None:
    options = popart.SessionOptions()
    options.reportOptions = {"showVarStorage": "true", "showExecutionSteps": "true"}
    session, x = prepared(userOptions=options)
    run(session, x, "step")
    text = session.getSummaryReport()
    assert "variable  f32[8, 5]  w" in text
    assert "us   share" in text and "Softmax:0" in text
    options.reportOptions = {"showVarStorage": "false"}
    text = session.getSummaryReport()
    assert "f32[8, 5]" not in text
    assert "Softmax:0" not in text


def test_reports_show_bodies_of_branches_and_loops() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3], "x")
    body = builder.createSubgraphBuilder()
    body.addInputTensor("INT64", [])
    keep = body.addInputTensor("BOOL", [])
    carried = body.addInputTensor("FLOAT", [3])
    body.addOutputTensor(keep)
    body.addOutputTensor(body.aiOnnx.exp([carried]))
    trips = builder.aiOnnx.constant(np.array(4, np.int64))
    going = builder.aiOnnx.constant(np.array(True))
    (y,) = builder.aiOnnx.loop([trips, going, x], 1, body)
    device = popart.DeviceManager().createIpuModelDevice({})
    proto, flow = builder.getModelProto(), popart.DataFlow(1, [y])
    session = popart.InferenceSession(proto, flow, device)
    session.prepareDevice()
    programs = json.loads(session.getGraphReport())["programs"]
    (loop,) = [one for one in programs if one["type"] == "Repeat"]
    assert loop["bodies"][0]["programs"]
    session.run(popart.PyStepIO({x: np.zeros(3, np.float32)}, session.initAnchorArrays()))
    sets = json.loads(session.getExecutionReport())["computeSets"]
    (measured,) = [one for one in sets if one["kind"] == "loop"]
    assert measured["bodies"][0]["count"] == 4


def test_a_cpu_has_no_profile() -> None:
    session, _ = prepared(popart.DeviceManager().createCpuDevice())
    for report in (session.getGraphReport, session.getExecutionReport, session.getReport):
        with pytest.raises(popart.poplar_exception, match="Profiling is disabled for current"):
            report()


def test_summaries_show_tensor_locations() -> None:
    """Tensor locations and replica sharding change the summary, but no result."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4, 8], "x")
    names = {"w": np.ones((8, 5), np.float32), "b": np.ones(5, np.float32)}
    w, b = (builder.addInitializedInputTensor(array, name) for name, array in names.items())
    y = builder.aiOnnx.add([builder.aiOnnx.matmul([x, w]), b])
    loss = builder.aiGraphcore.l1loss([y], 0.1)
    sharded = popart.TensorLocation(
        popart.TensorStorage.OffChip, popart.ReplicatedTensorSharding.On
    )
    weights = []
    for location in (popart.TensorLocation(), sharded):
        options = popart.SessionOptions()
        options.enableReplicatedGraphs, options.replicatedGraphCount = True, 2
        settings = popart.TensorLocationSettings(location, 2, 6)
        options.weightTensorLocationSettings = settings
        options.optimizerStateTensorLocationSettings = settings
        device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2})
        device.backend = "reference"
        session = popart.TrainingSession(
            builder.getModelProto(),
            popart.DataFlow(1, []),
            loss,
            popart.Adam({"defaultLearningRate": (0.1, False)}),
            device,
            userOptions=options,
        )
        session.prepareDevice()
        session.weightsFromHost()
        data = np.random.default_rng(0).normal(size=(2, 4, 8)).astype(np.float32)
        session.run(popart.PyStepIO({x: data}, {}))
        session.weightsToHost()
        weights.append(session.weights()["w"])
        text = session.getSummaryReport()
        shown = location is sharded
        assert ("w: OffChip, sharded over 2 replicas on an IPU" in text) is shown
        assert ("Accl1___w: OffChip, sharded over 2" in text) is shown
        assert ("b: OffChip on an IPU" in text) is shown
        assert "Step___w: " not in text
    np.testing.assert_array_equal(*weights)
