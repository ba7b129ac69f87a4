"""Tests Compress with a constant condition: a lookup in C, in training and inside of bodies."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, parser

import popgraph
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.passes.options import Options, Training
from popgraph.support.errors import PopgraphError

X = np.arange(1, 13, dtype=np.float32).reshape(3, 4)


def model(
    axis: int | None,
    condition: list[int],
    shape: str = "3, 4",
    body: str = "",
    kind: str = "float",
    signature: str = "",
) -> onnx.ModelProto:
    attributes = "" if axis is None else f"<axis = {axis}>"
    held = "" if signature else f"bool[{len(condition)}] c = {{{', '.join(map(str, condition))}}}"
    text = body or f"h = Add(x, x)  z = Compress {attributes} (h, c)  y = Add(z, z)"
    made = parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g ({kind}[{shape}] x{signature}) '
        f"=> ({kind}[K] y) <{held}> {{ {text} }}"
    )
    made.graph.output[0].CopyFrom(helper.make_empty_tensor_value_info("y"))
    return made


CASES: list[tuple[int | None, list[int]]] = [
    (0, [0, 1, 1]),
    (1, [1, 0, 0, 1]),
    (-1, [0, 1]),
    (1, [0, 0, 0, 0]),
    (None, [1, 0, 0, 0, 1, 0, 1]),
]


@pytest.mark.parametrize("backend", ["reference", "c"])
@pytest.mark.parametrize(("axis", "condition"), CASES)
def test_compress_with_a_constant_condition_is_compiled(
    axis: int | None, condition: list[int], backend: str
) -> None:
    step = popgraph.compile(model(axis, condition), backend=backend)
    assert step.static, "one program, and no step of the host"
    found = step(x=X)["y"]
    np.testing.assert_array_equal(found, 4 * np.compress(condition, X, axis))


@pytest.mark.parametrize("axis", [0, 1, None])
def test_compress_along_run_time_sizes(axis: int | None) -> None:
    """Along run-time sizes there may be too few elements, which a lookup would not notice."""
    step = popgraph.compile(model(axis, [1, 0, 1], "N, 4"))
    np.testing.assert_array_equal(step(x=X)["y"], 4 * np.compress([1, 0, 1], X, axis))
    far = popgraph.compile(model(0, [0, 0, 0, 1], "N, 4"))
    np.testing.assert_array_equal(far(x=X.reshape(4, 3).repeat(2, 1)[:, :4])["y"].shape, (1, 4))
    with pytest.raises(PopgraphError):
        far(x=X)


def test_compress_past_the_end_is_refused() -> None:
    with pytest.raises(PopgraphError):
        popgraph.compile(model(0, [0, 0, 0, 1]))(x=X)


def test_compress_with_false_past_the_end() -> None:
    step = popgraph.compile(model(0, [1, 0, 0, 0]))
    np.testing.assert_array_equal(step(x=X)["y"], 4 * X[:1])


@pytest.mark.parametrize("kind", ["int64", "uint8", "float16", "double"])
def test_compress_by_type(kind: str) -> None:
    x = X.astype({"float": "float32", "double": "float64"}.get(kind, kind))
    step = popgraph.compile(model(1, [0, 1, 1], kind=kind))
    assert step.static
    np.testing.assert_array_equal(step(x=x)["y"], 4 * x[:, 1:3])


def test_compress_of_complex_numbers_or_by_computed_conditions_is_hosted() -> None:
    body = "y = Compress <axis = 1> (x, c)"
    step = popgraph.compile(model(1, [0, 1, 1], body=body, kind="complex64"))
    assert not step.static
    wide = X.astype(np.complex64)
    np.testing.assert_array_equal(step(x=wide)["y"], wide[:, 1:3])
    fed = popgraph.compile(model(1, [], body=body, signature=", bool[4] c"))
    assert not fed.static
    condition = np.array([True, False, True, False])
    np.testing.assert_array_equal(fed(x=X, c=condition)["y"], X[:, condition])


def test_compress_in_a_branch() -> None:
    body = (
        "s = ReduceMax<keepdims = 0>(x)  o = Cast<to = 9>(s)  "
        "y = If (o) <then_branch = t () => (a) { a = Compress <axis = 1> (x, c) }, "
        "else_branch = e () => (b) { k = Constant<value_ints = [0, 2]>()  b = Gather <axis = 1> "
        "(x, k) }>"
    )
    step = popgraph.compile(model(1, [0, 1, 0, 1], body=body))
    np.testing.assert_array_equal(step(x=X)["y"], X[:, [1, 3]])
    np.testing.assert_array_equal(step(x=0 * X)["y"], 0 * X[:, [0, 2]])


@pytest.mark.parametrize("backend", ["reference", "c"])
def test_compress_gradient(backend: str) -> None:
    body = "h = Mul(x, x)  z = Compress <axis = 1> (h, c)  y = ReduceSum<keepdims = 0>(z)"
    training = Training("y", SGD(learning_rate=Scalar(0.1)), gradients=("x",))
    step = popgraph.compile(
        model(1, [0, 1, 0, 1], body=body), backend=backend, options=Options(training=training)
    )
    found = step(x=X)["Gradient___x"]
    np.testing.assert_allclose(found, 2 * X * [0, 1, 0, 1])
