"""Tests broadcasting by the rules of old opsets, on operands that would fit any axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import popgraph
from popgraph.backends.reference import evaluate
from popgraph.builder.onnx.read import import_model
from popgraph.passes.base import Compilation
from popgraph.passes.onnx.to_graphcore import OnnxToGraphcore
from popgraph.support.arrays import Array
from popgraph.support.errors import TypeMismatchError

CUBE = np.arange(1, 28, dtype=np.float32).reshape(3, 3, 3) / 8 - 2.0625  # no element is 0
LIST = np.array([0.25, 1, 3], np.float32)
PLACED: dict[str, Callable[[Array, Array], Array]] = {
    "Add": np.add,
    "And": np.logical_and,
    "Div": np.divide,
    "Equal": np.equal,
    "Greater": np.greater,
    "Less": np.less,
    "Mul": np.multiply,
    "Or": np.logical_or,
    "Pow": np.power,
    "Sub": np.subtract,
    "Xor": np.logical_xor,
}
"""Operators with an `axis` for their second operand before opset 7."""
ELEMENTS = {"And": np.bool_, "Or": np.bool_, "Xor": np.bool_, "Equal": np.int32}
COARSE = 1e-6


def placed() -> Iterator[tuple[str, int]]:
    """All versions of all operators with such an attribute."""
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and {"broadcast", "axis"} <= set(schema.attributes):
            yield schema.name, schema.since_version


def model(op: str, opset: int, operands: list[Array], **attributes: Any) -> onnx.ModelProto:
    names = [f"x{number}" for number in range(len(operands))]
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in zip(names, operands, strict=True)
    ]
    node = helper.make_node(op, names, ["y"], **attributes)
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def check(expected: Array, op: str, opset: int, operands: list[Array], **attributes: Any) -> None:
    """Compares with the onnx level and with the reference backend."""
    given = model(op, opset, operands, **attributes)
    inputs = {f"x{number}": value for number, value in enumerate(operands)}
    compilation = Compilation()
    original = import_model(given, compilation.weights)
    for found in (
        evaluate(original, inputs, compilation.weights)[0]["y"],
        popgraph.compile(given, backend="reference")(inputs)["y"],
    ):
        np.testing.assert_allclose(found, expected, COARSE, err_msg=f"{op}-{opset} {attributes}")
        assert found.shape == expected.shape


@pytest.mark.parametrize(("op", "version"), list(placed()))
def test_broadcasting_at_an_axis(op: str, version: int) -> None:
    dtype = ELEMENTS.get(op, np.float32)
    cube, row = (np.abs(array * 4).astype(dtype) for array in (CUBE, LIST))
    for axis in (0, 1, 2, -2):
        columns = row.reshape(3, *(1,) * (2 - axis % 3))
        check(PLACED[op](cube, columns), op, version, [cube, row], broadcast=1, axis=axis)
    check(PLACED[op](cube, row), op, version, [cube, row], broadcast=1)
    check(PLACED[op](cube, cube), op, version, [cube, cube])


@pytest.mark.parametrize("opset", [1, 6, 7, 9, 16])
def test_prelu_slopes_by_opset(opset: int) -> None:
    """Before opset 7 a slope per channel, since then broadcast to the last axis."""
    columns = LIST[:, None] if opset < 7 else LIST
    check(np.where(CUBE < 0, CUBE * columns, CUBE), "PRelu", opset, [CUBE, LIST])
    one = LIST[:1]
    check(np.where(CUBE < 0, CUBE * one, CUBE), "PRelu", opset, [CUBE, one])
    full = np.broadcast_to(LIST[:, None], CUBE.shape).copy()
    check(np.where(CUBE < 0, CUBE * full, CUBE), "PRelu", opset, [CUBE, full])


def test_prelu_slopes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(TypeMismatchError, match="4 slopes do not fit 1 channels"):
        popgraph.compile(
            model("PRelu", 6, [CUBE[:, :1], np.ones(4, np.float32)]), backend="reference"
        )


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("opset", [1, 11, 13])
def test_softmax_before_opset_13_flattens_axes(op: str, opset: int) -> None:
    for axis in (0, 1, 2):
        rows = CUBE.reshape(*CUBE.shape[:axis], -1) if opset < 13 else np.moveaxis(CUBE, axis, -1)
        powers = np.exp(rows) / np.exp(rows).sum(-1, keepdims=True)
        found = {
            "Softmax": powers,
            "LogSoftmax": np.log(powers),
            "Hardmax": (rows == rows.max(-1, keepdims=True)).astype(np.float32),
        }[op]
        shaped = found.reshape(CUBE.shape) if opset < 13 else np.moveaxis(found, -1, axis)
        check(shaped, op, opset, [CUBE], axis=axis)


@pytest.mark.parametrize("opset", [1, 6])
def test_default_bounds_of_clip_by_opset(opset: int) -> None:
    x = np.array([-np.inf, -1, np.inf], np.float32)
    largest = np.finfo(np.float32).max
    check(np.clip(x, -largest, largest) if opset == 6 else x, "Clip", opset, [x])


@pytest.mark.parametrize(("opset", "is_test"), [(6, 0), (6, 1), (1, 1), (7, None)])
def test_dropout_with_is_test_is_the_identity_in_training(opset: int, is_test: int | None) -> None:
    attributes = {} if is_test is None else {"is_test": is_test}
    compilation = Compilation()
    module = import_model(
        model("Dropout", opset, [np.ones(64, np.float32)], **attributes), compilation.weights
    )
    OnnxToGraphcore(training=True).run(compilation, module)
    (y,) = evaluate(module, {"x0": np.ones(64, np.float32)}, compilation.weights)[0].values()
    assert bool((y == 0).any()) is (is_test != 1)


@pytest.mark.parametrize("opset", [6, 7, 9])
def test_batch_normalization_with_unnamed_outputs_is_inference(opset: int) -> None:
    """Outputs without a name do not count, so the given statistics are used."""
    operands = [CUBE, *(np.full(3, number, np.float32) for number in (2, 1, 0.5, 4))]
    given = model("BatchNormalization", opset, operands, epsilon=0.0)
    given.graph.node[0].output.extend(["", "", "", ""])
    inputs = {f"x{number}": value for number, value in enumerate(operands)}
    found = popgraph.compile(given, backend="reference")(inputs)["y"]
    np.testing.assert_allclose(found, (CUBE - 0.5) / 2 * 2 + 1, 1e-6)


@pytest.mark.parametrize("opset", [6, 7])
def test_batch_normalization_with_spatial_0(opset: int) -> None:
    numbers = [np.full((3, 3), number, np.float32) + LIST for number in (2, 1, 0.5, 4)]
    scale, bias, mean, variance = numbers
    expected = (CUBE - mean) / np.sqrt(variance + 1e-5) * scale + bias
    given = model("BatchNormalization", opset, [CUBE, *numbers], spatial=0)
    inputs = {f"x{number}": value for number, value in enumerate([CUBE, *numbers])}
    found = popgraph.compile(given, backend="reference")(inputs)["y"]
    np.testing.assert_allclose(found, expected, 1e-5)


def test_old_broadcasting_in_c() -> None:
    """Operands are broadcast by the lowering, so a compiled model follows the same rules."""
    nodes = [
        helper.make_node("PRelu", ["x", "s"], ["a"]),
        helper.make_node("Add", ["a", "s"], ["b"], broadcast=1, axis=0),
        helper.make_node("Mul", ["b", "s"], ["y"], broadcast=1, axis=1),
    ]
    infos = [
        helper.make_tensor_value_info(name, 1, value.shape)
        for name, value in (("x", CUBE), ("s", LIST))
    ]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_empty_tensor_value_info("y")])
    given = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 6)], ir_version=8)
    sloped = np.where(CUBE < 0, CUBE * LIST[:, None], CUBE)
    expected = (sloped + LIST[:, None, None]) * LIST[:, None]
    found = popgraph.compile(given)({"x": CUBE, "s": LIST})["y"]
    np.testing.assert_allclose(found, expected, 1e-6)
