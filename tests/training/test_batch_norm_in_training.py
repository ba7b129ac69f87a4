"""Tests that models exported for inference train as in PyTorch: statistics, dropout, files."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper, parser

import popgraph
import popgraph.popart as popart
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.passes.options import Options, Training
from popgraph.support.arrays import Array

BACKENDS = ("reference", "c")
STEPS = 5
VERSIONS: Mapping[int, dict[str, object]] = {
    1: {"is_test": 1, "consumed_inputs": [0, 0, 0, 1, 1]},
    6: {"is_test": 1},
    7: {},
    9: {},
    14: {},
    15: {"training_mode": 0},
}
"""Attributes of BatchNormalization for inference, by opset version."""


def arrays(seed: int = 4) -> dict[str, Array]:
    draw = np.random.default_rng(seed)
    shapes = {"w": (3, 2, 3, 3), "scale": (3,), "bias": (3,), "mean": (3,), "variance": (3,)}
    found = {name: draw.normal(0.3, 0.5, shape) for name, shape in shapes.items()}
    found["variance"] = np.abs(found["variance"]) + 0.5
    return {name: array.astype(np.float32) for name, array in found.items()}


def images(samples: int = 4, seed: int = 5) -> Array:
    draw = np.random.default_rng(seed)
    return draw.normal(1, 2, (STEPS, samples, 2, 6, 6)).astype(np.float32)


def model(opset: int, weights: Mapping[str, Array], **attributes: object) -> onnx.ModelProto:
    """Convolution, BatchNormalization and Relu; the loss is the mean of all elements."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3]),
        helper.make_node(
            "BatchNormalization",
            ["c", "scale", "bias", "mean", "variance"],
            ["b"],
            momentum=0.75,
            **{**VERSIONS[opset], **attributes},
        ),
        helper.make_node("Relu", ["b"], ["y"]),
        helper.make_node("Mul", ["y", "y"], ["square"]),
        helper.make_node("ReduceMean", ["square"], ["loss"], keepdims=0),
    ]
    inputs = [helper.make_tensor_value_info("x", 1, [4, 2, 6, 6])]
    outputs = [helper.make_tensor_value_info("loss", 1, [])]
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    domains = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=domains, ir_version=7)


def trained(
    proto: onnx.ModelProto, data: Array, backend: str, frozen: tuple[str, ...] = ()
) -> tuple[list[float], dict[str, Array]]:
    """The losses of the steps, and the weights after them."""
    rule = SGD(Scalar(0.1))
    options = Options(training=Training("loss", rule, frozen=frozen))
    run = popgraph.compile(proto, backend=backend, options=options)
    losses = [float(run({"x": batch})["loss"]) for batch in data]
    assert run.static is not None
    names = [one.name for one in proto.graph.initializer if one.name not in frozen]
    return losses, {name: run.static.read(name) for name in names}


def trained_by_torch(
    weights: Mapping[str, Array], data: Array, *, eval_mode: bool = False
) -> tuple[list[float], dict[str, Array]]:
    batch = torch.nn.BatchNorm2d(3, momentum=0.25)
    kernel = torch.nn.Parameter(torch.tensor(weights["w"]))
    with torch.no_grad():
        batch.weight.copy_(torch.tensor(weights["scale"]))
        batch.bias.copy_(torch.tensor(weights["bias"]))
    batch.running_mean = torch.tensor(weights["mean"])
    batch.running_var = torch.tensor(weights["variance"])
    batch.train(not eval_mode)
    optimizer = torch.optim.SGD([kernel, *batch.parameters()], 0.1)
    losses = []
    for images in data:
        optimizer.zero_grad()
        loss = (batch(torch.conv2d(torch.tensor(images), kernel)).relu() ** 2).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    tensors = {
        "w": kernel,
        "scale": batch.weight,
        "bias": batch.bias,
        "mean": batch.running_mean,
        "variance": batch.running_var,
    }
    return losses, {name: tensor.detach().numpy() for name, tensor in tensors.items()}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("opset", VERSIONS)
