"""Tests that sessions take models as builders, texts, modules or bytes, and parse bytes once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import popgraph.popart as popart
from popgraph import compiler
from popgraph.popart.api.losses import L1Loss

TEXT = """
graph g(x: f32[2, 3]) -> y {
    weight w: f32[3, 2] = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    y = x @ w
}
train () {
    loss = ReduceSum(y, keepdims=0)
    optimizer = SGD(0.5)
}
"""


def built() -> tuple[popart.Builder, str]:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3], "x")
    weight = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    w = builder.addInitializedInputTensor(weight, "w")
    y = builder.aiOnnx.matmul([x, w])
    builder.addOutputTensor(y)
    return builder, y


def refuse_protobuf(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*rest: object, **named: object) -> object:
        raise AssertionError("the model went through protobuf")

    for name in (
        "popgraph.compiler.loading.import_model",
        "popgraph.popart.api.builder.import_model",
    ):
        monkeypatch.setattr(name, refused)
    monkeypatch.setattr("popgraph.popart.api.builder.exported", refused)
    monkeypatch.setattr("onnx.ModelProto", refused)


def run(session: popart.TrainingSession | popart.InferenceSession) -> dict[str, np.ndarray]:
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": np.ones((2, 3), np.float32)}, anchors))
    return anchors


@pytest.fixture
def device() -> popart.DeviceInfo:
    return popart.DeviceManager().createCpuDevice(backend="reference")


def test_builders_modules_and_texts_reach_a_session_as_ir(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: popart.DeviceInfo
) -> None:
    path = tmp_path / "net.pgraph"
    path.write_text(TEXT)
    builder, y = built()
    refuse_protobuf(monkeypatch)
    for model, output in ((builder, y), (builder.module(), y), (path, "y")):
        session = popart.InferenceSession(model, popart.DataFlow(1, [output]), device)
        np.testing.assert_array_equal(run(session)[output], [[9, 12], [9, 12]])
    trained = popart.TrainingSession(path, popart.DataFlow(1, ["loss"]), deviceInfo=device)
    assert run(trained)["loss"] == 42


def test_a_session_adds_nothing_to_its_builder(device: popart.DeviceInfo) -> None:
    builder, y = built()
    before, weights = builder.getModelProto(), set(builder.weights)
    loss = L1Loss(y, "l1", 0.5)
    flow = popart.DataFlow(1, ["l1"])
    session = popart.TrainingSession(builder, flow, [loss], popart.ConstSGD(1.0), device)
    np.testing.assert_array_equal(run(session)["l1"], [10.5, 10.5])
    assert builder.getModelProto() == before
    assert set(builder.weights) == weights


def test_a_module_of_a_lower_level_is_refused(device: popart.DeviceInfo) -> None:
    builder, y = built()
    module, compilation = compiler.load(builder)
    compiler.lower(module, compilation, level="graphcore")
    with pytest.raises(popart.popart_exception, match="not a module of the graphcore level"):
        popart.InferenceSession(module, popart.DataFlow(1, [y]), device)
