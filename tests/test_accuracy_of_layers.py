"""Tests that attention, pooling, losses and their gradients are as accurate as PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import popgraph
from popgraph.passes.optimizer_spec import SGD
from popgraph.passes.options import Options, Training
from popgraph.passes.structured.to_loops.emit import chunks
from popgraph.support.arrays import Array
from tests.test_long_sums import error, numbers, of_torch, some

torch = pytest.importorskip("torch")
functional = torch.nn.functional

DIGIT = 2.0**-23
"""Error of rounding a result once, with one digit of margin."""


@dataclass(frozen=True)
class Layer:
    """An ONNX operator, its differentiable inputs, and PyTorch's function."""

    op: str
    floats: Mapping[str, Array]
    theirs: Callable[..., Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    labels: Array | None = None

    def model(self, slope: Array) -> onnx.ModelProto:
        """A model whose loss is the inner product of the result and a slope."""
        known = {"slope": slope} if self.labels is None else {"slope": slope, "labels": self.labels}
        names = [*self.floats] if self.labels is None else [*self.floats, "labels"]
        nodes = [
            helper.make_node(self.op, names, ["y"], **self.attributes),
            helper.make_node("Mul", ["y", "slope"], ["part"]),
            helper.make_node("ReduceSum", ["part"], ["loss"], keepdims=0),
        ]
        single = onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            nodes,
            "layer",
            [helper.make_tensor_value_info(k, single, v.shape) for k, v in self.floats.items()],
            [helper.make_tensor_value_info(name, single, None) for name in ("y", "loss")],
            [numpy_helper.from_array(value, name) for name, value in known.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)

    def by_torch(self, slope: Array | None, kind: Any) -> list[Array]:
        """PyTorch's result, and gradients of the inputs if there is a slope."""
        tensors = [torch.tensor(x, dtype=kind, requires_grad=True) for x in self.floats.values()]
        result = self.theirs(*tensors)
        if slope is not None:
            result.backward(torch.tensor(slope, dtype=kind))
        return [of_torch(result), *(of_torch(one.grad) for one in tensors if slope is not None)]


def check(layer: Layer) -> None:
    """Our errors are at most twice PyTorch's, plus the last digit."""
    (result,) = layer.by_torch(None, torch.float64)
    slope = numbers(*result.shape, mean=0.0, seed=9)
    options = Options(training=Training("loss", SGD(), gradients=tuple(layer.floats)))
    found = popgraph.compile(layer.model(slope), options=options)(dict(layer.floats))
    exact, theirs = (layer.by_torch(slope, kind) for kind in (torch.float64, torch.float32))
    ours = ["y", *(f"Gradient___{name}" for name in layer.floats)]
    for name, right, peer in zip(ours, exact, theirs, strict=True):
        mine, other = error(found[name], right), error(peer, right)
        said = f"{layer.op}, {name}: off by {mine:.1e}, PyTorch by {other:.1e}"
        assert mine <= 2 * other + DIGIT, said


scales = st.sampled_from([0.01, 1.0, 20.0])
means = st.sampled_from([0.0, 1.0, -30.0])
sizes = st.sampled_from([1, 2, 3, 7, 16, 33])


def scaled(scale: float, mean: float, seed: int, *shape: int) -> Array:
    return numbers(*shape, mean=0.0, seed=seed) * np.float32(scale) + np.float32(mean)


@some(4)
@given(sizes, sizes, sizes, st.sampled_from([1, 4, 16, 64, 96]), st.sampled_from([0.1, 1.0, 3.0]))
@example(2, 64, 200, 64, 1.0)
@example(1, 300, 1000, 32, 3.0)
def test_accuracy_of_attention(
    heads: int, queries: int, keys: int, depth: int, scale: float
) -> None:
    def part(rows: int, seed: int) -> Array:
        return scaled(scale, 0.0, seed, 2, heads, rows, depth)

    floats = {"q": part(queries, 0), "k": part(keys, 1), "v": part(keys, 2)}
    check(Layer("Attention", floats, functional.scaled_dot_product_attention))


@some(4)
@given(sizes, sizes, st.sampled_from([(2, 2, 0), (3, 2, 1), (3, 1, 1), (5, 3, 2)]), scales, means)
@example(16, 33, (3, 1, 1), 1.0, 1.0)
def test_accuracy_of_pooling(
    channels: int, side: int, window: tuple[int, int, int], scale: float, mean: float
) -> None:
    kernel, stride, pad = window
    floats = {"x": scaled(scale, mean, 3, 2, channels, side + 7, side + 4)}
    attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
    arguments = {"kernel_size": kernel, "stride": stride, "padding": pad}

    def average(x: Any) -> Any:
        return functional.avg_pool2d(x, count_include_pad=False, **arguments)

    check(Layer("AveragePool", floats, average, attributes))
    check(Layer("MaxPool", floats, lambda x: functional.max_pool2d(x, **arguments), attributes))


@some(4)
@given(
    st.sampled_from([1, 5, 50, 3000]),
    st.sampled_from([2, 10, 100, 1000]),
    st.sampled_from([(), (1,), (3, 4)]),
    st.sampled_from(["mean", "sum", "none"]),
    scales,
    means,
)
@example(50_000, 10, (), "mean", 1.0, 1.0)
@example(4, 50_000, (), "sum", 20.0, 0.0)
def test_accuracy_of_losses(
    samples: int,
    classes: int,
    rest: tuple[int, ...],
    reduction: str,
    scale: float,
    mean: float,
) -> None:
    samples = min(samples, max(1, 2_000_000 // classes // int(np.prod(rest))))
    x = scaled(scale, mean, 4, samples, classes, *rest)
    labels = np.random.default_rng(5).integers(0, classes, (samples, *rest))
    given_ = torch.tensor(labels)
    for op, function in (
        ("SoftmaxCrossEntropyLoss", functional.cross_entropy),
        ("NegativeLogLikelihoodLoss", functional.nll_loss),
    ):

        def theirs(x: Any, function: Callable[..., Any] = function) -> Any:
            return function(x, given_, reduction=reduction)

        check(Layer(op, {"x": x}, theirs, {"reduction": reduction}, labels))


def test_sequential_sums_of_losses_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above fail if losses are summed one after another."""
    monkeypatch.setattr(chunks, "chunked_reduction", lambda *_, **__: None)
    x = np.zeros((1_000_000, 2), np.float32)
    labels = np.zeros(1_000_000, np.int64)

    def theirs(x: Any) -> Any:
        return functional.cross_entropy(x, torch.tensor(labels), reduction="sum")

    attributes = {"reduction": "sum"}
    with pytest.raises(AssertionError, match="PyTorch by"):
        check(Layer("SoftmaxCrossEntropyLoss", {"x": x}, theirs, attributes, labels))
