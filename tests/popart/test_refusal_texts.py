"""Tests PopART's error messages of sessions and builders, and the order of its checks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import popgraph.popart as popart
from popgraph.popart.exceptions import popart_exception

ALL = popart.AnchorReturnType("All")


def relu(id: str = "x", *, shape: Any = (2,)) -> bytes:
    """A model of one operator, whose result is `y`."""
    nodes = [helper.make_node("Relu", [id], ["y"])]
    infos = [helper.make_tensor_value_info(one, 1, shape) for one in (id, "y")]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:])
    opsets = [helper.make_opsetid("", 10)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=6)
    return bytes(model.SerializeToString())


def sparse() -> bytes:
    """A model that adds a sparse constant."""
    values = helper.make_tensor("v", TensorProto.FLOAT, [1], [3.0])
    places = helper.make_tensor("i", TensorProto.INT64, [1], [1])
    held = helper.make_sparse_tensor(values, places, [2])
    model = onnx.load_model_from_string(relu())
    model.graph.node.insert(0, helper.make_node("Constant", [], ["c"], sparse_value=held))
    model.graph.node[1].CopyFrom(helper.make_node("Add", ["x", "c"], ["y"]))
    model.opset_import[0].version = 11
    return bytes(model.SerializeToString())


def infer(model: Any, *anchors: str, **options: Any) -> popart.InferenceSession:
    given = popart.SessionOptions()
    for name, value in options.items():
        setattr(given, name, value)
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1})
    return popart.InferenceSession(
        model, popart.DataFlow(1, dict.fromkeys(anchors, ALL)), device, userOptions=given
    )


def train(loss: str, **options: Any) -> popart.TrainingSession:
    given = popart.SessionOptions()
    for name, value in options.items():
        setattr(given, name, value)
    flow = popart.DataFlow(1, ["nothing"])
    return popart.TrainingSession(relu(), flow, loss, popart.ConstSGD(0.1), userOptions=given)


def phased() -> popart.ExecutionPhaseSettings:
    settings = popart.ExecutionPhaseSettings()
    settings.phases = 4
    return settings


def told_of(id: str) -> popart.InferenceSession:
    shapes = popart.InputShapeInfo()
    shapes.add(id, popart.TensorInfo("FLOAT", [2]))
    return popart.InferenceSession(relu(), popart.DataFlow(1, ["y"]), inputShapeInfo=shapes)


def unprepared(call: str) -> object:
    """The error of a report after a `prepareDevice` that compiled nothing."""
    session = infer(relu(), "y", compileEngine=False)
    session.prepareDevice()
    return getattr(session, call)()


def constant(sparse: bool) -> str:
    builder = popart.Builder(opsets={"ai.onnx": 11})
    return str(builder.aiOnnxOpset11.constant(np.ones(2, np.float32), sparse))


def replaced() -> None:
    """The values of optimizers are checked before the device."""
    builder = popart.Builder()
    w = builder.addInitializedInputTensor(np.ones(2, np.float32), "w")
    loss = builder.aiGraphcore.l1loss([w], 0.1)
    flow = popart.DataFlow(1, [loss])
    session = popart.TrainingSession(builder.getModelProto(), flow, loss, popart.Adam({}))
    session.updateOptimizerFromHost(popart.SGD(0.1))


NO_ANCHOR = "User must specify an anchor tensor when doing inference."
NO_REPORT = "Session must have been prepared before a report can be fetched"
UNREADABLE = (
    "Failed to load a ModelProto from the string '{}'.\nCheck that it is either a valid path to "
    "an existing onnx model file, or is a valid onnx ModelProto string."
)
CLASH = "Provided tensor {} has an invalid name: clash with reserved prefix {}"
OPEN = (
    "Input tensor 'x' must be specified in InputShapeInfo, as it has shape [{0}, 2], which uses an "
    "unknown value '{0}'."
)

REFUSED: dict[str, tuple[str, Callable[[], object]]] = {
    "a model is read before anchors are looked at": (
        UNREADABLE.format("not\\n \\'a\\' m\\x00del"),
        lambda: infer(b"not\n 'a' m\x00del"),
    ),
    "the first 101 bytes are shown": (
        UNREADABLE.format("!" * 101 + "..."),
        lambda: infer(b"!" * 200),
    ),
    "anchors before names": (NO_ANCHOR, lambda: infer(relu("Gradient___x"))),
    "anchors before options": (NO_ANCHOR, lambda: infer(relu(), executionPhaseSettings=phased())),
    "names before options": (
        CLASH.format("Gradient___x", "Gradient___"),
        lambda: infer(relu("Gradient___x"), "y", enableGradientAccumulation=True),
    ),
    "a prefix inside the name of an input": (
        CLASH.format("a/Accum___x", "Accum___"),
        lambda: infer(relu("a/Accum___x"), "y"),
    ),
    "a prefix in InputShapeInfo": (
        CLASH.format("Gradient___z", "Gradient___"),
        lambda: told_of("Gradient___z"),
    ),
    "a negative size": (OPEN.format("-1"), lambda: infer(relu(shape=[-1, 2]), "y")),
    "a size with a name": (OPEN.format("n"), lambda: infer(relu(shape=["n", 2]), "y")),
    "accumulation before phases": (
        "Gradient Accumulation only available when training.",
        lambda: infer(
            relu(), "y", enableGradientAccumulation=True, executionPhaseSettings=phased()
        ),
    ),
    "phases before the loss": (
        "> 1 execution phases requires VirtualGraphMode::ExecutionPhases",
        lambda: train("nothing", executionPhaseSettings=phased()),
    ),
    "the loss before anchors": (
        "Loss tensor, 'y', must be a scalar tensor",
        lambda: train("y"),
    ),
    "no loss": (
        "Could not find loss tensor 'nothing' in main graph tensors",
        lambda: train("nothing"),
    ),
    "a sparse constant of the builder": (
        "Attributes of type `sparse_tensor' are currently not supported.",
        lambda: constant(sparse=True),
    ),
    "a sparse constant of a model": (
        "The Constant op attribute 'sparse_value' is not supported.",
        lambda: infer(sparse(), "y"),
    ),
    "a model in a folder that is not there": (
        "Failed to open file none/model.onnx",
        lambda: popart.Builder(relu()).saveModelProto("none/model.onnx"),
    ),
    "a drawing of no operator": (
        "Invalid dot range (5, 10000) with schedule of size 1, as no Ops will be exported to the "
        ".dot file",
        lambda: infer(relu(), "y", dotChecks={"Final"}, firstDotOp=5),
    ),
    "a drawing in a folder that is not there": (
        "failed to open file `none/final_g.dot'",
        lambda: infer(relu(), "y", dotChecks={"Final"}, logDir="none"),
    ),
    "optimizers before the device": (
        "New optimizer is not a valid replacement. Can not replace optimizer of type Adam with "
        "new optimizer of type SGD",
        replaced,
    ),
    "an engine that was not compiled": (
        "Trying to load an engine but no compiled engine. Did you forget to call prepareDevice()?",
        lambda: unprepared("loadEngineAndConnectStreams"),
    ),
    **{
        call: (NO_REPORT, lambda call=call: unprepared(call))  # type: ignore[misc]
        for call in (
            *("getSummaryReport", "getReport", "getSerializedGraph"),
            *("getGraphReport", "getExecutionReport"),
        )
    },
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals_have_popart_s_messages(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text, program = REFUSED[what]
    with pytest.raises(popart_exception) as caught:
        program()
    assert caught.value.args[0] == text


def test_queries_that_require_no_compiled_program() -> None:
    session = infer(relu(), "y", compileEngine=False)
    assert session.getInfo("y") == popart.TensorInfo("FLOAT", [2])
    session.prepareDevice()
    assert session.getTensorTileMap().keys() >= {"x", "y"}
    assert constant(sparse=False)


def test_names_inside_a_graph_may_contain_a_prefix() -> None:
    model = onnx.load_model_from_string(relu())
    model.graph.node[0].output[0] = "scope/Gradient___y"
    model.graph.node.append(helper.make_node("Neg", ["scope/Gradient___y"], ["y"]))
    infer(model.SerializeToString(), "y")
