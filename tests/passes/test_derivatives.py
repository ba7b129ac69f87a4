"""Tests ONNX's Gradient operator: derivatives of any order, at any place in a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import popgraph
from popgraph.support.arrays import Array
from popgraph.support.errors import PopgraphError
from tests.passes.test_optimizer_steps import OPTIMIZERS, Optimizer, groups, model

BACKENDS = ("reference", "c")
TRAINING = "ai.onnx.preview.training"
HEAD = f'<ir_version: 9, opset_import: ["" : 21, "{TRAINING}" : 1, "own" : 1]>\n'
X, W = np.array([0.5, -1.5, 2.0]), np.array([1.5, 0.25, -3.0])


def gradient(outputs: str, xs: str, y: str, inputs: str, zs: str = "") -> str:
    """A Gradient node in ONNX's text form; names are separated by spaces."""
    listed = [", ".join(f'"{name}"' for name in names.split()) for names in (xs, zs)]
    more = f", zs = [{listed[1]}]" if zs else ""
    values = ", ".join(inputs.split())
    return f'{outputs} = {TRAINING}.Gradient <xs = [{listed[0]}]{more}, y = "{y}"> ({values})'


def of_text(text: str) -> onnx.ModelProto:
    return parser.parse_model(HEAD + text)


def run(text: str, backend: str = "reference", **inputs: Any) -> dict[str, Array]:
    found = popgraph.compile(of_text(text), backend=backend)(**inputs)
    return dict(found)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradient_node_of_any_order(backend: str) -> None:
    """Derivatives of x^4: each Gradient differentiates the one before."""
    nodes = ["s = Mul(x, x)", "d0 = Mul(s, s)"]
    nodes += [gradient(f"d{order}", "x", f"d{order - 1}", "x") for order in range(1, 6)]
    results = ", ".join(f"double[3] d{order}" for order in range(6))
    found = run(f"g (double[3] x) => ({results}) {{ {'; '.join(nodes)} }}".replace(";", "\n"),
                backend, x=X)  # fmt: skip
    for order, wanted in enumerate([X**4, 4 * X**3, 12 * X**2, 24 * X, 24 + 0 * X, 0 * X]):
        np.testing.assert_allclose(found[f"d{order}"], wanted, 1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradient_node_of_products_with_zeros(backend: str) -> None:
    """Derivatives of a b c d with two or three zeros: each is the product of the other factors."""
    nodes = ["d0 = ReduceProd <keepdims = 0> (x)"]
    for order, name in enumerate("abcd", start=1):
        nodes += [gradient(f"g{order}", "x", f"d{order - 1}", "x")]
        nodes += [f"i{name} = Constant <value_int = {order - 1}> ()"]
        nodes += [f"d{order} = Gather (g{order}, i{name})"]
    results = ", ".join(f"double[4] g{order}" for order in range(1, 5))
    text = f"g (double[4] x) => ({results}) {{ {chr(10).join(nodes)} }}"
    for x in ([0, 0, 3, 5], [0, 2, 0, 5], [0, 0, 0, 5], [1, 2, 0, 0], [1, 2, 3, 4]):
        found = run(text, backend, x=np.array(x, float))
        for order in range(4):
            wanted = [
                np.prod([x[at] for at in range(order, 4) if at != other]) * (other >= order)
                for other in range(4)
            ]
            np.testing.assert_allclose(found[f"g{order + 1}"], wanted, 1e-12, 1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradient_node_of_a_product_that_underflows(backend: str) -> None:
    """The product underflows to 0 without a zero factor; products of the others are finite."""
    text = f"""g (double[3] x) => (double[3] d) {{
        y = ReduceProd <keepdims = 0> (x)
        {gradient("d", "x", "y", "x")}
    }}"""
    found = run(text, backend, x=np.array([1e-200, 1e-200, 1e200]))["d"]
    np.testing.assert_allclose(found, [1.0, 1.0, 0.0], 1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradient_node_example_of_the_schema(backend: str) -> None:
    """A linear model with a loss; second derivatives are of sums of the first ones."""
    text = f"""
    g (double[4, 3] X, double[3, 2] W, double[4, 2] L) => (double[4, 3] dX, double[3, 2] dW,
       double[4, 3] dWdX, double[3, 2] dWdW) {{
        Y = MatMul(X, W)
        E = Sub(Y, L)
        S = Mul(E, E)
        O = ReduceSum <keepdims = 0> (S)
        {gradient("dX, dW", "X W", "O", "X W L", "L")}
        {gradient("dWdX, dWdW", "X W", "dW", "X W L", "L")}
    }}"""
    generator = np.random.default_rng(0)
    x, w, label = (generator.normal(size=shape) for shape in [(4, 3), (3, 2), (4, 2)])
    found = run(text, backend, X=x, W=w, L=label)
    error, ones = x @ w - label, np.ones((3, 2))
    np.testing.assert_allclose(found["dX"], 2 * error @ w.T, 1e-12)
    np.testing.assert_allclose(found["dW"], 2 * x.T @ error, 1e-12)
    np.testing.assert_allclose(found["dWdX"], 2 * error @ ones.T + 2 * (x @ ones) @ w.T, 1e-12)
    np.testing.assert_allclose(found["dWdW"], 2 * x.T @ x @ ones, 1e-12)


def test_gradient_node_at_other_values_and_shapes() -> None:
    """dY/dH at another value of H than the model computes, also of another shape."""
    text = f"""
    g (double[3] x, double[2, 3] other) => (double[3] y, double[3] at, double[2, 3] elsewhere) {{
        h = Sin(x)
        y = Mul(h, h)
        {gradient("at", "h", "y", "h")}
        {gradient("elsewhere", "h", "y", "other")}
    }}"""
    other = np.array([X, 3 * X])
    found = run(text, x=X, other=other)
    np.testing.assert_allclose(found["at"], 2 * np.sin(X), 1e-12)
    np.testing.assert_allclose(found["elsewhere"], 2 * other, 1e-12)


def test_gradient_node_distinguishes_tensors_of_equal_value() -> None:
    text = f"""
    g (double[3] x) => (double[3] by_h, double[3] by_x) {{
        h = Identity(x)
        y = Mul(h, x)
        {gradient("by_h", "h", "y", "h x", "x")}
        {gradient("by_x", "x", "y", "x")}
    }}"""
    found = run(text, x=X)
    np.testing.assert_allclose(found["by_h"], X)
    np.testing.assert_allclose(found["by_x"], 2 * X)


def test_gradient_node_by_weights() -> None:
    """An initializer may be named in xs; tensors that are not named are constants."""
    text = f"""
    g (double[3] x) => (double[3] d) <double[3] w = {{1.5, 0.25, -3}}, double[3] b = {{1, 2, 3}}> {{
        p = Mul(w, x)
        q = Add(p, b)
        y = Mul(q, q)
        {gradient("d", "w", "y", "w x", "x")}
    }}"""
    np.testing.assert_allclose(run(text, x=X)["d"], 2 * (W * X + [1, 2, 3]) * X)


def test_gradient_node_before_its_y_and_with_absent_outputs() -> None:
    text = f"""
    g (double[3] x, double[3] w) => (double[3] d, double[3] twice) {{
        {gradient(", twice", "x w", "d", "x w")}
        {gradient("d", "x w", "y", "x w").replace("d =", "d, nobody =")}
        s = Mul(x, x)
        y = Mul(s, w)
    }}""".replace(" , twice", ' "", twice')
    made = of_text(text.replace('"", twice', "absent, twice"))
    made.graph.node[0].output[0] = ""
    found = popgraph.compile(made, backend="reference")(x=X, w=W)
    np.testing.assert_allclose(found["d"], 2 * X * W)
    np.testing.assert_allclose(found["twice"], 2 * X)


def test_gradient_node_without_a_path_is_zero() -> None:
    text = f"""
    g (double[3] x, double[3] w) => (double[3] d, double[3] e) {{
        y = Exp(w)
        k = Floor(x)
        {gradient("d", "x", "y", "x w", "w")}
        {gradient("e", "x", "k", "x")}
    }}"""
    found = run(text, x=X, w=W)
    np.testing.assert_array_equal([found["d"], found["e"]], np.zeros((2, 3)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradient_node_with_a_shape_in_zs(backend: str) -> None:
    text = f"""
    g (double[n] x, int64[2] shape) => (double[n] d) {{
        m = Reshape(x, shape)
        t = Transpose(m)
        p = MatMul(m, t)
        y = ReduceSum(p)
        {gradient("d", "x", "y", "x shape", "shape")}
    }}"""
    x = np.arange(6.0)
    for shape in ([2, 3], [3, 2], [1, 6]):
        found = run(text, backend, x=x, shape=np.array(shape))["d"]
        sums = x.reshape(shape).sum(0, keepdims=True)
        np.testing.assert_allclose(found, np.broadcast_to(2 * sums, shape).reshape(-1))


def test_gradient_node_in_functions_branches_and_loops() -> None:
    """Names are from the function, or from the graph in the node and its outer graphs."""
    text = f"""
    g (double[3] x, bool c) => (double[3] f, double[3] i, double[3] l) {{
        f = own.Slope(x)
        outside = Exp(x)
        i = If (c) <
            then_branch = t () => (double[3] a) {{ {gradient("a", "x", "outside", "x")} }},
            else_branch = e () => (double[3] b) {{
                v = Mul(x, x)
                {gradient("b", "x", "v", "x")}
            }}>
        turns = Constant <value_int = 3> ()
        go = Constant <value = bool {{1}}> ()
        l = Loop (turns, go, x) <body = turn (int64 n, bool before, double[3] s) =>
            (bool after, double[3] next) {{
                after = Identity(before)
                w = Mul(s, s)
                {gradient("next", "s", "w", "s")}
            }}>
    }}
    <domain: "own", opset_import: ["" : 21, "{TRAINING}" : 1]>
    Slope (x) => (d) {{
        y = Mul(x, x)
        {gradient("d", "x", "y", "x")}
    }}"""
    for backend in BACKENDS:
        for choice, wanted in ((True, np.exp(X)), (False, 2 * X)):
            found = run(text, backend, x=X, c=np.array(choice))
            np.testing.assert_allclose(found["f"], 2 * X)
            np.testing.assert_allclose(found["i"], wanted, 1e-12)
            np.testing.assert_allclose(found["l"], 8 * X)


@pytest.mark.parametrize("backend", BACKENDS)
def test_second_gradient_node_through_a_loop_and_a_branch(backend: str) -> None:
    """x ^ 8 by squaring three times; x ^ 2 in the branch for negative sums."""
    text = f"""
    g (double[3] x) => (double[3] y, double[3] d, double[3] dd) {{
        turns = Constant <value_int = 3> ()
        go = Constant <value = bool {{1}}> ()
        sum = ReduceSum <keepdims = 0> (x)
        zero = Constant <value = double {{0}}> ()
        up = Greater(sum, zero)
        y = If (up) <
            then_branch = t () => (double[3] a) {{
                a = Loop (turns, go, x) <body = turn (int64 n, bool before, double[3] s) =>
                    (bool after, double[3] next) {{
                        after = Identity(before)
                        next = Mul(s, s)
                    }}>
            }},
            else_branch = e () => (double[3] b) {{ b = Mul(x, x) }}>
        {gradient("d", "x", "y", "x")}
        {gradient("dd", "x", "d", "x")}
    }}"""
    found = run(text, backend, x=X)
    np.testing.assert_allclose(found["d"], 8 * X**7, 1e-12)
    np.testing.assert_allclose(found["dd"], 56 * X**6, 1e-12)
    found = run(text, backend, x=-X)
    np.testing.assert_allclose(found["d"], -2 * X, 1e-12)
    np.testing.assert_allclose(found["dd"], np.full(3, 2.0), 1e-12)


def test_gradient_node_beside_host_steps() -> None:
    """Names are resolved before the model is split into segments and host steps."""
    text = f"""
    g (double[3] x) => (int64[1, n] places, double[3] d) {{
        y = Mul(x, x)
        places = NonZero(y)
        {gradient("d", "x", "y", "x")}
    }}"""
    found = run(text, x=X)
    np.testing.assert_array_equal(found["places"], [[0, 1, 2]])
    np.testing.assert_allclose(found["d"], 2 * X)


@pytest.mark.parametrize("made", OPTIMIZERS)
def test_second_gradient_node_of_optimizers(made: Optimizer) -> None:
    """The Gradient of an optimizer node's Gradient is the slope of the first."""
    tensors = groups(made, [(3,)], "float64", 5)
    given = [np.array(0.1), np.array(2), *tensors]
    text = model(made, given)
    text.graph.node[0].name = "step"
    (first, second) = (
        parser.parse_graph(f"g (double[3] a) => (double[3] b) {{ {node} }}").node[0]
        for node in (
            gradient("d", "i3", "o0", "i3"),
            gradient("dd", "i3", "d", "i3"),
        )
    )
    text.graph.node.extend([first, second])
    for name in ("d", "dd"):
        text.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    compiled = popgraph.compile(text, backend="reference")
    arrays = {f"i{at}": array for at, array in enumerate(given)}
    found = compiled(arrays)
    ends = [compiled({**arrays, "i3": arrays["i3"] + step})["d"] for step in (1e-6, -1e-6)]
    np.testing.assert_allclose(found["dd"], (ends[0] - ends[1]) / 2e-6, 1e-5, 1e-8)


ERRORS = {
    "g (double[3] x) => (double[3] d) { y = Mul(x, x) %s }": [
        (gradient("d", "q", "y", "x"), "names 'q', but the graph has no such tensor"),
        (gradient("d", "x", "q", "x"), "names 'q', but the graph has no such tensor"),
        (gradient("d", "x", "y", "x x"), "2 inputs for 1 names"),
        (gradient("d", "x x", "y", "x x"), "list a tensor twice"),
        (gradient("d, e", "x", "y", "x"), "2 outputs for 1 names"),
        (gradient("z", "x", "e", "x") + " e = Mul(z, x) d = Identity(e)", "the node's own result"),
        (gradient("d", "x", "k", "x") + " r = Constant <value_float = 0.5> () "
         "t = Constant <value = bool {1}> () k = Dropout(x, r, t)", "depends on random numbers"),
        ("n = Constant <value = int64[3] {1, 2, 3}> () " + gradient("d", "n", "y", "n"),
         "differentiates floats, but 'n' is i64"),
        ("k = Cast <to = 7> (x) " + gradient("d", "x", "k", "x"),
         "differentiates floats, but 'k' is i64"),
        ("n = NonZero(x) k = Cast <to = 11> (n) " + gradient("d", "x", "k", "x"),
         "which only Python computes"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [(frame % nodes, message) for frame, rows in ERRORS.items() for nodes, message in rows],
)
def test_errors_of_gradient_nodes_name_the_node(text: str, message: str) -> None:
    with pytest.raises(PopgraphError, match=message) as caught:
        run(text, x=X)
    assert "Gradient" in caught.value.where and caught.value.hint
