"""Tests models of PyTorch's exporter: merged weights train separately, files are for inference."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import parser
from torch import nn
from typer.testing import CliRunner

import popgraph
from popgraph.builder.onnx.read import import_model
from popgraph.cli import app
from popgraph.compiler import load
from popgraph.dialects.onnx import model_of
from popgraph.passes.base import Compilation
from popgraph.support.arrays import Array
from popgraph.training.inference_form import to_inference
from popgraph.training.merged_weights import separate_weights
from popgraph.training.selection import select

STEPS, BATCH = 5, 6
EVAL = torch.onnx.TrainingMode.PRESERVE


class Network(nn.Module):
    """Two convolutions, two batch norms, a norm that is used twice, and two equal layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.norm, self.norm2 = nn.BatchNorm2d(4), nn.BatchNorm2d(4, momentum=0.3)
        self.dropped = nn.Dropout(0.0)
        self.left = nn.Linear(4, 4)
        self.right = copy.deepcopy(self.left)
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.first(x)).relu()
        x = self.norm2(self.second(self.second(x))).relu().mean((2, 3))
        x = self.left(x).tanh() * self.scale
        return self.right(self.dropped(x)).softmax(1)


@pytest.fixture
def network() -> Network:
    torch.manual_seed(3)
    return Network()


@pytest.fixture
def data() -> tuple[Array, Array]:
    draw = np.random.default_rng(8)
    images = draw.normal(1, 2, (STEPS * BATCH, 2, 5, 5)).astype(np.float32)
    return images, draw.integers(0, 4, STEPS * BATCH).astype(np.int64)


def exported(network: Network, path: Path, mode: torch.onnx.TrainingMode) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (torch.zeros(BATCH, 2, 5, 5),),
            str(path),
            input_names=["x"],
            output_names=["y"],
            training=mode,
            dynamo=False,
        )
    return path


def steps(network: Network, data: tuple[Array, Array]) -> list[float]:
    """Trains the network by PyTorch; the losses of its steps."""
    optimizer, losses = torch.optim.SGD(network.parameters(), 0.1), []
    network.train()
    for images, labels in batches(data):
        optimizer.zero_grad()
        probabilities = network(torch.tensor(images))
        loss = nn.functional.nll_loss(probabilities.log(), torch.tensor(labels))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    return losses


def batches(data: tuple[Array, Array]) -> Iterator[tuple[Array, Array]]:
    for start in range(0, STEPS * BATCH, BATCH):
        yield tuple(array[start : start + BATCH] for array in data)  # type: ignore[misc]


def session_of(path: Path, backend: str) -> tuple[popgraph.TrainingSession, str]:
    builder = popgraph.Builder(str(path))
    labels = builder.addInputTensor("INT32", [BATCH], "labels")
    loss = builder.aiGraphcore.nllloss(["y", labels])
    made = popgraph.TrainingSession(
        builder.getModelProto(),
        popgraph.DataFlow(1, [loss]),
        loss,
        popgraph.ConstSGD(0.1),
        popgraph.DeviceManager().createCpuDevice(backend=backend),
    )
    return made, loss


@pytest.mark.parametrize("backend", ["reference", "c"])
@pytest.mark.parametrize("mode", [EVAL, torch.onnx.TrainingMode.TRAINING])
def test_an_exported_network_trains_as_in_pytorch(
    mode: torch.onnx.TrainingMode,
    backend: str,
    network: Network,
    data: tuple[Array, Array],
    tmp_path: Path,
) -> None:
    path = exported(network.eval(), tmp_path / "net.onnx", mode)
    losses = steps(network, data)
    session, loss = session_of(path, backend)
    session.prepareDevice()
    session.weightsFromHost()
    anchors, found = session.initAnchorArrays(), []
    for images, labels in batches(data):
        inputs = {"x": images, "labels": labels.astype(np.int32)}
        session.run(popgraph.PyStepIO(inputs, anchors))
        found.append(float(anchors[loss]))
    np.testing.assert_allclose(found, losses, rtol=1e-4)
    session.weightsToHost()
    held = session.weights()
    for name, tensor in network.state_dict().items():
        # PyTorch's running variance is Bessel-corrected, ONNX's is not.
        if name in held and (mode == EVAL or "running_var" not in name):
            np.testing.assert_allclose(held[name], tensor.numpy(), rtol=1e-3, atol=1e-5)
    trained = dict(network.named_parameters())
    missing = set(trained) - {*session.selection.trained}
    assert not missing, missing
    assert len(session.selection.statistics) == 4


