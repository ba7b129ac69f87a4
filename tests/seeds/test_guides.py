"""Tests statements of PopART's guides on feeding, training, devices, saving and reports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popgraph import compat

MODEL = """
import numpy as np
import poponnx

builder = poponnx.Builder()
image = builder.addInputTensor(poponnx.TensorInfo("FLOAT", [2, 3]), "image")
weight = builder.addInitializedInputTensor(np.ones((3, 2), np.float32), "weight")
out = builder.matmul([image, weight])
builder.addOutputTensor(out)
proto = builder.getModelProto()
losses = [poponnx.L1Loss(out, "loss", 0.1)]
optimizer = poponnx.ConstSGD(0.001)
dataFeed = poponnx.DataFlow(500, 2, ["loss"], poponnx.AnchorReturnType.ALL)
image_data = np.ones([1000, 3], np.float32)
"""

TRAINING = """
session = poponnx.Session(proto, dataFeed, losses, optimizer)

session.setDevice(poponnx.DeviceManager().createCpuDevice())
session.prepareDevice()
session.weightsFromHost()
session.optimizerFromHost()

inputs = { 'image': image_data }
anchors = { 'loss': np.zeros([1000]) }
io = poponnx.PyStepIO(inputs, anchors)

session.train(io)
"""

EXECUTING = """
import numpy as np
import popart

builder = popart.Builder()
a = builder.addInputTensor("FLOAT", [1], "a")
b = builder.addInputTensor("FLOAT", [1], "b")
w = builder.addInitializedInputTensor(np.ones(1, np.float32), "w")
o = builder.aiOnnx.mul([builder.aiOnnx.add([a, b]), w])
builder.addOutputTensor(o)
builder.saveModelProto("onnx.pb")

df = popart.DataFlow(1, {o: popart.AnchorReturnType("ALL")})
device = popart.DeviceManager().createIpuModelDevice({})
session = popart.InferenceSession("onnx.pb", deviceInfo=device, dataFeed=df)

session.prepareDevice()

# Create buffers to receive results from the execution
anchors = session.initAnchorArrays()

# Generate some random input data
data_a = np.random.rand(1).astype(np.float32)
data_b = np.random.rand(1).astype(np.float32)

stepio = popart.PyStepIO({'a': data_a, 'b': data_b}, anchors)

session.weightsFromHost()
session.optimizerFromHost()

session.run(stepio)
"""


@pytest.fixture(autouse=True)
def old_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The modules of the guides, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    compat.enable()
    yield
    compat.disable()


def run(*parts: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile("".join(parts), "<guide>", "exec"), names)
    return names


def test_training_fills_an_anchor_buffer() -> None:
    loss = run(MODEL, TRAINING)["anchors"]["loss"]
    # Each step takes 0.001 * 0.1 * 2 off every weight; a sample's loss is 0.1 * 2 * 3 * weight.
    weights = 1 - 0.0002 * np.repeat(np.arange(500), 2)
    np.testing.assert_allclose(loss, 0.6 * weights, rtol=1e-4)


@pytest.mark.parametrize(
    "data",
    [
        "image_data = image_data.tolist()",
        "image_data = (np.ones([2, 3], np.float32) for batch in range(500))",
        "import array; image_data = array.array('f', [1] * 3000)",
    ],
)
def test_data_feeds_are_arrays_lists_or_iterators(data: str) -> None:
    expected = run(MODEL, TRAINING)["anchors"]["loss"]
    found = run(MODEL, data, TRAINING)["anchors"]["loss"]
    np.testing.assert_array_equal(found, expected)


def test_an_anchor_may_be_a_list() -> None:
    expected = run(MODEL, TRAINING)["anchors"]["loss"]
    program = TRAINING.replace("np.zeros([1000])", "[0.0] * 1000")
    assert run(MODEL, program)["anchors"]["loss"] == expected.tolist()


def test_the_inference_program_of_the_guide_runs() -> None:
    names = run(EXECUTING)
    np.testing.assert_allclose(names["anchors"][names["o"]], names["data_a"] + names["data_b"])


def test_reports_are_text_and_json() -> None:
    session = run(EXECUTING)["session"]
    assert json.loads(session.getExecutionReport())["steps"] == 1
    assert json.loads(session.getExecutionReport())["steps"] == 0
    assert json.loads(session.getGraphReport())["graph"]["numComputeSets"] >= 1
    assert isinstance(session.getGraphReport(useCbor=True), bytes)
    assert isinstance(session.getExecutionReport(useCbor=True), bytes)
    assert "inference" in session.getSummaryReport()


def test_devices_are_listed_and_acquired_by_number() -> None:
    names = run("""
import popart

manager = popart.DeviceManager()
listed = manager.enumerateDevices()
two = manager.acquireAvailableDevice(2)
fifth = manager.acquireDeviceById(5)
model = manager.createIpuModelDevice({"numIPUs": 2, "tilesPerIPU": 8})
cpu = manager.createCpuDevice()
""")
    assert len(names["listed"]) == 1
    assert (names["two"].numIpus, names["fifth"].numIpus) == (2, 1)
    assert (names["model"].numIpus, names["model"].tilesPerIPU) == (2, 8)
    assert str(names["cpu"].type) == "cpu"


def test_saved_parameters_are_loaded() -> None:
    program = EXECUTING.replace(
        'popart.InferenceSession("onnx.pb",',
        'popart.TrainingSession("onnx.pb", losses=[popart.L1Loss(o, "loss", 1.0)],\n'
        "                                 optimizer=popart.SGD(0.5),",
    )
    names = run(
        program,
        """
session.modelToHost("trained_model.onnx")
session.resetHostWeights("onnx.pb")
session.weightsFromHost()
session.run(popart.PyStepIO({'a': data_a, 'b': data_b}, anchors))
first = anchors[o].copy()
session.resetHostWeights("trained_model.onnx")
session.weightsFromHost()
session.run(popart.PyStepIO({'a': data_a, 'b': data_b}, anchors))
""",
    )
    total = names["data_a"] + names["data_b"]
    np.testing.assert_allclose(names["first"], total, rtol=1e-6)
    found = names["anchors"][names["o"]]
    np.testing.assert_allclose(found, total * (1 - 0.5 * total), rtol=1e-5)


@pytest.mark.parametrize("level", ["TRACE", "DEBUG", "INFO", "WARN", "ERR", "CRITICAL", "OFF"])
def test_execution_tracing_has_levels(level: str, capsys: pytest.CaptureFixture[str]) -> None:
    import popart

    popart.getLogger().setLevel(level)
    try:
        run(EXECUTING)
    finally:
        popart.getLogger().setLevel("WARN")
    err = capsys.readouterr().err
    shown = {"Session::run": "TRACE", "Adding ai.onnx.Mul": "DEBUG", "Graph compiled": "INFO"}
    order = ["TRACE", "DEBUG", "INFO"]
    for words, needed in shown.items():
        assert (words in err) == (level in order[: order.index(needed) + 1])
