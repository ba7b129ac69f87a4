"""Tests quantized operators of com.microsoft against onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper

import popgraph
from popgraph.support.arrays import Array
from popgraph.support.errors import TypeMismatchError, UnsupportedError
from tests.peer import answers

Inputs = Mapping[str, Array | None]
KINDS = (np.uint8, np.int8)
ROUNDED_OTHERWISE = {"QLinearAveragePool"}
"""Operators in which onnxruntime may round a tie of a mean the other way."""


def model(operator: str, inputs: Inputs, **attributes: Any) -> tuple[ModelProto, dict[str, Array]]:
    """A model of the node alone, and its inputs."""
    given = {name: array for name, array in inputs.items() if array is not None}
    names = [name if name in given else "" for name in inputs]
    node = helper.make_node(operator, names, ["Y"], domain="com.microsoft", **attributes)
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in given.items()
    ]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("Y")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), given


class Drawn:
    """Generates random arrays in one quantized integer type."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.generator = np.random.default_rng(0)

    def whole(self, *shape: int) -> Array:
        info = np.iinfo(self.kind)
        return self.generator.integers(info.min, info.max, shape).astype(self.kind)

    def weights(self, *shape: int) -> Array:
        """
        Weights in a range where two products fit 16 bits, as onnxruntime adds them on some CPUs.
        """
        return np.asarray(self.whole(*shape) // 2)

    def zero(self, *values: int) -> Array:
        return np.array(values if len(values) > 1 else values[0], self.kind)

    def sums(self, *shape: int) -> Array:
        return self.generator.integers(-999, 999, shape).astype(np.int32)

    def real(self, *shape: int) -> Array:
        return self.generator.normal(size=shape).astype(np.float32) * 3


def scale(*values: float) -> Array:
    return np.array(values if len(values) > 1 else values[0], np.float32)


def nodes(drawn: Drawn) -> Iterator[tuple[str, Inputs, dict[str, Any]]]:
    zero = drawn.zero
    both = {"As": scale(0.1), "Az": zero(7), "B": drawn.whole(4), "Bs": scale(0.2), "Bz": zero(3)}
    for operator, result in (("QLinearAdd", 0.25), ("QLinearMul", 2.5)):
        yield operator, {"A": drawn.whole(3, 4), **both, "Ys": scale(result), "Yz": zero(9)}, {}
    start = {"Xs": scale(0.03), "Xz": zero(7)}
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    least = int(np.iinfo(drawn.kind).min)
    for operator, result, end, shape, attributes in (
        ("QLinearSigmoid", 0.004, 3, (3, 40), {}),
        ("QLinearLeakyRelu", 0.03, 3, (3, 40), {"alpha": 0.2}),
        ("QLinearLeakyRelu", 0.03, 3, (3, 40), {}),
        ("QLinearGlobalAveragePool", 0.01, 3, (2, 3, 4, 5), {}),
        ("QLinearSoftmax", 1 / 256, least, (3, 9), {"axis": -1, "opset": 13}),
        ("QLinearSoftmax", 1 / 256, least, (3, 2, 4), {"axis": 1, "opset": 13}),
        ("QLinearSoftmax", 1 / 256, least, (3, 2, 4), {"axis": 1, "opset": 11}),
        ("QLinearGlobalAveragePool", 0.01, 3, (2, 4, 5, 3), {"channels_last": 1}),
        ("QLinearAveragePool", 0.01, 3, (2, 3, 4, 5), {"kernel_shape": [2, 2]}),
        ("QLinearAveragePool", 0.01, 3, (2, 4, 5, 3), {**window, "channels_last": 1}),
        ("QLinearAveragePool", 0.01, 3, (2, 3, 5, 5), {**window, "count_include_pad": 1}),
    ):
        fed = {"X": drawn.whole(*shape), **start, "Ys": scale(result), "Yz": zero(end)}
        yield operator, fed, attributes
    chosen = {"c": drawn.real(3, 1) > 0, "X": drawn.whole(3, 4), **start, "W": drawn.whole(4)}
    other = {"Ws": scale(0.05), "Wz": zero(5), "Ys": scale(0.04), "Yz": zero(9)}
    yield "QLinearWhere", {**chosen, **other}, {}
    filters = {"Ws": scale(0.02), "Wz": zero(3), "Ys": scale(0.2), "Yz": zero(9)}
    if drawn.kind == np.int8:
        filters |= {"Ws": scale(0.02, 0.03, 0.04, 0.05), "Wz": zero(0, 0, 0, 0)}
    for shape, attributes in (
        ((1, 2, 5, 5), {"pads": [1, 1, 1, 1]}),
        ((1, 5, 6, 2), {"channels_last": 1, "strides": [2, 1]}),
    ):
        images = {"X": drawn.whole(*shape), **start, "W": drawn.weights(4, 2, 3, 3)}
        yield "QLinearConv", {**images, **filters}, attributes
        yield "QLinearConv", {**images, **filters, "B": drawn.sums(4)}, attributes
    sixteen = {"A": drawn.sums(3, 5).astype(np.int16), "B": drawn.sums(5, 4).astype(np.int16)}
    yield "MatMulInteger16", sixteen, {}
    parts = {"A": drawn.whole(2, 3), "As": scale(0.1), "Az": zero(7)}
    more = {"B": drawn.whole(2, 4), "Bs": scale(0.02), "Bz": zero(3)}
    yield "QLinearConcat", {"Ys": scale(0.05), "Yz": zero(3), **parts, **more}, {"axis": 1}
    fine = {"Ys": scale(0.1, 0.2, 0.3), "Yz": zero(1, 2, 3)}
    yield "QuantizeLinear", {"X": drawn.real(3, 4), **fine}, {"axis": 0}
    yield "DequantizeLinear", {"X": drawn.whole(3, 4), **start}, {}
    yield "DequantizeLinear", {"X": drawn.whole(3, 4), "Xs": scale(0.1)}, {}
    first = {"A": drawn.whole(3, 5), "As": scale(0.1), "Az": zero(7)}
    second = {"B": drawn.weights(4, 5), "Bs": scale(0.2), "Bz": zero(3), "C": drawn.sums(4)}
    end_ = {"Ys": scale(9.0), "Yz": zero(9)}
    yield "QGemm", {**first, **second, **end_}, {"transB": 1, "alpha": 1.5}
    yield "QGemm", {**first, **second, "C": None, **end_}, {"transB": 1}
    turned = {"A": drawn.whole(5, 3), "B": drawn.weights(5, 4)}
    each = {"Bs": scale(0.2, 0.1, 0.3, 0.4), "Bz": zero(3, 4, 5, 6)}
    yield "QGemm", {**first, **second, **turned, **each}, {"transA": 1}
    matrices = {
        "A": drawn.whole(3, 5),
        "B": drawn.weights(5, 4),
        "As": scale(0.1),
        "Bs": scale(0.2),
    }
    bias = {"bias": scale(1, 2, 3, 4)}
    yield "MatMulIntegerToFloat", {**matrices, "Az": zero(7), "Bz": zero(3), **bias}, {}
    yield "MatMulIntegerToFloat", {**matrices, "Az": None, "Bz": zero(3)}, {}
    weights = {"B": drawn.weights(5, 4), "Bs": scale(0.2)}
    yield "DynamicQuantizeMatMul", {"X": drawn.real(3, 5), **weights, "Bz": zero(3), **bias}, {}
    yield "DynamicQuantizeMatMul", {"X": drawn.real(3, 5), **weights}, {}


CASES = [(*node[:2], node[2]) for kind in KINDS for node in nodes(Drawn(kind))]


def test_quantized_contrib_operators_are_those_of_onnxruntime(tmp_path: Path) -> None:
    made = [model(operator, fed, **attributes) for operator, fed, attributes in CASES]
    theirs = answers([(one.SerializeToString(), given) for one, given in made], tmp_path)
    for case, (one, given), wanted in zip(CASES, made, theirs, strict=True):
        assert isinstance(wanted, dict), (case, wanted)
        found = popgraph.compile(one, backend="reference")(given)["Y"]
        assert found.dtype == wanted["Y"].dtype, case
        steps = 1 if case[0] in ROUNDED_OTHERWISE else 0
        np.testing.assert_allclose(found, wanted["Y"], 1e-6, steps, err_msg=str(case))


def test_types_after_quantized_contrib_operators_are_inferred() -> None:
    drawn = Drawn(np.uint8)
    operator, fed, _ = next(nodes(drawn))
    made, given = model(operator, fed)
    (node,) = made.graph.node
    node.output[0] = "sum"
    for behind in (
        helper.make_node("DequantizeLinear", ["sum", "Ys", "Yz"], ["real"]),
        helper.make_node("Softmax", ["real"], ["Y"]),
    ):
        made.graph.node.append(behind)
    found = popgraph.compile(made)(given)["Y"]
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("QLinearGlobalAveragePool", {"channels_last": 0, "rounded": 1}),
        ("QLinearNothing", {}),
    ],
)
def test_unsupported_quantized_contrib_nodes_are_refused(
    operator: str, attributes: dict[str, int]
) -> None:
    drawn = Drawn(np.uint8)
    fed = {"X": drawn.whole(1, 2, 3), "Xs": scale(1), "Xz": drawn.zero(0)}
    made, _ = model(operator, {**fed, "Ys": scale(1), "Yz": drawn.zero(0)}, **attributes)
    with pytest.raises(UnsupportedError, match=operator) as caught:
        popgraph.compile(made, backend="reference")
    assert caught.value.where
    assert caught.value.hint


@pytest.mark.parametrize("count", [2, 4, 6])
def test_qlinear_concat_takes_three_inputs_per_tensor(count: int) -> None:
    one = scale(1)
    made, _ = model("QLinearConcat", {f"x{place}": one for place in range(count)}, axis=0)
    with pytest.raises(TypeMismatchError, match=f"does not take these {count} inputs"):
        popgraph.compile(made, backend="reference")