def test_inference_batch_norm_trains_as_in_pytorch(opset: int, backend: str) -> None:
    weights, data = arrays(), images()
    losses, found = trained(model(opset, weights), data, backend)
    wanted, expected = trained_by_torch(weights, data)
    np.testing.assert_allclose(losses, wanted, rtol=1e-4)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5, err_msg=name)
        assert not np.allclose(array, weights[name], atol=1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("frozen", [("mean",), ("variance",), ("mean", "variance")])
def test_frozen_statistics_are_those_of_inference(frozen: tuple[str, ...], backend: str) -> None:
    weights, data = arrays(), images()
    losses, found = trained(model(15, weights), data, backend, frozen)
    wanted, expected = trained_by_torch(weights, data, eval_mode=True)
    np.testing.assert_allclose(losses, wanted, rtol=1e-4)
    for name, array in found.items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("opset", [1, 6, 7])
def test_non_spatial_statistics_are_per_element(opset: int, backend: str) -> None:
    weights, data = arrays(), images()
    draw = np.random.default_rng(6)
    for name in ("scale", "bias", "mean", "variance"):
        weights[name] = draw.uniform(0.5, 1, (3, 4, 4)).astype(np.float32)
    _, found = trained(model(opset, weights, spatial=0), data[:1], backend)
    rows = torch.conv2d(torch.tensor(data[0]), torch.tensor(weights["w"])).numpy()
    moved = 0.75 * weights["mean"] + 0.25 * rows.mean(0)
    np.testing.assert_allclose(found["mean"], moved, rtol=1e-4, atol=1e-5)
    moved = 0.75 * weights["variance"] + 0.25 * rows.var(0, ddof=1)
    np.testing.assert_allclose(found["variance"], moved, rtol=1e-4)


def test_training_mode_of_onnx_is_respected() -> None:
    """A node with `training_mode` uses the variance of the batch, as ONNX defines it."""
    weights, data = arrays(), images()
    proto = model(15, weights, training_mode=1)
    proto.graph.node[1].output.extend(["m", "v"])
    _, found = trained(proto, data[:1], "reference")
    rows = torch.conv2d(torch.tensor(data[0]), torch.tensor(weights["w"])).numpy()
    moved = 0.75 * weights["variance"] + 0.25 * rows.var((0, 2, 3))
    np.testing.assert_allclose(found["variance"], moved, rtol=1e-4)


def popart_session(outputs: int, detached: bool) -> tuple[popart.TrainingSession, str]:
    """A session of PopART with a batch norm, optionally detached from the loss."""
    builder, weights = popart.Builder(opsets={"ai.onnx": 9}), arrays()
    x = builder.addInputTensor("FLOAT", [4, 3, 2, 2])
    names = ("scale", "bias", "mean", "variance")
    held = [builder.addInitializedInputTensor(weights[name], name) for name in names]
    y = builder.aiOnnx.batchnormalization([x, *held], outputs)[0]
    cut = builder.aiGraphcore.detach([y]) if detached else y
    factor = builder.addInitializedInputTensor(np.ones(3, np.float32).reshape(3, 1, 1), "factor")
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.mul([cut, factor])], 1.0)
    flow = popart.DataFlow(1, [y])
    device = popart.DeviceManager().createCpuDevice(backend="reference")
    made = popart.TrainingSession(builder.getModelProto(), flow, loss, popart.ConstSGD(0.1), device)
    return made, y


@pytest.mark.parametrize(
    ("outputs", "detached", "of_batch"), [(1, True, False), (5, True, True), (5, False, True)]
)
def test_the_number_of_outputs_selects_training_in_popart(
    outputs: int, detached: bool, of_batch: bool
) -> None:
    session, y = popart_session(outputs, detached)
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    data = np.random.default_rng(7).normal(1, 2, (4, 3, 2, 2)).astype(np.float32)
    [x] = [id for id in session.getTensorIds() if id.startswith("input")]
    session.run(popart.PyStepIO({x: data}, anchors))
    session.weightsToHost()
    weights, column = arrays(), (slice(None), None, None)
    mean = data.mean((0, 2, 3)) if of_batch else weights["mean"]
    variance = data.var((0, 2, 3)) if of_batch else weights["variance"]
    expected = (data - mean[column]) / np.sqrt(variance + 1e-5)[column]
    expected = expected * weights["scale"][column] + weights["bias"][column]
    np.testing.assert_allclose(anchors[y], expected, rtol=1e-4, atol=1e-5)
    assert np.array_equal(session.weights()["mean"], weights["mean"]) != of_batch


def test_popart_refuses_to_train_inference_batch_norm() -> None:
    with pytest.raises(popart.popart_exception, match="has to be detached first"):
        popart_session(1, detached=False)


# Dropout

DROPOUTS = {
    1: "Dropout<ratio = 0.25, consumed_inputs = [0]>(z)",
    6: "Dropout<ratio = 0.25>(z)",
    7: "Dropout<ratio = 0.25>(z)",
    10: "Dropout<ratio = 0.25>(z)",
    12: "Dropout(z, ratio)",
    13: "Dropout(z, ratio)",
    22: "Dropout(z, ratio)",
}


def dropped(text: str, opset: int, backend: str, *, training: bool = True) -> Array:
    """The output of a dropout for an input of ones, in a training step or in inference."""
    proto = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : {opset}]>
    g (float[64, 64] x) => (float[64, 64] y, float loss)
    <float ratio = {{0.25}}, bool off = {{0}}, bool on = {{1}}>
    {{ z = Mul (x, w)
       y = {text}
       loss = ReduceSum<keepdims = 0>(y) }}""")
    ones = np.ones((64, 64), np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(ones, "w"))
    options = Options(training=Training("loss", SGD(Scalar(0.1))) if training else None)
    run = popgraph.compile(proto, backend=backend, options=options)
    return run({"x": ones})["y"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("opset", DROPOUTS)
def test_a_dropout_drops_in_training_and_not_in_inference(opset: int, backend: str) -> None:
    found = dropped(DROPOUTS[opset], opset, backend)
    assert 0.2 < (found == 0).mean() < 0.3
    np.testing.assert_allclose(found[found != 0], 1 / 0.75, rtol=1e-6)
    assert (dropped(DROPOUTS[opset], opset, backend, training=False) == 1).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_dropout_with_a_mode_input_keeps_its_mode(backend: str) -> None:
    assert (dropped("Dropout(z, ratio, off)", 22, backend) == 1).all()
    assert 0.2 < (dropped("Dropout(z, ratio, on)", 22, backend) == 0).mean() < 0.3
    assert 0.2 < (dropped("Dropout(z, ratio, on)", 22, backend, training=False) == 0).mean() < 0.3
