"""Tests the gradients of ONNX's node cases of composed operators against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.reference import evaluate
from popgraph.builder.onnx.read import import_model
from popgraph.conformance.cases import node_cases
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.training.autodiff import Autodiff
from popgraph.passes.onnx.infer_shapes import InferShapes
from popgraph.passes.onnx.normalize import Normalize
from popgraph.passes.onnx.to_graphcore import OnnxToGraphcore
from popgraph.passes.options import GRADIENT
from popgraph.support.arrays import Array
from popgraph.support.errors import DifferentiationError, UnsupportedError
from tests.passes.claims import assert_slope, shaken
from tests.sampling import is_taken

CASES = {
    "Attention": 20,
    "Softmax": 2,
    "LogSoftmax": 2,
    "SoftmaxCrossEntropyLoss": 5,
    "NegativeLogLikelihoodLoss": 3,
    "GridSample": 4,
    "DeformConv": 1,
    "LpNormalization": 1,
    "DFT": 1,
}
"""Operators, and the least number of their cases that have a gradient."""
SHARE = 3
"""A run takes every third case, and all cases with masks."""

MIXTURE = "mixture_of_results"
NARROW_NAMES = ("bfloat16", "float16", "float32")
NARROW = (TensorProto.BFLOAT16, TensorProto.FLOAT16, TensorProto.FLOAT)


def widened(model: onnx.ModelProto, inputs: Sequence[Any]) -> tuple[onnx.ModelProto, list[Any]]:
    """The model in f64, which finite differences need."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for info in (*wide.graph.input, *wide.graph.output, *wide.graph.value_info):
        if info.type.tensor_type.elem_type in NARROW:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
    arrays = [
        value.astype(np.float64) if str(getattr(value, "dtype", "")) in NARROW_NAMES else value
        for value in inputs
    ]
    return wide, arrays


def is_of(model: onnx.ModelProto, op: str) -> bool:
    """Whether the model is a single node of this operator that does not compute in f32 itself."""
    nodes = model.graph.node
    return [node.op_type for node in nodes] == [op] and not any(
        attribute.name == "softmax_precision" for attribute in nodes[0].attribute
    )


def with_loss(model: onnx.ModelProto, results: Sequence[Any]) -> onnx.ModelProto:
    """The model with a single output: a random weighted sum of all elements of its results."""
    generator, terms = np.random.default_rng(1), []
    for info, result in zip(model.graph.output, results, strict=True):
        if np.asarray(result).dtype.kind not in "fV":
            continue
        weights = generator.uniform(0.5, 1.5, np.asarray(result).shape)
        terms += [f"{info.name}_term"]
        model.graph.initializer.append(numpy_helper.from_array(weights, f"{info.name}_weights"))
        model.graph.node.extend(
            [
                helper.make_node(
                    "Mul", [info.name, f"{info.name}_weights"], [f"{info.name}_mixed"]
                ),
                helper.make_node("ReduceSum", [f"{info.name}_mixed"], terms[-1:], keepdims=0),
            ]
        )
    del model.graph.output[:]
    model.graph.node.append(helper.make_node("Sum", terms, [MIXTURE]))
    model.graph.output.append(helper.make_tensor_value_info(MIXTURE, TensorProto.DOUBLE, []))
    return model


def forward(
    model: onnx.ModelProto, names: Sequence[str], *, straight_through: bool = False
) -> tuple[ModuleOp, Compilation]:
    compilation = Compilation()
    module = import_model(model, compilation.weights)
    lower = OnnxToGraphcore(extra_outputs=tuple(names), straight_through=straight_through)
    for step in (InferShapes(), Normalize(), lower):
        step.run(compilation, module)
    return module, compilation


def check(model: onnx.ModelProto, inputs: Sequence[Any], results: Sequence[Any]) -> bool:
    """Checks the gradients; returns whether there were any."""
    wide, arrays = widened(model, inputs)
    generator = np.random.default_rng(0)
    names = [info.name for info in wide.graph.input]
    given = {
        name: shaken(np.asarray(array), generator)
        for name, array in zip(names, arrays, strict=False)
    }
    floats = [name for name, array in given.items() if array.dtype == np.float64]
    module, compilation = forward(with_loss(wide, results), floats)
    backward = module.clone()
    Autodiff(MIXTURE, wrt=tuple(floats)).run(compilation, backward)
    found, _ = evaluate(backward, given, compilation.weights)

    def loss_at(name: str, value: Array) -> float:
        moved: Mapping[str, Array] = {**given, name: value}
        return float(evaluate(module, moved, compilation.weights)[0][MIXTURE])

    for name in floats:
        gradient = found.get(GRADIENT + name, np.zeros(()))
        direction = generator.uniform(-1, 1, given[name].shape)
        if not np.isfinite(gradient).all():
            raise AssertionError(f"the gradient of {name} is not finite")
        at: Callable[[Array], float] = partial(loss_at, name)
        assert_slope(at, given[name], direction, gradient, 1.0, name)
    return bool(floats)


@pytest.fixture(scope="module")
def cases() -> list[Any]:
    return [case for case in node_cases() if "_expanded" not in case.name]


@pytest.mark.parametrize("op", CASES)
def test_gradients_of_onnx_node_cases(op: str, cases: list[Any]) -> None:
    looked_at, wrong = 0, list[str]()
    chosen = [case for case in cases if is_of(case.model, op)]
    for number, case in enumerate(chosen):
        if not is_taken(number, SHARE) and "masked" not in case.name and "robust" not in case.name:
            continue
        ((inputs, outputs),) = case.data_sets
        try:
            with np.errstate(all="ignore"):
                looked_at += check(case.model, inputs, outputs)
        except (UnsupportedError, DifferentiationError) as error:
            print(f"{case.name}: {error}")
        except AssertionError as error:
            wrong.append(f"{case.name}: {error}")
    assert not wrong, "\n".join(wrong)
    assert looked_at >= CASES[op]
