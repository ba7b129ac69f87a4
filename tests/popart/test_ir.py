"""Tests the IR of a session: operators, tensors and placement of the graph that runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import popgraph.popart as popart
from tests.popart.popart_graphs import (
    inferred,
    layers,
    options,
    trained,
    types,
    weight,
)


def test_every_operator_has_popart_s_keys_and_every_value_is_a_text() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3], "x")
    y = builder.aiOnnx.leakyrelu([x], 0.25, "mine")
    (op,) = inferred(builder, y)["maingraph"]
    assert op["type"] == "LeakyRelu"
    assert op["name"] == "mine"
    assert op["inputs"] == [{"name": "x", "shape": "[2 3]", "type": "FLOAT", "index": "0"}]
    assert op["outputs"] == [{"name": y, "index": "0"}]
    wanted = {"alpha": "0.250000", "recompute": "NO", "scope": "", "schedulePriority": "0.000000"}
    assert wanted.items() <= op["attributes"].items()
    assert "__ipu_number" not in op["attributes"]


def test_a_session_has_its_ir_before_it_is_prepared_and_keeps_it() -> None:
    builder = popart.Builder()
    y = builder.aiOnnx.abs([builder.addInputTensor("FLOAT", [2])])
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]))
    assert session.getIr() is session.getIr()
    assert session.getIr().graphNames() == ["maingraph"]
    with pytest.raises(TypeError, match="IrSerializationFormat"):
        session._serializeIr("YAML")  # type: ignore[arg-type]


def test_a_graph_with_a_name_is_written_under_it() -> None:
    builder = popart.Builder()
    builder.setGraphName("net")
    y = builder.aiOnnx.abs([builder.addInputTensor("FLOAT", [2])])
    assert list(inferred(builder, y)) == ["net"]


def test_operators_that_no_anchor_needs_are_removed() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    builder.aiOnnx.exp([x])
    assert types(inferred(builder, builder.aiOnnx.abs([x]))) == ["Abs"]


def test_constant_operators_that_popart_cannot_fold_are_logged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    literal = builder.aiOnnx.relu([builder.aiOnnx.constant(np.ones(2, np.float32))])
    of_weight = builder.aiOnnx.relu([weight(builder, 2)])
    steep = builder.aiOnnx.sigmoid([builder.aiOnnx.constant(np.ones(2, np.float32))])
    y = builder.aiOnnx.sum([x, literal, of_weight, steep])
    inferred(builder, y)
    logged = [line for line in capsys.readouterr().err.splitlines() if "popart:ces" in line]
    for line, type_ in zip(logged, ("Relu", "Sigmoid"), strict=True):
        assert f"No ConstExpr implementation of {type_}. Consider implementing" in line
    inferred(builder, y, literal, steep, given=options(constantWeights=False))
    assert "ConstExpr" not in capsys.readouterr().err


def test_a_trace_lists_operators_that_are_never_computed(
    quiet: None, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    popart.getLogger("ces").setLevel("TRACE")
    inferred(builder, builder.aiOnnx.relu([builder.aiOnnx.add([x, x])]))
    logged = [line for line in capsys.readouterr().err.splitlines() if "popart:ces" in line]
    assert len(logged) == 1
    assert logged[0].endswith(
        "No ConstExpr implementation of Relu, returning from constant folding early."
    )


def test_unknown_transforms_are_logged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    builder = popart.Builder()
    y = builder.aiOnnx.relu([builder.addInputTensor("FLOAT", [2])])
    settings = popart.ExperimentalSettings()
    settings.customTransformApplierSettings = {"Last": ["Prune"]}
    settings._customTransformApplierSettings["Fwd0"] = ["Prune", "Mine"]
    inferred(builder, y, given=options(experimentalSettings=settings))
    logged = [line for line in capsys.readouterr().err.splitlines() if "popart:transform" in line]
    assert [line.partition(": ")[2] for line in logged] == [
        "Transform 'Mine' does not exist or is not allowed to be used.",
        "'Last' is not a valid customTransformApplierSettings option.",
    ]


def test_a_dot_file_for_each_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = popart.Builder()
    loss = layers(builder, 2)
    for word, count in (("", 2), ("PREALIAS:fwd1", 4), ("ALL", 6)):
        folder = tmp_path / (word.replace(":", "-") or "options")
        folder.mkdir()
        monkeypatch.setenv("POPART_DOT_CHECKS", word)
        trained(builder, loss, given=options(logDir=str(folder), dotChecks={"Final", "Fwd0"}))
        assert len(list(folder.iterdir())) == count, word
    first, last = (
        (tmp_path / "options" / f"{check}_maingraph.dot").read_text() for check in ("fwd0", "final")
    )
    assert first.startswith("digraph")
    assert [text.count('label="MatMul"') for text in (first, last)] == [2, 5]
    monkeypatch.setenv("POPART_DOT_CHECKS", "LAST")
    with pytest.raises(popart.popart_exception, match="dot check 'LAST'"):
        trained(builder, loss)


def test_the_environment_names_a_file_for_the_ir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ir.json"
    monkeypatch.setenv("POPART_IR_DUMP", str(path))
    builder = popart.Builder()
    y = builder.aiOnnx.abs([builder.addInputTensor("FLOAT", [2])])
    assert inferred(builder, y) == json.loads(path.read_text())


def test_gradients_are_named_after_their_tensors() -> None:
    builder = popart.Builder()
    ops = trained(builder, layers(builder, 1))["maingraph"]
    found = {op["outputs"][0]["name"]: op["type"] for op in ops if op["outputs"]}
    assert found["Gradient___Relu:0"] == "SoftmaxGrad"
    assert found["Gradient___MatMul:0"] == "ReluGrad"
    assert found["Gradient___w0"] == "MatMul"
    assert found["UpdatedVar___w0"] == "CopyVarUpdate"
    (update,) = (op for op in ops if op["type"] == "CopyVarUpdate")
    assert update["inputs"][0]["name"] == "w0"


def test_tensors_of_the_ir_have_infos() -> None:
    builder = popart.Builder()
    loss = layers(builder, 2)
    session = popart.TrainingSession(
        builder.getModelProto(), popart.DataFlow(1, [loss]), loss, popart.ConstSGD(0.1)
    )
    session.prepareDevice()
    for id in ("Gradient___w0", "Gradient___MatMul:0", "Gradient___MatMul:0/1"):
        assert session.getInfo(id).shape() == ([4, 4] if "w" in id else [8, 4])
        assert id in session.getTensorIds()


def test_recomputed_operators_are_in_the_ir_twice() -> None:
    builder = popart.Builder()
    x, w = builder.addInputTensor("FLOAT", [2, 2], "x"), weight(builder, 2, 2)
    y = builder.aiOnnx.tanh([builder.aiOnnx.matmul([x, w])])
    builder.recomputeOutputInBackwardPass(y)
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.mul([y, y])], 1.0)
    ops = trained(builder, loss)["maingraph"]
    found = [op["attributes"] for op in ops if op["type"] == "Tanh"]
    assert [one["recomputetype"] for one in found] == ["Recompute", "Recomputed"]
    assert [one["recompute"] for one in found] == ["YES", "NO"]


def test_the_ir_has_graphs_of_operators() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2], "x")
    chosen = builder.addInputTensor("BOOL", [], "chosen")
    branches = []
    for name in ("abs", "exp"):
        inner = builder.createSubgraphBuilder()
        inner.setGraphName(name)
        inner.addInputTensorFromParentGraph(x)
        inner.addOutputTensor(getattr(inner.aiOnnx, name)([x]))
        branches.append(inner)
    y = builder.aiOnnx.logical_if([chosen], 1, branches[1], branches[0])[0]
    graphs = inferred(builder, y)
    assert list(graphs) == ["maingraph", "abs", "exp"]
    (op,) = graphs["maingraph"]
    assert (op["type"], op["attributes"]["then_branch"]) == ("If", "abs")
    assert op["attributes"]["else_branch"] == "exp"
    assert (types(graphs, "abs"), types(graphs, "exp")) == (["Abs"], ["Exp"])
    assert graphs["exp"][0]["attributes"]["scope"] == "exp"


@pytest.mark.parametrize(("trains", "first"), [(False, "w0 w1"), (True, "w0 w1 w2")])
def test_layers_are_distributed_over_the_ipus_of_a_device(trains: bool, first: str) -> None:
    """In training, the second IPU also has the softmax and the loss."""
    builder = popart.Builder()
    loss = layers(builder, 4)
    given = options(virtualGraphMode=popart.VirtualGraphMode.Auto)
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2})
    made = trained if trains else inferred
    ops = made(builder, loss, given=given, device=device)["maingraph"]
    homes = {
        op["inputs"][1]["name"]: op["attributes"]["__ipu_number"]
        for op in ops
        if op["type"] == "MatMul" and op["inputs"][1]["name"].startswith("w")
    }
    expected = dict.fromkeys(["w0", "w1", "w2", "w3"], "1") | dict.fromkeys(first.split(), "0")
    assert homes == expected
