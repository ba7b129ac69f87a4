"""Tests that empty sums are 0 and empty means NaN, in losses and their gradients too."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import popgraph
from popgraph.passes.optimizer_spec import SGD
from popgraph.passes.options import Options, Training
from popgraph.runner import Runner
from popgraph.support.arrays import Array
from popgraph.support.errors import TypeMismatchError

IGNORED = -7
LOSSES = ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
SCORES = ((0, 3), (0, 3, 4), (2, 3, 0), (2, 3, 5, 0), (2, 3), (2, 3, 4))
"""Shapes of scores without samples; the last two have samples, but all labels are ignored."""


def model(op: str, arrays: dict[str, Array], **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node(op, list(arrays), ["y"], **attributes)
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in arrays.items()
    ]
    outputs = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def both(made: onnx.ModelProto, training: bool) -> list[Runner]:
    """The program in C and on the reference backend; a training step returns the gradient of x."""
    step = Training("y", SGD(), gradients=("x",)) if training else None
    options = Options(training=step)
    return [popgraph.compile(made, backend=one, options=options) for one in ("c", "reference")]


@pytest.mark.parametrize("op", LOSSES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("scores", SCORES, ids=str)
def test_losses_without_samples(op: str, reduction: str, scores: tuple[int, ...]) -> None:
    labels = np.full((scores[0], *scores[2:]), IGNORED, np.int64)
    arrays = {"x": np.ones(scores, np.float32), "labels": labels}
    weight = {"weight": np.ones(3, np.float32)}
    value = np.zeros(labels.shape if reduction == "none" else ())
    value = value + np.nan if reduction == "mean" else value
    for weights, ignored in itertools.product([{}, weight], [{"ignore_index": IGNORED}, {}]):
        if labels.size and not ignored:
            continue
        given = {**arrays, **weights}
        made = model(op, given, reduction=reduction, **ignored)
        for training in {False, reduction != "none"}:
            for run in both(made, training):
                found = run(given)
                np.testing.assert_array_equal(found["y"], value)
                if training:
                    np.testing.assert_array_equal(found["Gradient___x"], np.zeros(scores))


@pytest.mark.parametrize("op", LOSSES)
@pytest.mark.parametrize("scores", SCORES, ids=str)
def test_pytorch_has_the_same_empty_losses(op: str, scores: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    labels = torch.full((scores[0], *scores[2:]), IGNORED)
    function = "nll_loss" if op.startswith("Neg") else "cross_entropy"
    for reduction, value in (("mean", np.nan), ("sum", 0.0)):
        x = torch.ones(scores, requires_grad=True)
        loss = getattr(torch.nn.functional, function)(
            x, labels, reduction=reduction, ignore_index=IGNORED
        )
        loss.backward()
        np.testing.assert_array_equal(loss.detach().numpy(), value)
        np.testing.assert_array_equal(x.grad.numpy(), np.zeros(scores))


@pytest.mark.parametrize("element", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("shape", "axes"), [((0, 3), [0]), ((2, 0), [1]), ((0,), [0])])
def test_means_of_empty_tensors(element: type, shape: tuple[int, ...], axes: list[int]) -> None:
    arrays = {"x": np.ones(shape, element)}
    made = model("ReduceMean", arrays, axes=axes, keepdims=0)
    made.graph.output[0].type.tensor_type.elem_type = made.graph.input[0].type.tensor_type.elem_type
    for run in both(made, False):
        found = run(arrays)["y"]
        assert found.dtype == element
        np.testing.assert_array_equal(found, np.full(np.delete(shape, axes), np.nan))


def test_means_of_empty_integers_are_refused() -> None:
    made = model("ReduceMean", {"x": np.ones((0, 3), np.int32)}, axes=[0])
    made.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT32
    with pytest.raises(TypeMismatchError, match="at least one element to reduce"):
        popgraph.compile(made)


@pytest.mark.parametrize("indices", [(0,), (2, 0)])
def test_a_step_with_an_empty_lookup(indices: tuple[int, ...]) -> None:
    """Empty index tensors are in range."""
    builder = popgraph.Builder()
    table = builder.addInitializedInputTensor(np.ones((3, 4), np.float32), "table")
    i = builder.addInputTensor(popgraph.TensorInfo("INT32", indices), "i")
    rows = builder.aiOnnx.gather([table, i])
    loss = builder.aiGraphcore.identityloss([rows], popgraph.ReductionType.Sum)
    builder.addOutputTensor(loss)
    step = Options(training=Training(loss, SGD(), gradients=("table",)), indices="error")
    for backend in ("c", "reference"):
        run = popgraph.compile(builder.getModelProto(), options=step, backend=backend)
        found = run(i=np.zeros(indices, np.int32))
        assert found[loss] == 0
        np.testing.assert_array_equal(found["Gradient___table"], np.zeros((3, 4)))
