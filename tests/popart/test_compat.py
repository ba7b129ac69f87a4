"""Tests programs from PopONNX's and PopART's guides, unchanged."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from popgraph import compat
from popgraph.compat.__main__ import USAGE
from popgraph.support.arrays import Array
from tests.commanded import run_command
from tests.sampling import WHOLE

CLASSES = 10
EXPORT = torch.onnx.export


class SmallAlexNet(nn.Module):
    """A small AlexNet: the same kinds of layers and images, fast enough to train here."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, kernel_size=11, stride=8, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),
            nn.Conv2d(8, 12, kernel_size=5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),
        )
        self.classifier = nn.Sequential(
            nn.Dropout(0.0), nn.Linear(12 * 6 * 6, CLASSES), nn.Softmax(1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(torch.flatten(self.features(x), 1))


@pytest.fixture
def guides(
    quiet: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[pytest.MonkeyPatch]:
    """The environment of the guides' programs: old names, torchvision, an empty folder."""
    torchvision = types.ModuleType("torchvision")
    torchvision.models = types.SimpleNamespace(  # type: ignore[attr-defined]
        alexnet=lambda pretrained: SmallAlexNet().eval()
    )
    monkeypatch.setitem(sys.modules, "torchvision", torchvision)
    monkeypatch.chdir(tmp_path)
    name_outputs(monkeypatch, "output")
    compat.enable()
    yield monkeypatch
    compat.disable()


def name_outputs(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Replaces the exporter by an old one, which named the network's output so."""

    def old_export(model: nn.Module, data: Any, path: str, **named: Any) -> None:
        named = {"output_names": [name], "dynamo": False, **named}
        with pytest.warns(DeprecationWarning):
            EXPORT(model, (data,), path, **named)

    monkeypatch.setattr(torch.onnx, "export", old_export)


def run(program: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(program, "<guide>", "exec"), names)
    return names


def predictions(images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    with torch.no_grad():
        result = SmallAlexNet().eval()(torch.tensor(images))
    return np.asarray(result.numpy())


def one_batch() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(size=(4, 3, 224, 224)).astype(np.float32)


def step_of(session: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """The anchors of one step on the same batch, repeated."""
    import popart

    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    stepio = popart.PyStepIO(inputs, anchors)
    stepio.enableRuntimeAsserts(False)
    session.run(stepio)
    return dict(anchors)


def test_poponnx_inference_guide(guides: pytest.MonkeyPatch) -> None:
    names = run("""
import poponnx
import torch.onnx
import torchvision

input_ = torch.FloatTensor(torch.randn(4, 3, 224, 224))
model = torchvision.models.alexnet(pretrained=True)

torch.onnx.export(model, input_, "alexnet.onnx")

# Create a runtime environment
anchors = {"output" : poponnx.AnchorReturnType("ALL")}
dataFeed = poponnx.DataFlow(100, anchors)

session = poponnx.InferenceSession("alexnet.onnx", dataFeed)
""")
    images = one_batch()
    found = step_of(names["session"], {"input.1": images})["output"]
    assert found.shape == (100, 4, CLASSES)
    np.testing.assert_allclose(found, [predictions(images)] * 100, rtol=1e-4, atol=1e-6)


TRAINING = """
import {0}
import torch.onnx
import torchvision

input_ = torch.randn(4, 3, 224, 224)
model = torchvision.models.alexnet(pretrained=False)

torch.onnx.export(model, input_, "alexnet.onnx")

# Create a runtime environment
anchors = {{"output" : {0}.AnchorReturnType("ALL")}}
dataFeed = {0}.DataFlow(100, anchors)

losses = [{0}.NllLoss("output", "labels", "loss")]
optimizer = {0}.ConstSGD(0.001)

# We need to describe the labels input shape
inputShapeInfo = {0}.InputShapeInfo()
inputShapeInfo.add("labels", {0}.TensorInfo("INT32", [4]))
{1}
session = {0}.TrainingSession("alexnet.onnx",
                                  {2}
                                  dataFeed=dataFeed,
                                  losses=losses,
                                  optimizer=optimizer,
                                  inputShapeInfo=inputShapeInfo)
"""
STEPS = 100 if WHOLE else 20
"""Steps of the guides' trainings, which take 100."""
DEVICE = "device = popart.DeviceManager().createCpuDevice()"


def in_less_time(program: str) -> str:
    """The program of a guide with fewer steps."""
    less = program.replace("DataFlow(100,", f"DataFlow({STEPS},")
    assert WHOLE or less != program
    return less


@pytest.mark.parametrize(
    "program",
    [TRAINING.format("poponnx", "", ""), TRAINING.format("popart", DEVICE, "deviceInfo=device,")],
    ids=["poponnx", "popart"],
)
def test_training_guide_with_loss_classes(guides: pytest.MonkeyPatch, program: str) -> None:
    names = run(in_less_time(program))
    images, labels = one_batch(), np.int32([1, 2, 3, 4])
    found = step_of(names["session"], {"input.1": images, "labels": labels})["output"]
    np.testing.assert_allclose(found[0], predictions(images), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found, trained(images, labels, "sum", STEPS), rtol=2e-2, atol=1e-4)
    assert np.abs(found[0] - found[-1]).max() > 1e-3


def trained(images: Any, labels: Any, reduction: str, steps: int) -> np.ndarray[Any, Any]:
    """PyTorch's predictions in each step of the same training."""
    model = SmallAlexNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        probabilities = model(torch.tensor(images))
        loss = nn.functional.nll_loss(
            torch.log(probabilities), torch.tensor(labels).long(), reduction=reduction
        )
        loss.backward()
        optimizer.step()
        found.append(probabilities.detach().numpy())
    return np.stack(found)


def test_importing_session_guide(guides: pytest.MonkeyPatch) -> None:
    program = """
# Copyright (c) 2020 Graphcore Ltd. All rights reserved.
import popart

import torch.onnx
import torchvision

input_ = torch.FloatTensor(torch.randn(4, 3, 224, 224))
model = torchvision.models.alexnet(pretrained=False)

output_name = "output"

torch.onnx.export(model, input_, "alexnet.onnx", output_names=[output_name])

# Create a runtime environment
anchors = {output_name: popart.AnchorReturnType("All")}
dataFlow = popart.DataFlow(100, anchors)

# Append an Nll loss operation to the model
builder = popart.Builder("alexnet.onnx")
labels = builder.addInputTensor("INT32", [4])
nlll = builder.aiGraphcore.nllloss([output_name, labels])

optimizer = popart.ConstSGD(0.001)

# Run session on CPU
device = popart.DeviceManager().createCpuDevice()
session = popart.TrainingSession(builder.getModelProto(),
                                 deviceInfo=device,
                                 dataFlow=dataFlow,
                                 loss=nlll,
                                 optimizer=optimizer)
"""
    names = run(in_less_time(program))
    images, labels = one_batch(), np.int32([1, 2, 3, 4])
    found = step_of(names["session"], {"input.1": images, names["labels"]: labels})["output"]
    np.testing.assert_allclose(found, trained(images, labels, "mean", STEPS), rtol=2e-2, atol=1e-4)


def test_executing_an_imported_graph(guides: pytest.MonkeyPatch) -> None:
    names = run("""
# Copyright (c) 2021 Graphcore Ltd. All rights reserved.
import popart

import torch.onnx
import torchvision

import numpy as np
import onnx

input_ = torch.FloatTensor(torch.randn(4, 3, 224, 224))
model = torchvision.models.alexnet(pretrained=True)

output_name = "output"

torch.onnx.export(model, input_, "alexnet.onnx", output_names=[output_name])

# Obtain inputs/outputs name of loaded model
loaded_model = onnx.load('alexnet.onnx')
inputs_name = [node.name for node in loaded_model.graph.input]
outputs_name = [node.name for node in loaded_model.graph.output]

print("Iputs name:", inputs_name)
print("Outputs name:", outputs_name)

# Create a runtime environment
anchors = {output_name: popart.AnchorReturnType("All")}
dataFlow = popart.DataFlow(100, anchors)
device = popart.DeviceManager().createCpuDevice()

session = popart.InferenceSession("alexnet.onnx", dataFlow, device)

session.prepareDevice()

input_1 = np.random.randn(4, 3, 224, 224).astype(np.float32)

stepio = popart.PyStepIO({'input.1': input_1}, session.initAnchorArrays())
""")
    names["stepio"].enableRuntimeAsserts(False)
    names["session"].run(names["stepio"])


def test_poponnx_session_with_l1_loss(guides: pytest.MonkeyPatch) -> None:
    """The guide of 2018; its variable `in` is a keyword of Python, so it has another name."""
    name_outputs(guides, "out")
    names = run("""
import poponnx
import torch.onnx
import torchvision
from torch.autograd import Variable

input_ = Variable(torch.randn(10, 3, 224, 224))
model = torchvision.models.alexnet(pretrained=True)

torch.onnx.export(model, input_, "alexnet.onnx")

# Create a runtime environment
dataFeed = poponnx.DataFlow(500, 4, ["l1LossVal"],
                            poponnx.AnchorReturnType.ALL)
losses = [poponnx.L1Loss("out", "l1LossVal", 0.1)]
optimizer = poponnx.ConstSGD(0.001)

session = poponnx.Session("alexnet.onnx", dataFeed, losses, optimizer)
""")
    import poponnx

    session = names["session"]
    anchors = session.initAnchorArrays()
    assert anchors["l1LossVal"].shape == (5000,)
    session.setDevice(poponnx.DeviceManager().createCpuDevice())
    session.prepareDevice()
    session.weightsFromHost()
    session.optimizerFromHost()
    images = np.random.default_rng(0).normal(size=(10, 3, 224, 224)).astype(np.float32)
    inputs = {"input.1": images}
    stepio = poponnx.PyStepIO(inputs, anchors)
    stepio.enableRuntimeAsserts(False)
    session.evaluate(stepio)
    # Probabilities sum up to one, so the loss of each sample is 0.1.
    np.testing.assert_allclose(anchors["l1LossVal"], 0.1, rtol=1e-5)


def test_poponnx_builder_guide(guides: pytest.MonkeyPatch) -> None:
    names = run("""
import poponnx
builder = poponnx.Builder()

# Build a simple graph
i1 = builder.addInputTensor(poponnx.TensorInfo("FLOAT", [1, 2, 32, 32]))
i2 = builder.addInputTensor(poponnx.TensorInfo("FLOAT", [1, 2, 32, 32]))

o = builder.add(i1, i2)

builder.addOutputTensor(o)

proto = builder.getModelProto()


# Create a runtime environment
dataFeed = poponnx.DataFlow(500, 4, [o], poponnx.AnchorReturnType.ALL)

session = poponnx.Session(proto, dataFeed)
""")
    import poponnx

    session, o = names["session"], names["o"]
    anchors = session.initAnchorArrays()
    assert anchors[o].shape == (500, 2, 32, 32)
    session.prepareDevice()
    data = np.random.default_rng(0).normal(size=(500, 2, 32, 32)).astype(np.float32)
    session.infer(poponnx.PyStepIO({names["i1"]: data, names["i2"]: data}, anchors))
    np.testing.assert_array_equal(anchors[o], data + data)
    with pytest.raises(poponnx.poponnx_exception, match="when not in training mode"):
        session.train(None)
    with pytest.raises(poponnx.poponnx_exception, match="when not in evaluation mode"):
        session.evaluate(None)


def test_poponnx_evaluates_with_trained_weights(
    guides: pytest.MonkeyPatch,
) -> None:
    import poponnx

    builder = poponnx.Builder()
    image = builder.addInputTensor(poponnx.TensorInfo("FLOAT", [2, 3]))
    w = builder.addInitializedInputTensor(np.eye(3, dtype=np.float32))
    out = builder.softmax([builder.matmul([image, w])])
    shapes = poponnx.EarlyInfo()
    shapes.add("labels", poponnx.TensorInfo("INT32", [2]))
    feed = poponnx.DataFlow(3, 2, ["loss"], poponnx.AnchorReturnType.ALL)
    losses = [poponnx.NllLoss(out, "labels", "loss")]
    session = poponnx.Session(builder.getModelProto(), feed, shapes, losses, poponnx.SGD(0.5))
    session.prepareDevice()
    session.weightsFromHost()
    data: dict[str, Array] = {
        image: np.arange(18, dtype=np.float32).reshape(6, 3) / 10,
        "labels": np.int32([0, 1, 2, 0, 1, 2]),
    }
    values, weight = [], np.eye(3)
    for action, rate in (("evaluate", 0), ("train", 0.5), ("evaluate", 0), ("train", 0.25)):
        if action == "train":
            session.updateOptimizer(poponnx.SGD(rate))
            session.optimizerFromHost()
        anchors = session.initAnchorArrays()
        getattr(session, action)(poponnx.PyStepIO(data, anchors))
        values.append(anchors["loss"])
        expected, weight = by_hand(data[image].astype(float), data["labels"], weight, rate)
        np.testing.assert_allclose(anchors["loss"], expected, rtol=1e-5)
    assert values[0].shape == (6,)


def by_hand(x: Any, labels: Any, weight: Any, rate: float) -> tuple[Any, Any]:
    """NumPy's losses of three batches of two samples, and the weight after the steps."""
    losses = []
    for batch in range(3):
        rows = slice(2 * batch, 2 * batch + 2)
        power = np.exp(x[rows] @ weight)
        probabilities = power / power.sum(1, keepdims=True)
        losses.extend(-np.log(probabilities[[0, 1], labels[rows]]))
        wanted = np.eye(3)[labels[rows]]
        weight = weight - rate * x[rows].T @ (probabilities - wanted)
    return losses, weight


def test_executing_guide(guides: pytest.MonkeyPatch) -> None:
    """The fragments of the guide on execution, with a model that the guide omits."""
    names = run("""
import popart
import numpy as np

builder = popart.Builder()
a = builder.addInputTensor("FLOAT", [1], "a")
b = builder.addInputTensor("FLOAT", [1], "b")
w = builder.addInitializedInputTensor(np.ones(1, np.float32), "w")
o = builder.aiOnnx.mul([builder.aiOnnx.add([a, b]), w])
builder.addOutputTensor(o)
builder.saveModelProto("onnx.pb")

# Acquire a two-IPU pair
dev = popart.DeviceManager().acquireAvailableDevice(2)

# Acquire IPU configuration 5
dev = popart.DeviceManager().acquireDeviceById(5)

df = popart.DataFlow(1, {o: popart.AnchorReturnType("ALL")})
device = popart.DeviceManager().createCpuDevice()
s = popart.InferenceSession("onnx.pb", deviceInfo=device, dataFeed=df)

session = popart.TrainingSession("onnx.pb", deviceInfo=device, dataFeed=df,
                                 losses=[popart.L1Loss(o, "loss", 1.0)],
                                 optimizer=popart.SGD(0.5))
session.prepareDevice()

# Create buffers to receive results from the execution
anchors = session.initAnchorArrays()

# Generate some random input data
data_a = np.random.rand(1).astype(np.float32)
data_b = np.random.rand(1).astype(np.float32)

stepio = popart.PyStepIO({'a': data_a, 'b': data_b}, anchors)

session.weightsFromHost()
session.optimizerFromHost()

learningRate = [0.25]
step = 0

# Update learning rate parameter between training steps
stepLr = learningRate[step]
session.updateOptimizer(popart.SGD(stepLr))
session.optimizerFromHost()

session.run(stepio)

session.modelToHost("trained_model.onnx")

session.resetHostWeights("trained_model.onnx")
session.weightsFromHost()

popart.getLogger().setLevel("TRACE")
popart.getLogger().setLevel("OFF")
""")
    import popart

    total = names["data_a"] + names["data_b"]
    np.testing.assert_allclose(names["anchors"][names["o"]], total)
    weight = np.empty(1, np.float32)
    names["session"].weightsToHost()
    names["session"].readWeights(popart.PyWeightsIO({"w": weight}))
    np.testing.assert_allclose(weight, 1 - 0.25 * total, rtol=1e-6)


def test_compat_names_exist_only_when_enabled() -> None:
    assert "popart" not in sys.modules
    compat.enable()
    import popart
    import poponnx
    from popart.session import InferenceSession

    assert popart.InferenceSession is InferenceSession
    assert popart.session.InferenceSession is InferenceSession
    assert popart.tensorinfo.TensorInfo is popart.TensorInfo
    assert issubclass(poponnx.InferenceSession, InferenceSession)
    assert popart.versionNumber() == (3, 4, 0)
    assert issubclass(poponnx.poponnx_exception, popart.popart_exception)
    compat.disable()
    assert not any(name.partition(".")[0] in compat.ALIASES for name in sys.modules)


def test_old_operators_on_the_builder(guides: pytest.MonkeyPatch) -> None:
    import poponnx

    builder = poponnx.Builder()
    x = builder.addInputTensor(poponnx.TensorInfo("FLOAT", [1, 2, 8, 8]))
    w = builder.addInitializedInputTensor(np.ones((3, 2, 3, 3), np.float32))
    y = builder.convolution([x, w], [1, 1], [1, 1, 1, 1], [1, 1], 1)
    assert builder.getTensorShape(y) == [1, 3, 8, 8]
    y = builder.maxpool([y], [2, 2], [2, 2], [0, 0, 0, 0])
    assert builder.getTensorShape(y) == [1, 3, 4, 4]
    y = builder.averagepool([y], [2, 2], [2, 2], [0, 0, 0, 0])
    assert builder.getTensorShape(y) == [1, 3, 2, 2]
    assert builder.getTensorShape(builder.subsample([y], [1, 1, 2, 2])) == [1, 3, 1, 1]
    assert builder.getTensorShape(builder.slice([y], [2], [0], [1])) == [1, 3, 1, 2]
    flat = builder.reshape_const([y], [3, 4])
    square = builder.gemm([flat, flat, builder.constant(np.float32(0))], 1.0, 0.0, 1, 0)
    assert builder.getTensorShape(square) == [4, 4]
    assert builder.aiOnnx.version == 9
    with pytest.raises(AttributeError):
        _ = builder.nonsense


TELLS = "import popart, sys; print(popart.DataFlow(2, ['x']).anchors(), sys.argv[1:], __name__)"


@pytest.mark.parametrize("way", ["script", "module", "code"])
def test_a_program_runs_unchanged(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "told_by_popart.py").write_text(TELLS)
    monkeypatch.chdir(tmp_path)
    program = {
        "script": [os.fspath(tmp_path / "told_by_popart.py")],
        "module": ["-m", "told_by_popart"],
        "code": ["-c", TELLS],
    }[way]
    run_command(monkeypatch, *program, "-x", "more")
    assert capsys.readouterr().out == "['x'] ['-x', 'more'] __main__\n"
    compat.disable()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "usage"),
        (["-m"], "usage"),
        (["-x"], "usage"),
        (["missing.py"], "there is no file missing.py"),
        (["-m", "missing_module"], "there is no module missing_module"),
    ],
)
def test_programs_that_cannot_run_have_errors(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit) as stopped:
        run_command(monkeypatch, *arguments)
    compat.disable()
    assert str(stopped.value) == (USAGE if said == "usage" else said)


def test_operator_set_classes_inherit() -> None:
    from popgraph.compat.popart import builder as module

    builder = module.Builder(opsets={"ai.onnx": 9, "ai.graphcore": 1})
    assert isinstance(builder.aiOnnx, module.AiOnnx8 | module.AiOnnx)
    assert not isinstance(builder.aiOnnx, module.AiOnnx10)
    assert isinstance(builder.aiGraphcore, module.AiGraphcore)
    assert (str(builder.aiOnnx), str(builder.aiOnnxMlOpset1)) == ("AiOnnx9", "AiOnnxMl")
