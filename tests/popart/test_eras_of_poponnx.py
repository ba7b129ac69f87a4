"""Tests calls of PopONNX and of PopART's first year that later versions lack."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from popgraph.popart.eras.era import ERAS, Era
from popgraph.popart.exceptions import popart_exception, popart_unsupported_exception
from popgraph.support.arrays import Array
from tests.popart.era_modules import (
    OLD,
    POPONNX,
    by_name,
    module_of,
    names_taken_away,
    run_once,
    weight_by_input,
)

__all__ = ["names_taken_away"]
pytestmark = pytest.mark.usefixtures("names_taken_away")
OLDEST, PLAIN, SECOND, POPART, _ = ERAS
ONES: Array = np.ones((2, 3), np.float32)


def training(old: Any, model: bytes, anchors: list[str], losses: list[Any], **named: Any) -> Any:
    flow = old.DataFlow(1, dict.fromkeys(anchors, old.AnchorReturnType("ALL")))
    named = {"optimizer": old.SGD(0.5), **named}
    return old.TrainingSession(model, dataFeed=flow, losses=losses, **named)


# the builder


def test_operators_of_2018_by_their_arguments() -> None:
    old = module_of(OLDEST)
    builder = old.Builder()
    x = builder.addInputTensor(old.TensorInfo("FLOAT", [1, 2, 4, 4]))
    weights = [builder.addInitializedInputTensor(np.ones(2, np.float32)) for _ in range(4)]
    trained = builder.batchnormalizationTraining(x, *weights, epsilon=1e-5, momentum=0.9, spatial=1)
    assert all(hasattr(trained, name) for name in ("y", "mean", "var", "savedMean", "savedvar"))
    assert builder.getTensorShape(trained.y) == [1, 2, 4, 4]
    tested = builder.batchnormalizationTesting(x, *weights, 1e-5, 0.9, 1, "tested")
    assert builder.getTensorShape(tested) == [1, 2, 4, 4]
    with pytest.raises(old.poponnx_exception, match="spatial = 0"):
        builder.batchnormalizationTesting(x, *weights, spatial=0)
    assert builder.getTensorShape(builder.elu([x], "name")) == [1, 2, 4, 4]
    sequence = builder.addInputTensor(old.TensorInfo("FLOAT", [5, 2, 3]))
    gates = [np.ones((1, 16, 3), np.float32), np.ones((1, 16, 4), np.float32)]
    hidden, last, cell = builder.lstm([sequence, *map(builder.addInitializedInputTensor, gates)])
    assert builder.getTensorShape(hidden) == [5, 1, 2, 4]
    assert builder.getTensorShape(last) == builder.getTensorShape(cell) == [1, 2, 4]


def test_the_builder_of_2018_makes_constants_of_weights() -> None:
    old = module_of(OLDEST)
    builder, _, w, y = weight_by_input(old)
    builder.addOutputTensor(y)
    builder.convertInitializersToConstants([w])
    graph = onnx.load_from_string(builder.getModelProto()).graph
    assert [one.name for one in graph.initializer] == []
    assert graph.node[0].op_type == "Constant"
    assert builder.neg([y]) not in {w, y}


@pytest.mark.parametrize("era", OLD, **by_name)
def test_recomputation_was_a_boolean(era: Era) -> None:
    builder, x, _, y = weight_by_input(module_of(era))
    builder.recomputeOutputInBackwardPass(y, True)
    z = builder.aiOnnx.add([x, y])
    builder.recomputeOutputInBackwardPass({z}, False)
    assert builder.getRecomputeOutputInBackwardPass(y) is True
    assert builder.getRecomputeOutputInBackwardPass({z}) is False


def test_ping_pong_and_caches_of_2020() -> None:
    old = module_of(POPART)
    builder, x, w, y = weight_by_input(old)
    with builder.pingPongPhase(3):
        assert builder.hasPingPongPhase()
        assert builder.getPingPongPhase() == 3
        z = builder.aiOnnx.add([x, y])
    builder.pingPongPhase(y, 1)
    assert builder.getInt64NodeAttribute("__execution_phase", {z}) == 3
    with builder.cacheOutput(old.CacheType.Cached):
        kept = builder.aiOnnx.neg([w])
    builder.cacheOutput(y, old.CacheType.Uncached)
    wanted = {kept: old.TensorStorage.OffChip, y: old.TensorStorage.OnChip}
    for id, storage in wanted.items():
        location = old.TensorLocation(storage).serialize()
        held = builder.getInt64VectorNodeAttribute("__output_tensor_location", {id})
        assert held == location


@pytest.mark.parametrize("era", POPONNX, **by_name)
def test_invalid_models_have_the_messages_of_the_era(era: Era) -> None:
    old = module_of(era)
    flow = old.DataFlow(1, {"y": old.AnchorReturnType("ALL")})
    for read in (
        lambda: old.Builder("nothing"),
        lambda: old.Builder(b"nothing"),
        lambda: old.InferenceSession("nothing", flow),
        lambda: old.Session("nothing", flow),
    ):
        with pytest.raises(old.poponnx_exception) as raised:
            read()
        assert raised.value.args[0] == "Failed to parse ModelProto from string"


@pytest.mark.parametrize("model", ["nothing", b"nothing"])
def test_the_builder_has_the_same_message_for_invalid_models(model: str | bytes) -> None:
    with pytest.raises(popart_exception, match="Failed to load a ModelProto from the string"):
        module_of(POPART).Builder(model)


# sessions


@pytest.mark.parametrize("era", OLD, **by_name)
def test_losses_have_a_virtual_graph(era: Era) -> None:
    old = module_of(era)
    builder, x, w, y = weight_by_input(old)
    builder.virtualGraph(y, 0)
    losses = [old.L1Loss(y, "a", 0.5), old.L1Loss(y, "b", 0.5)]
    options = old.SessionOptions()
    options.enableVirtualGraphs = True
    prefix = old.reservedGradientPrefix()
    made = {"model": builder.getModelProto(), "anchors": [prefix + w], "userOptions": options}
    with pytest.raises(popart_exception, match="Either all Ops must have their virtual graph"):
        training(old, losses=losses, **made)
    for loss in losses:
        loss.virtualGraph(1)
        loss.pipelineStage(1)
        loss.pingPongPhase(1)
    session = training(old, losses=losses, **made)
    np.testing.assert_allclose(run_once(old, session, {x: ONES})[prefix + w], ONES)


@pytest.mark.parametrize("era", OLD, **by_name)
def test_a_mean_is_that_of_all_replicas(era: Era) -> None:
    old = module_of(era)
    builder, x, w, y = weight_by_input(old)
    options = old.SessionOptions()
    options.enableReplicatedGraphs, options.replicatedGraphCount = True, 2
    losses = [old.L1Loss(y, "loss", 6.0, old.ReductionType.MEAN)]
    wanted = [old.reservedGradientPrefix() + w, "loss"]
    session = training(old, builder.getModelProto(), wanted, losses, userOptions=options)
    found = run_once(old, session, {x: np.stack([ONES, ONES])})
    np.testing.assert_allclose(found["loss"], np.full((2, 2), 6 * 6 / (2 * 2)))
    np.testing.assert_allclose(found[wanted[0]], np.full((2, 2, 3), 6 / (2 * 6)))


def test_a_loss_is_an_operator_of_the_ir() -> None:
    old = module_of(POPART)
    builder, _x, _w, y = weight_by_input(old)
    session = training(old, builder.getModelProto(), [y], [old.L1Loss(y, "loss", 0.1)])
    session.prepareDevice()
    ir = json.loads(session._serializeIr(old.IrSerializationFormat.JSON))
    types = [operator["type"] for operator in ir["maingraph"]]
    assert "L1Grad" in types
    assert "MatMul" not in types


@pytest.mark.parametrize("era", POPONNX, **by_name)
def test_every_gradient_prefix_of_poponnx_is_understood(era: Era) -> None:
    old = module_of(era)
    builder, x, w, y = weight_by_input(old)
    wanted = [prefix + w for prefix in ("d__", "D___")]
    session = training(old, builder.getModelProto(), wanted, [old.L1Loss(y, "loss", 0.5)])
    found = run_once(old, session, {x: ONES})
    for id in wanted:
        np.testing.assert_allclose(found[id], 0.5 * ONES)


@pytest.mark.parametrize("era", OLD, **by_name)
def test_array_sizes_and_sent_weights_were_not_checked(era: Era) -> None:
    old = module_of(era)
    builder, x, _, y = weight_by_input(old)
    session = training(old, builder.getModelProto(), [y], [old.L1Loss(y, "loss", 1.0)])
    device = old.DeviceManager().createCpuDevice(backend="reference")
    session.setDevice(device)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    if era.checked:
        with pytest.raises(popart_exception, match="Must call weightsFromHost before run"):
            session.run(old.PyStepIO({x: ONES}, anchors))
        session.weightsFromHost()
        with pytest.raises(popart_exception, match="Unexpected number of input elements"):
            session.run(old.PyStepIO({x: np.ones((4, 3), np.float32)}, anchors))
        with pytest.raises(popart_exception, match="Constant, zero learning rate"):
            old.ConstSGD(0.0)
        return
    assert isinstance(old.ConstSGD(0.0), old.BaseSGD)
    session.run(old.PyStepIO({x: np.ones((4, 3), np.float32), "more": ONES}, anchors))
    np.testing.assert_allclose(anchors[y], 2 * ONES)
    session.resetHostWeights(builder.getModelProto())  # The device keeps its weights.
    session.run(old.PyStepIO({x: ONES}, anchors))
    np.testing.assert_allclose(anchors[y], 1.5 * ONES)


@pytest.mark.parametrize("era", OLD, **by_name)
@pytest.mark.parametrize("asked", [True, False], ids=["options", "none"])
def test_weights_of_an_inference_were_variables_at_first(era: Era, asked: bool) -> None:
    old = module_of(era)
    builder, x, _, y = weight_by_input(old)
    flow = old.DataFlow(1, {y: old.AnchorReturnType("ALL")})
    options = {"userOptions": old.SessionOptionsCore()} if asked else {}
    session = old.InferenceSession(builder.getModelProto(), flow, **options)
    session.setDevice(old.DeviceManager().createCpuDevice(backend="reference"))
    session.prepareDevice()
    other = builder.getModelProto().replace(np.float32(2).tobytes(), np.float32(3).tobytes())
    if era.constant_weights:
        with pytest.raises(popart_exception, match="Cannot call resetHostWeights"):
            session.resetHostWeights(other)
        return
    session.resetHostWeights(other)
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(old.PyStepIO({x: ONES}, anchors))
    np.testing.assert_allclose(anchors[y], 3 * ONES)
    with pytest.raises(AttributeError):
        old.SessionOptions().nonsense = 1


@pytest.mark.parametrize("era", OLD, **by_name)
def test_tensors_have_tile_mappings(era: Era) -> None:
    old = module_of(era)
    builder, x, w, y = weight_by_input(old)
    session = training(old, builder.getModelProto(), [y], [old.L1Loss(y, "loss", 1.0)])
    session.setDevice(old.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": 4}))
    session.prepareDevice()
    tiles = session.getTensorTileMap()
    assert tiles[w] == [[(0, 2)], [(2, 4)], [(4, 6)], []]
    assert {x, w, y} <= tiles.keys()


def test_the_session_of_2018_leaves_constants_alone(tmp_path: Path) -> None:
    old = module_of(OLDEST)
    builder, x, w, y = weight_by_input(old)
    c = builder.addInitializedInputTensor(ONES)
    z = builder.mul([y, c])
    flow = old.DataFlow(1, 2, [z], old.AnchorReturnType.ALL)
    losses, rule = [old.L1Loss(z, "loss", 0.5)], old.ConstSGD(1.0)
    session = old.Session(builder.getModelProto(), flow, losses, rule, cTens=[c])
    session.prepareDevice()
    session.weightsFromHost()
    session.train(old.PyStepIO({x: ONES}, session.initAnchorArrays()))
    session.modelToHost(tmp_path / "trained.onnx")
    graph = onnx.load(tmp_path / "trained.onnx").graph
    values = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    np.testing.assert_allclose(values[w], 1.5 * ONES)
    np.testing.assert_allclose(values[c], ONES)
    assert {w, c} <= session.getTensorTileMap().keys()
    with pytest.raises(TypeError, match="unexpected argument 'losess'"):
        old.Session(builder.getModelProto(), flow, losess=losses)


@pytest.mark.parametrize("era", OLD, **by_name)
def test_trained_models_are_written_without_losses(era: Era, tmp_path: Path) -> None:
    old = module_of(era)
    builder, x, w, y = weight_by_input(old)
    y = builder.aiOnnx.softmax([y])
    builder.addOutputTensor(y)
    model: Any = builder.getModelProto()
    shapes = old.InputShapeInfo()
    shapes.add("labels", old.TensorInfo("INT32", [2]))
    for step in range(2):  # The file trains like its original model.
        losses = [old.NllLoss(y, "labels", "loss")]
        session = training(old, model, [y], losses, inputShapeInfo=shapes)
        run_once(old, session, {x: ONES, "labels": np.zeros(2, np.int32)})
        session.modelToHost(str(tmp_path / f"{step}.onnx"))
        model = str(tmp_path / f"{step}.onnx")
        graph = onnx.load(model).graph
        assert [node.op_type for node in graph.node] == ["Mul", "Softmax"]
        assert {one.name for one in graph.input} <= {x, w}


def test_all_values_of_an_anchor_came_back_in_2018() -> None:
    old = module_of(OLDEST)
    with pytest.raises(old.poponnx_exception) as raised:
        old.DataFlow(2, 2, ["y"], old.AnchorReturnType.FINAL)
    assert raised.value.args[0] == "Only ALL AnchorReturnType is currently supported"
    assert old.DataFlow(2, 2, {"y": old.AnchorReturnType("FINAL")}).art("y").id().name == "Final"


def test_losses_of_an_inference_by_position_in_2020() -> None:
    old = module_of(POPART)
    builder, x, _, y = weight_by_input(old)
    flow = old.DataFlow(1, ["loss"], old.AnchorReturnType("ALL"))
    device, losses = old.DeviceManager().createCpuDevice(), [old.L1Loss(y, "loss", 0.5)]
    rest = (old.InputShapeInfo(), old.Patterns(), old.SessionOptions())
    session = old.InferenceSession(builder.getModelProto(), flow, device, losses, *rest)
    assert run_once(old, session, {x: ONES})["loss"].tolist() == [3, 3]


# Devices, options, names.


@pytest.mark.parametrize("era", POPONNX, **by_name)
def test_devices_by_the_name_that_was_misspelt(era: Era) -> None:
    manager = module_of(era).DeviceManager()
    assert manager.acquireAvaliableDevice().numIpus == 1
    assert manager.acquireAvaliableDevice(2, 1216).tilesPerIpu == 1216


@pytest.mark.parametrize("era", OLD, **by_name)
def test_old_options_set_their_successors(era: Era) -> None:
    old = module_of(era)
    options = old.SessionOptions()
    assert options.accumulationReductionType is old.ReductionType.Sum
    assert options.pingPongPhases == options.batchSerializationFactor == 0
    options.autoVirtualGraph, options.enableVirtualGraphs = True, True
    assert options.virtualGraphMode is old.VirtualGraphMode.Auto
    options.autoVirtualGraph = False
    assert options.virtualGraphMode is old.VirtualGraphMode.Manual
    options.accumulationReductionType = old.ReductionType.MEAN
    options.pingPongPhases, options.batchSerializationFactor = 4, 2
    assert options.accumulationAndReplicationReductionType is old.ReductionType.Mean
    assert options.executionPhaseSettings.phases == 4
    assert options.batchSerializationSettings.factor == 2
    options.hostAllReduce = False
    with pytest.raises(popart_unsupported_exception, match="hostAllReduce"):
        options.hostAllReduce = True
    assert not options.hostAllReduce


@pytest.mark.parametrize("era", OLD, **by_name)
def test_removed_names_mean_their_successors(era: Era) -> None:
    old = module_of(era)
    assert old.DeviceConnectionType.ON_DEMAND is old.DeviceConnectionType.OnDemand
    assert old.SyncPattern.PingPong is old.SyncPattern.ReplicaAndLadder
    assert {old.DotCheck.FWD0, old.DotCheck.PREALIAS} == {"Fwd0", "PreAlias"}
    assert (old.DotCheck.Fwd0, old.PreAliasPatternType.OptoIdentity) == ("Fwd0", "OpToIdentity")
    assert old.PatternType.TANHGRADOP == "TanhGradOp"
    assert not hasattr(old.DotCheck, "FWD7")
    assert issubclass(old.PrepareDeviceException, popart_exception)
    assert old.PrepareDeviceError().isSuccessful()
    assert old.reservedAccumulationPrefix() == old.reservedAccumPrefix()
    manager = old.DeviceManager()
    asked = {"replicationFactor": 2, "connectionType": old.DeviceConnectionType.NEVER}
    device = manager.acquireAvailableDevice(2, 0, old.SyncPattern.Full, **asked)
    assert (device.numIpus, device.connectionType) == (2, old.DeviceConnectionType.Never)
    assert manager.acquireDeviceById(0, **asked).connectionType is device.connectionType
    assert manager.enumerateDevices(old.SyncPattern.Full, 2, 4)[0].numIpus == 4
    builder, _, _, y = weight_by_input(old)
    for detached in (
        builder.aiGraphcore.detach([y], 1),
        builder.aiGraphcore.detach([y], pass_through_creation=1, debugPrefix="detached"),
    ):
        assert builder.getTensorShape(detached) == [2, 3]


@pytest.mark.parametrize("era", OLD, **by_name)
def test_reports_were_bytes(era: Era) -> None:
    old = module_of(era)
    builder, x, _, y = weight_by_input(old)
    flow = old.DataFlow(1, {y: old.AnchorReturnType("ALL")})
    session = old.InferenceSession(builder.getModelProto(), flow)
    session.setDevice(old.DeviceManager().createIpuModelDevice({}))
    session.prepareDevice()
    session.run(old.PyStepIO({x: ONES}, session.initAnchorArrays()))
    assert json.loads(session.getGraphReport().decode())["target"]["numIPUs"] == 1
    assert session.getGraphReport(use_cbor=True) == session.getGraphReport(True)
    for steps, reset in ((1, False), (1, True), (0, True)):
        report = json.loads(session.getExecutionReport(resetProfile=reset).decode())
        assert report["steps"] == steps


def test_popart_of_2020_had_its_old_name() -> None:
    popart = module_of(POPART)
    import poponnx

    assert poponnx is popart
    assert poponnx.poponnx_exception is popart.popart_exception


@pytest.mark.parametrize("processes", [[], ["-n", "1"]])
def test_pytest_runs_the_era_of_its_file(processes: list[str], tmp_path: Path) -> None:
    program = tmp_path / "test_it.py"
    program.write_text("import poponnx\ndef test_it(): assert poponnx.Session.ERA.numbered\n")
    command = [sys.executable, "-m", "popgraph.compat", "-m", "pytest", "-q", str(program)]
    ran = subprocess.run(
        [*command, *processes],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize("era", ERAS[:-1], **by_name)
@pytest.mark.parametrize("backend", ["c", "reference"])
def test_group_normalization_of_spread_channels(era: Era, backend: str) -> None:
    """Group g has channels g, g + groups, ...; the third result was the variance at first."""
    old, prefix = module_of(era), module_of(era).reservedGradientPrefix()
    x = np.random.default_rng(0).normal(size=(2, 6, 3)).astype(np.float32)
    scale, factor = np.arange(1, 7, dtype=np.float32), np.square(x + 1)
    builder = old.Builder()
    ids = [builder.addInputTensor(old.TensorInfo("FLOAT", one.shape)) for one in (x, scale)]
    bias = builder.addInitializedInputTensor(np.zeros(6, np.float32))
    y, mean, third = builder.aiGraphcore.groupnormalization([*ids, bias], 2, 1e-3)
    wanted = [y, mean, third, *(prefix + id for id in (*ids, bias))]
    weighted = builder.aiOnnx.mul([y, builder.aiOnnx.constant(factor)])
    losses = [old.L1Loss(weighted, "loss", 1.0)]
    session = training(old, builder.getModelProto(), wanted, losses)
    session.setDevice(old.DeviceManager().createCpuDevice(backend=backend))
    session.prepareDevice()
    session.weightsFromHost()
    found = session.initAnchorArrays()
    session.run(old.PyStepIO(dict(zip(ids, (x, scale), strict=True)), found))

    given = [torch.tensor(one, requires_grad=True) for one in (x, scale, np.zeros(6, np.float32))]
    spread = given[0].reshape(2, 3, 2, 3).transpose(1, 2)
    variance, average = torch.var_mean(spread, (2, 3), correction=0, keepdim=True)
    inverse = 1 / (variance + 1e-3).sqrt()
    normal = ((spread - average) * inverse).transpose(1, 2).reshape(2, 6, 3)
    result = normal * given[1][:, None] + given[2][:, None]
    (result * torch.tensor(factor)).abs().sum().backward()
    last = variance if era.name in ("2018-12", "2019-03") else inverse
    expected = [result, average.ravel(), last.ravel(), *(one.grad for one in given)]
    for id, one in zip(wanted, expected, strict=True):
        np.testing.assert_allclose(found[id], one.detach().numpy(), 1e-4, 1e-4, err_msg=id)


@pytest.mark.parametrize("era", OLD, **by_name)
@pytest.mark.parametrize("accumulation", [1, 2])
def test_replicas_come_first_in_arrays_of_poponnx(era: Era, accumulation: int) -> None:
    """Replicas are the first axis in PopONNX; each batch uses the weights after the last one."""
    old = module_of(era)
    builder, x, _, y = weight_by_input(old)
    options = old.SessionOptions()
    options.enableReplicatedGraphs, options.replicatedGraphCount = True, 2
    options.enableGradientAccumulation = accumulation > 1
    options.accumulationFactor = accumulation
    kinds = {y: "ALL", "loss": "FINAL"}
    flow = old.DataFlow(3, {id: old.AnchorReturnType(kind) for id, kind in kinds.items()})
    losses = [old.L1Loss(y, "loss", 1.0)]
    session = old.TrainingSession(
        builder.getModelProto(),
        dataFeed=flow,
        losses=losses,
        optimizer=old.SGD(0.25),
        userOptions=options,
    )
    session.setDevice(old.DeviceManager().createCpuDevice(backend="reference"))
    session.prepareDevice()
    session.weightsFromHost()
    by_batch: Array = np.random.default_rng(0).random((3, accumulation, 2, 2, 3), np.float32)
    weights = 2 - 0.25 * np.cumsum(by_batch.sum((1, 2)), axis=0)
    weights = np.concatenate([np.full((1, 2, 3), 2, np.float32), weights[:-1]])
    wanted: dict[str, Array] = {y: by_batch * weights[:, None, None]}
    wanted["loss"] = np.abs(wanted[y][-1, -1]).sum(-1)
    if era.module == "poponnx":
        by_batch, wanted[y] = (np.moveaxis(one, 2, 0) for one in (by_batch, wanted[y]))
    anchors = session.initAnchorArrays()
    assert anchors[y].shape == tuple(size for size in wanted[y].shape if size > 1)
    session.run(old.PyStepIO({x: np.ascontiguousarray(by_batch)}, anchors))
    for id, one in wanted.items():
        np.testing.assert_allclose(anchors[id], one.reshape(anchors[id].shape), 1e-5, err_msg=id)


def reshaped(builder: Any, x: str, shape: list[int], known: bool) -> str:
    """Reshapes by a known shape, or by one sliced from a constant too large for inference."""
    if known:
        return str(builder.reshape_const(builder.aiOnnx, [x], shape))
    many = np.concatenate([shape, np.zeros(300, np.int64)])
    ends = [builder.aiOnnx.constant(np.array([end])) for end in (0, len(shape), 0)]
    few = builder.aiOnnx.slice([builder.aiOnnx.constant(many), *ends])
    y = str(builder.aiOnnx.reshape([x, few]))
    with pytest.raises(popart_exception, match="not known"):
        builder.getTensorShape(y)
    return y


@pytest.mark.parametrize("reduction", ["SUM", "MEAN"])
@pytest.mark.parametrize("shape", [[12], [3, 4], [3, 2, 2]])
@pytest.mark.parametrize("kind", ["L1Loss", "NllLoss", "ignoring"])
def test_losses_of_unknown_shapes(kind: str, shape: list[int], reduction: str) -> None:
    old = module_of(SECOND)
    results = []
    for known in (True, False):
        builder = old.Builder()
        x = builder.addInputTensor(old.TensorInfo("FLOAT", [12]))
        w = builder.addInitializedInputTensor(np.linspace(1, 2, 12, dtype=np.float32))
        y = reshaped(builder, builder.aiOnnx.mul([x, w]), shape, known)
        feeds: dict[str, Array] = {x: np.linspace(-1, 1, 12, dtype=np.float32)}
        reduced = getattr(old.ReductionType, reduction)
        if kind == "L1Loss":
            loss = old.L1Loss(y, "loss", 0.5, reduced)
        else:
            y = builder.aiOnnx.softmax([y], len(shape) - 1)
            labels = builder.addInputTensor(old.TensorInfo("INT32", shape[:-1]))
            feeds[labels] = np.arange(np.prod(shape[:-1]), dtype=np.int32).reshape(shape[:-1]) % 2
            rest = [0] if kind == "ignoring" else []
            loss = old.NllLoss(y, labels, "loss", *rest, reduction=reduced)
        wanted = [old.reservedGradientPrefix() + w, "loss"]
        session = training(old, builder.getModelProto(), wanted, [loss])
        results.append(run_once(old, session, feeds))
    for id, one in results[0].items():
        np.testing.assert_allclose(results[1][id], one, 1e-5, 1e-7, err_msg=id)


@pytest.mark.parametrize("era", OLD, **by_name)
def test_a_label_of_one_row_of_probabilities(era: Era) -> None:
    old = module_of(era)
    builder = old.Builder()
    x = builder.addInitializedInputTensor(np.arange(3, dtype=np.float32))
    labels = builder.addInputTensor(old.TensorInfo("INT32", [1]))
    chances = builder.aiOnnx.softmax([x], 0)
    wanted = [old.reservedGradientPrefix() + x, "loss"]
    losses = [old.NllLoss(chances, labels, "loss")]
    session = training(old, builder.getModelProto(), wanted, losses)
    found = run_once(old, session, {labels: np.ones(1, np.int32)})
    chance = np.exp([0, 1, 2]) / np.exp([0, 1, 2]).sum()
    np.testing.assert_allclose(found["loss"], [-np.log(chance[1])], 1e-5)
    np.testing.assert_allclose(found[wanted[0]], chance - [0, 1, 0], 1e-4, 1e-6)


@pytest.mark.parametrize("era", OLD, **by_name)
def test_a_loss_of_a_tensor_of_known_rank(era: Era) -> None:
    old = module_of(era)
    builder = old.Builder()
    indices = builder.addInputTensor(old.TensorInfo("INT32", [2]))
    values = builder.addInitializedInputTensor(np.array([1, 3], np.float32))
    depth = builder.aiOnnx.constant(np.array(6, np.int16))
    hot = builder.aiOnnx.onehot([indices, depth, values], 0)
    wanted = ["loss", old.reservedGradientPrefix() + values]
    losses = [old.L1Loss(hot, "loss", 0.5, old.ReductionType.MEAN)]
    session = training(old, builder.getModelProto(), wanted, losses)
    found = run_once(old, session, {indices: np.array([1, 4], np.int32)})
    np.testing.assert_allclose(found["loss"], 0.5 * np.array([2, 4, 2, 2, 4, 2]) / 6)
    np.testing.assert_allclose(found[wanted[1]], 0.5 * np.array([10, 2]) / 12)


@pytest.mark.parametrize(
    "era", [era for era in ERAS if era.module == "poponnx"], ids=lambda era: era.name
)
def test_sgd_values_of_the_host_have_names_of_poponnx(era: Era) -> None:
    old = module_of(era)
    builder, x, _, y = weight_by_input(old)
    ids = {"learnRate": 0.5, "learnRate_FLOAT": 0.5, "weightDecay_FLOAT": 1 - 0.5 * 0.25}
    losses = [old.L1Loss(y, "loss", 1.0)]
    session = training(old, builder.getModelProto(), [*ids], losses, optimizer=old.SGD(0.5, 0.25))
    found = run_once(old, session, {x: ONES})
    assert {id: float(one) for id, one in found.items()} == ids


def test_the_session_of_2018_needs_no_anchor() -> None:
    """A session without anchors runs, and returns nothing."""
    old = module_of(OLDEST)
    builder, x, _, _ = weight_by_input(old)
    flow = old.DataFlow(1, 2, [], old.AnchorReturnType.ALL)
    session = old.Session(builder.getModelProto(), flow)
    session.prepareDevice()
    assert session.initAnchorArrays() == {}
    session.infer(old.PyStepIO({x: ONES}, {}))
    with pytest.raises(popart_exception, match="Failed to parse ModelProto from string"):
        old.Session("nothing", flow)
