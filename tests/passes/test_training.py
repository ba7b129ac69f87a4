"""Tests training of ONNX models through all graph passes, against PyTorch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from onnx import ModelProto, helper, numpy_helper
from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.reference import evaluate
from popgraph.builder.onnx.read import import_model
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.canonicalize import Canonicalize
from popgraph.passes.graphcore.cse import EliminateCommonSubexpressions
from popgraph.passes.graphcore.dce import EliminateDeadCode
from popgraph.passes.graphcore.fold_constants import FoldConstants
from popgraph.passes.graphcore.fuse_softmax_loss import FuseSoftmaxLoss
from popgraph.passes.graphcore.training.add_optimizer import AddOptimizer
from popgraph.passes.graphcore.training.autodiff import Autodiff
from popgraph.passes.onnx.infer_shapes import InferShapes
from popgraph.passes.onnx.normalize import Normalize
from popgraph.passes.onnx.to_graphcore import OnnxToGraphcore
from popgraph.passes.optimizer_spec import SGD, Adam, OptimizerSpec, Scalar
from popgraph.support.arrays import Array
from tests.checking import check_ir

STEPS = 5
GENERATOR = np.random.default_rng(5)
IMAGES = GENERATOR.normal(size=(STEPS, 4, 2, 6, 6))
LABELS = GENERATOR.integers(0, 5, size=(STEPS, 4))
WEIGHTS = {
    "kernel": GENERATOR.normal(size=(3, 2, 3, 3)) / 3,
    "scale": GENERATOR.uniform(0.5, 1.5, size=3),
    "shift": GENERATOR.normal(size=3),
    "mean": np.zeros(3),
    "variance": np.ones(3),
    "dense": GENERATOR.normal(size=(12, 5)) / 3,
    "bias": GENERATOR.normal(size=5),
}


def classifier(training: bool) -> ModelProto:
    """Conv, batch norm, relu, pool, dense, softmax, loss; opset 11, as in PopART."""
    statistics = ["m", "v", "sm", "sv"] if training else []
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node(
            "BatchNormalization",
            ["c", "scale", "shift", "mean", "variance"],
            ["n", *statistics],
            momentum=0.9,
        ),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("AveragePool", ["r"], ["p"], kernel_shape=[3, 3], strides=[3, 3]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "dense", "bias"], ["g"]),
        helper.make_node("Softmax", ["g"], ["probabilities"]),
        helper.make_node(
            "Nll", ["probabilities", "labels"], ["loss"], domain="ai.graphcore", reduction="Mean"
        ),
    ]
    double, whole = 11, 7
    graph = helper.make_graph(
        nodes,
        "classifier",
        [
            helper.make_tensor_value_info("x", double, IMAGES.shape[1:]),
            helper.make_tensor_value_info("labels", whole, LABELS.shape[1:]),
        ],
        [helper.make_tensor_value_info("loss", double, [])],
        [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()],
    )
    domains = [helper.make_opsetid("", 11), helper.make_opsetid("ai.graphcore", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=6)


def compiled(spec: OptimizerSpec, training: bool) -> tuple[ModuleOp, Compilation]:
    compilation = Compilation()
    module = import_model(classifier(training), compilation.weights)
    for step in (
        InferShapes(),
        Normalize(),
        OnnxToGraphcore(weights="variable", training=training),
        Autodiff.towards("loss", spec),
        AddOptimizer.by(spec),
        FuseSoftmaxLoss(),
        FoldConstants(),
        Canonicalize(),
        EliminateCommonSubexpressions(),
        EliminateDeadCode(),
    ):
        step.run(compilation, module)
        check_ir(module)
    names = {op.name for op in module.walk()}
    assert "graphcore.softmax_grad" not in names and "graphcore.nll_loss_grad" not in names
    return module, compilation


class Reference(torch.nn.Module):
    """The same network in PyTorch."""

    def __init__(self, training: bool) -> None:
        super().__init__()
        self.batch = torch.nn.BatchNorm2d(3, momentum=0.1, dtype=torch.float64)
        self.weights = torch.nn.ParameterDict(
            {name: torch.tensor(WEIGHTS[name]) for name in ("kernel", "dense", "bias")}
        )
        with torch.no_grad():
            self.batch.weight.copy_(torch.tensor(WEIGHTS["scale"]))
            self.batch.bias.copy_(torch.tensor(WEIGHTS["shift"]))
        self.train(training)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.batch(torch.conv2d(x, self.weights["kernel"], padding=1)).relu()
        pooled = torch.nn.functional.avg_pool2d(hidden, 3).flatten(1)
        return pooled @ self.weights["dense"] + self.weights["bias"]

    def arrays(self) -> Mapping[str, Array]:
        found = {name: self.weights[name] for name in ("kernel", "dense", "bias")}
        found |= {"scale": self.batch.weight, "shift": self.batch.bias}
        return {name: value.detach().numpy() for name, value in found.items()}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_a_classifier_trains_as_in_pytorch(kind: str, training: bool) -> None:
    reference = Reference(training)
    spec: OptimizerSpec
    optimizer: torch.optim.Optimizer
    if kind == "sgd":
        spec = SGD(
            learning_rate=Scalar(0.05, False),
            momentum=Scalar(0.9),
            weight_decay=Scalar(0.01),
            loss_scaling=Scalar(64.0, False),
        )
        optimizer = torch.optim.SGD(reference.parameters(), 0.05, 0.9, weight_decay=0.01)
    else:
        spec = Adam(learning_rate=Scalar(0.01), epsilon=Scalar(1e-8), loss_scaling=Scalar(64.0))
        optimizer = torch.optim.Adam(reference.parameters(), 0.01, eps=1e-8)
    module, compilation = compiled(spec, training)
    state = None
    for step in range(STEPS):
        inputs = {"x": IMAGES[step], "labels": LABELS[step]}
        outputs, state = evaluate(module, inputs, compilation.weights, state)
        optimizer.zero_grad()
        logits = reference(torch.tensor(IMAGES[step]))
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(LABELS[step]))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        assert set(outputs) == {"loss"}
        np.testing.assert_allclose(outputs["loss"], loss.item(), rtol=1e-8)
    assert state is not None
    for name, expected in reference.arrays().items():
        assert not np.allclose(expected, WEIGHTS[name], atol=1e-4)
        np.testing.assert_allclose(state[name], expected, rtol=1e-6, atol=1e-8, err_msg=name)
    running_mean = reference.batch.running_mean
    assert running_mean is not None
    # ONNX stores the momentum in f32.
    np.testing.assert_allclose(state["mean"], running_mean.numpy(), rtol=1e-6)
    assert np.allclose(state["variance"], WEIGHTS["variance"]) != training


@pytest.mark.parametrize("op", ["Elu", "Selu", "Celu"])
def test_elu_selu_and_celu_gradients_where_exp_overflows(op: str) -> None:
    x = np.array([-1e9, -1000, -2, -0.5, 0.5, 2, 1000, 1e9])
    nodes = [helper.make_node(op, ["x"], ["y"]), helper.make_node("ReduceSum", ["y"], ["loss"])]
    if op == "Celu":  # Celu is defined for f32 only
        x = x.astype(np.float32)
    weight = numpy_helper.from_array(x, "x")
    output = helper.make_tensor_value_info("loss", weight.data_type, [1])
    graph = helper.make_graph(nodes, op, [], [output], [weight])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=7)
    compilation = Compilation()
    module = import_model(proto, compilation.weights)
    for step in (
        InferShapes(),
        Normalize(),
        OnnxToGraphcore(weights="variable", training=True),
        Autodiff("loss"),
    ):
        step.run(compilation, module)
    outputs, _ = evaluate(module, {}, compilation.weights)
    tensor = torch.tensor(x, requires_grad=True)
    getattr(torch.nn.functional, op.lower())(tensor).sum().backward()
    assert tensor.grad is not None
    np.testing.assert_allclose(outputs["Gradient___x"], tensor.grad.numpy(), rtol=1e-6, atol=1e-12)