@pytest.mark.parametrize("mode", [EVAL, torch.onnx.TrainingMode.TRAINING])
def test_trained_models_are_saved_for_inference(
    mode: torch.onnx.TrainingMode, network: Network, data: tuple[Array, Array], tmp_path: Path
) -> None:
    path = exported(network.eval(), tmp_path / "net.onnx", mode)
    images, labels = data
    np.save(tmp_path / "x.npy", images)
    np.save(tmp_path / "labels.npy", labels)
    target = tmp_path / "trained.onnx"
    arguments = ["train", str(path), f"x={tmp_path}/x.npy", f"labels={tmp_path}/labels.npy"]
    said = ["--loss", "nll(y, labels)", "--optimizer", "SGD(0.1)", "--batch", str(BATCH)]
    result = CliRunner().invoke(app, [*arguments, *said, "-o", str(target)])
    assert result.exit_code == 0, result.output
    proto = onnx.load(target)
    onnx.checker.check_model(proto)
    for node in proto.graph.node:
        if node.op_type == "BatchNormalization":
            assert len(node.output) == 1
            modes = [one.i for one in node.attribute if one.name == "training_mode"]
            assert modes == [0]
        assert node.op_type != "Dropout" or len(node.input) == 2
    theirs = onnxruntime.InferenceSession(target, providers=["CPUExecutionProvider"])
    [expected] = theirs.run(["y"], {"x": images[:BATCH]})
    found = popgraph.compile(target)({"x": images[:BATCH]})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    [before] = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(
        ["y"], {"x": images[:BATCH]}
    )
    assert not np.allclose(before, expected, atol=1e-3)
    held = {one.name for one in proto.graph.initializer}
    assert {"norm.running_mean", "norm2.running_var"} <= held


SHARED = """<ir_version: 8, opset_import: ["" : 17], producer_name: "PRODUCER">
g (float[4, 3] x) => (float loss)
<float[3] one = {1, 1, 1}, float[3] zero = {0, 0, 0}, float[3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9},
 float[3, 3] v = {1, 2, 1, 4, 5, 6, 7, 8, 9}>
{
  a = LayerNormalization (x, one, zero)
  b = LayerNormalization (a, one, zero)
  m = MatMul (b, w)
  c = Add (m, zero)
  n = MatMul (c, w)
  d = Add (n, zero)
  o = MatMul (d, v)
  e = Add (o, zero)
  loss = ReduceSum<keepdims = 0> (e)
}"""


@pytest.mark.parametrize(
    ("producer", "count"),
    [("pytorch", 8), ("", 4)],  # two scales of one, and biases of zero: a, b, two of w, one of v
)
def test_merged_weights_are_split_by_module(producer: str, count: int) -> None:
    compilation = Compilation()
    proto = parser.parse_model(SHARED.replace("PRODUCER", producer))
    module = import_model(proto, compilation.weights)
    separate_weights(module, compilation.weights)
    module.verify()
    names = select(module, "loss").trained
    assert len(names) == count
    nodes = list(model_of(module).graph.nodes)
    biases = [op.operands[-1] for op in nodes if op.op_type == "Add"]
    assert biases[0] is biases[1]  # one module, used twice
    assert (biases[0] is biases[2]) == (not producer)
    scales = [op.operands[1] for op in nodes if op.op_type == "LayerNormalization"]
    assert (scales[0] is scales[1]) == (not producer)


FORMS = """<ir_version: 8, opset_import: ["" : VERSION]>
g (float[2, 3] x) => (float[2, 3] y, float[3] m)
<float[3] s = {1, 2, 3}, float[3] mean = {0, 1, 0}, float[3] var = {1, 4, 1}, bool on = {1},
 float half = {0.5}>
{
  BODY
}"""
NORM, OLD = "BatchNormalization<momentum = 0.5MORE> (x, s, s, mean, var)", ", saved, spread = "
BODIES = {
    15: f"z, m, v = {NORM.replace('MORE', ', training_mode = 1')}\n y = Dropout (z, half, on)",
    9: f"z, m, v{OLD}{NORM.replace('MORE', '')}\n y, mask = Dropout<ratio = 0.5> (z)",
    6: f"z, m, v{OLD}{NORM.replace('MORE', '')}\n y = Dropout<ratio = 0.5> (z)",
}


@pytest.mark.parametrize("opset", BODIES)
def test_readers_of_batch_statistics_get_running_statistics(opset: int, tmp_path: Path) -> None:
    proto = parser.parse_model(FORMS.replace("VERSION", str(opset)).replace("BODY", BODIES[opset]))
    module, _ = load(proto)
    to_inference(module)
    module.verify()
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    found = popgraph.compile(module)({"x": x})
    s, mean, var = np.array([[1, 2, 3], [0, 1, 0], [1, 4, 1]], np.float32)
    np.testing.assert_allclose(found["y"], (x - mean) / np.sqrt(var + 1e-5) * s + s, rtol=1e-5)
    assert found["m"].tolist() == [0, 1, 0]
