"""Tests PopONNX's writer of PyTorch modules: it trains and saves like a session."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from popgraph.popart.eras.era import Era, era_named
from tests.popart.era_modules import OLD, POPONNX, by_name, module_of, names_taken_away

__all__ = ["names_taken_away"]
pytestmark = pytest.mark.usefixtures("names_taken_away")


class Scores(torch.nn.Module):
    """A module that returns the probabilities of three classes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, inputs: list[torch.Tensor]) -> torch.Tensor:
        return torch.softmax(self.layer(inputs[0]), 1)


class Loss(Scores):
    """A module that returns the loss, as PopART's writer requires."""

    def forward(self, inputs: list[torch.Tensor]) -> torch.Tensor:
        return -(torch.log(super().forward(inputs))[:, 0] * inputs[1].float()).mean()


def writer_module(era: Era) -> Any:
    module_of(era)
    return importlib.import_module(f"{era.module}.torch.torchwriter")


def inputs_of_a_step() -> dict[str, Any]:
    draw = np.random.default_rng(0)
    images = draw.standard_normal((2, 5, 4)).astype(np.float32)
    return {"image": images, "label": draw.integers(0, 3, (2, 5)).astype(np.int32)}


@pytest.mark.parametrize("era", POPONNX, **by_name)
def test_a_module_trains_as_a_session_does(
    era: Era, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = module_of(era)
    shapes = old.InputShapeInfo()
    shapes.add("image", old.TensorInfo("FLOAT", [5, 4]))
    shapes.add("label", old.TensorInfo("INT32", [5]))
    flow = old.DataFlow(2, {"loss": old.AnchorReturnType("ALL")})
    losses = [old.NllLoss("scores", "label", "loss")]
    arguments: list[Any] = [["image"], ["scores"], losses, old.ConstSGD(0.1), flow, shapes]
    network = Scores()
    writer = writer_module(era).PytorchNetWriter(*arguments, network, 5)
    path = str(tmp_path / "scores.onnx")
    writer.saveModel(path)
    assert capsys.readouterr().out == f"1\nWriting ONNX model to protobuf file {path}\n"
    session = old.TrainingSession(
        path, dataFeed=flow, losses=losses, optimizer=old.ConstSGD(0.1), inputShapeInfo=shapes
    )
    session.setDevice(old.DeviceManager().createCpuDevice(backend="reference"))
    session.prepareDevice()
    session.weightsFromHost()
    data = inputs_of_a_step()
    assert np.shape(writer.evaluate(data)) == (2, 5)
    wanted = writer.train(data)
    session.run(old.PyStepIO(data, session.initAnchorArrays()))
    session.modelToHost(path)
    held = {one.name: onnx.numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer}
    for name, value in wanted[-1].items():
        np.testing.assert_allclose(held[name], value.numpy(), rtol=1e-4, atol=1e-6)
    assert not np.allclose(wanted[0]["layer.weight"], wanted[1]["layer.weight"])
    shown = writer.infer({"image": data["image"]})["scores"]
    np.testing.assert_allclose([one.sum(1) for one in shown], np.ones((2, 5)), rtol=1e-5)


@pytest.mark.parametrize("era", [era for era in OLD if era.module == "popart"], **by_name)
def test_the_one_output_of_a_module_is_its_loss(era: Era, tmp_path: Path) -> None:
    old = module_of(era)
    shapes = old.InputShapeInfo()
    shapes.add("image", old.TensorInfo("FLOAT", [5, 4]))
    shapes.add("label", old.TensorInfo("INT32", [5]))
    flow = old.DataFlow(2, {"loss": old.AnchorReturnType("All")})
    writer = writer_module(era).PytorchNetWriter(
        inNames=["image", "label"],
        outNames=["loss"],
        optimizer=old.ConstSGD(0.1),
        dataFlow=flow,
        inputShapeInfo=shapes,
        module=Loss(),
        samplesPerBatch=5,
    )
    first, second = writer.train(inputs_of_a_step())
    assert not np.allclose(first["layer.weight"], second["layer.weight"])
    path = str(tmp_path / "loss.onnx")
    writer.saveModel(path)
    builder = old.Builder(path)
    assert builder.getTensorDtypeString("label") == "int32"


def test_batches_may_be_concatenated() -> None:
    old = module_of(POPONNX[0])
    flow = old.DataFlow(2, 5, ["scores"], old.AnchorReturnType.ALL)
    shapes = old.InputShapeInfo()
    shapes.add("image", old.TensorInfo("FLOAT", [5, 4]))
    kind = writer_module(POPONNX[0]).PytorchNetWriter
    writer = kind(["image"], ["scores"], [], None, flow, shapes, Scores())
    data = inputs_of_a_step()["image"].reshape(10, 4)
    shown = writer.infer({"image": data})["scores"]
    assert [one.shape for one in shown] == [(5, 3), (5, 3)]
    with pytest.raises(RuntimeError, match="unrecognised optimizer"):
        writer.train({"image": data})


def test_missing_arguments_of_a_writer_are_named() -> None:
    old = module_of(OLD[0])
    kind = writer_module(OLD[0]).PytorchNetWriter
    with pytest.raises(TypeError, match="needs inputShapeInfo"):
        kind(["image"], ["scores"], [], None, old.DataFlow(1, {}))
    base = importlib.import_module("poponnx.writer").NetWriter
    with pytest.raises(NotImplementedError):
        base([], [], [], None, old.DataFlow(1, {}), old.InputShapeInfo()).saveModel("x")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_module_is_a_session(quiet: None) -> None:
    """A step of `popart.torch.TrainingSession` equals PyTorch, batch by batch."""
    sessions = importlib.import_module("popgraph.compat.popart.torch")
    popart = module_of(era_named("2020-05"))
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Softmax(1))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.5)
    data, labels = torch.randn(4, 3), torch.tensor([0, 3, 1, 2])
    given = [module, data, labels, optimizer, nn.NLLLoss()]
    device = popart.DeviceManager().createCpuDevice(backend="reference")
    passes = popart.Patterns()
    session = sessions.TrainingSession(*given, device, 2, 2, passes=passes)
    anchors = session.initAnchorArrays()
    session.prepareDevice()
    session.weightsFromHost()
    session.run("a step", data, labels)
    for batch in range(2):
        probabilities = module(data.reshape(2, 2, 3)[batch])
        np.testing.assert_allclose(anchors["output_0"][batch], probabilities.detach(), rtol=1e-5)
        each = -probabilities.log()[[0, 1], labels.reshape(2, 2)[batch]]
        np.testing.assert_allclose(anchors["loss_0"][batch], each.detach(), rtol=1e-5)
        optimizer.zero_grad()
        each.sum().backward()
        optimizer.step()
    infers = sessions.InferenceSession(*given[:3], nn.Identity(), device, 2, 2)
    anchors = infers.initAnchorArrays()
    infers.prepareDevice()
    infers.weightsFromHost()
    infers.run(data, labels)
    np.testing.assert_allclose(anchors["loss_0"], module(data).detach().reshape(2, 2, 4), rtol=1e-5)


def test_unsupported_arguments_of_a_torch_session() -> None:
    sessions = importlib.import_module("popgraph.popart.pytorch")
    module, data = nn.Identity(), torch.zeros(4, 3)
    rates = {"lr": 0.1, "momentum": 0.5}
    for optimizer, loss, batch, said in (
        (torch.optim.SGD([data], **rates), nn.MSELoss(), 4, "Only NLLLoss, L1Loss or Identity"),
        (torch.optim.SGD([data], **rates), nn.NLLLoss(), 3, "batch size 3"),
        (torch.optim.Adam([data]), nn.NLLLoss(), 4, "only accepts SGD"),
        (torch.optim.SGD([data], nesterov=True, **rates), nn.NLLLoss(), 4, "Nesterov"),
    ):
        with pytest.raises(RuntimeError, match=said):
            sessions.TrainingSession(module, data, data[:, 0], optimizer, loss, None, batch)
