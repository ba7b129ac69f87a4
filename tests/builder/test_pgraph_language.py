"""Tests templates, loops, indexing, pipes, conditionals and annotations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from popgraph import compiler
from popgraph.builder.onnx.write import export_model
from popgraph.builder.opset.enums import RecomputeType
from popgraph.builder.pgraph import Document, parse, text_of
from popgraph.builder.pgraph.syntax import parser
from popgraph.dialects.onnx import Initializer, OnnxOp, model_of, value_name
from popgraph.dialects.onnx.annotations import all_attributes
from popgraph.dialects.onnx.op import to_python
from popgraph.dialects.onnx.types import describe
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options
from popgraph.support.errors import ErrorGroup, PopgraphError

EXAMPLES = Path(__file__).parents[2] / "examples"
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 7


def graph(statements: str, head: str = "x: f32[2, 3, 4]", before: str = "opset 21") -> Document:
    return parse(f"{before}\ngraph g({head}) -> y {{\n{statements}\n}}", "t.pgraph")


def run(document: Document, **inputs: Any) -> dict[str, Any]:
    """The results of the first graph, computed by the reference backend."""
    compilation = Compilation(document.weights)
    made = compiler.runner(document.module.clone(), compilation, Options(), "reference", 1)
    return made(inputs)


def by_onnx(document: Document, **inputs: Any) -> dict[str, Any]:
    """The same results by `onnx.reference`, which runs If and Loop directly."""
    model = export_model(document.module, document.weights)
    names = [output.name for output in model.graph.output]
    results = ReferenceEvaluator(model).run(names, inputs)
    return dict(zip(names, results, strict=True))


def value(statements: str, head: str = "x: f32[2, 3, 4]", before: str = "opset 21") -> Any:
    return run(graph(statements, head, before), x=X)["y"]


def nodes(document: Document) -> list[OnnxOp]:
    return list(model_of(document.module).graph.nodes)


def computing(document: Document) -> list[OnnxOp]:
    """The nodes except constants."""
    return [node for node in nodes(document) if node.op_type != "Constant"]


def names(document: Document) -> list[str]:
    """The names of the first results of all nodes except constants."""
    return [node.output_names[0] for node in computing(document)]


def weights(document: Document) -> dict[str, Any]:
    ops = model_of(document.module).graph.block.ops
    return {
        op.value_name.text: op.array(document.weights) for op in ops if isinstance(op, Initializer)
    }


def message(text: str) -> str:
    """The error messages of a text."""
    with pytest.raises((PopgraphError, ErrorGroup)) as caught:
        parse(text, "t.pgraph")
    return str(caught.value)


# --- templates --------------------------------------------------------------------------------

DENSE = """
opset 21
def dense(x: f32[B, inputs], outputs) -> y {
    weight w: f32[inputs, outputs] = normal
    weight b: f32[outputs] = normal
    y = x @ w + b
}
"""


def test_the_tables_of_the_parser_are_those_of_the_grammar() -> None:
    """Another version of lark reads the grammar instead of the tables, which is slower."""
    grammar = parser.origin().split(", ")[1]
    assert grammar in parser.TABLES.read_text()[:100], "`make pages` writes them anew"
    fast, slow = parser.from_tables() or parser.built(), parser.built()
    texts = [file.read_text() for file in EXAMPLES.glob("*.pgraph")]
    assert texts
    for text in texts:
        assert fast.parse(text, start="file") == slow.parse(text, start="file")
    text = 'f(x[0:3] + 1, [2.5, y], mode="a")'
    assert fast.parse(text, start="expression") == slow.parse(text, start="expression")


def test_the_dimensions_of_arguments_are_known_in_a_template() -> None:
    document = parse(DENSE + "graph g(x: f32[N, 4]) -> y {\n y = dense(dense(x, 3), 2)\n}")
    held = weights(document)
    x = np.ones((5, 4), np.float32)
    assert [array.shape for array in held.values()] == [(4, 3), (3,), (3, 2), (2,)]
    w, b, w2, b2 = held.values()
    assert np.allclose(run(document, x=x)["y"], (x @ w + b) @ w2 + b2, rtol=1e-5)
    assert describe(nodes(document)[-1].results[0].type) == "f32[N, 2]"


def test_every_call_has_weights_of_its_own() -> None:
    document = parse(DENSE + "graph g(x: f32[N, 4]) -> y {\n y = dense(x, 4) + dense(x, 4)\n}")
    held = weights(document)
    assert list(held) == ["y/dense/w", "y/dense/b", "y/dense2/w", "y/dense2/b"]
    assert not np.array_equal(held["y/dense/w"], held["y/dense2/w"])


def test_results_of_a_template_have_the_names_that_the_caller_gives() -> None:
    document = graph(
        "(low, high) = halves(x)\n y = low - high",
        before="def halves(x: f32[...]) -> (a, b) {\n a = Relu(x)\n t = -x\n b = Relu(t)\n}",
    )
    assert names(document) == ["low", "low/t", "high", "y"]
    assert np.array_equal(run(document, x=X)["y"], X)


def test_unused_results_of_a_template() -> None:
    document = graph(
        "(_, y) = halves(x)",
        before="def halves(x: f32[...]) -> (a, b) {\n a = Relu(x)\n b = -x\n}",
    )
    assert names(document)[-1] == "y"
    assert np.array_equal(run(document, x=X)["y"], -X)


def test_parameters_have_defaults_and_are_given_by_name() -> None:
    before = "def f(x: f32[...], a, b=10, c=a * b) -> y {\n y = x * a + b - c\n}"
    assert np.array_equal(value("y = f(x, 2)", before=before), X * 2 + 10 - 20)
    assert np.array_equal(value("y = f(x, a=2, b=5)", before=before), X * 2 + 5 - 10)
    assert np.array_equal(value("y = f(x, 2, c=0)", before=before), X * 2 + 10)


def test_parameters_may_be_strings_truths_and_lists() -> None:
    document = graph(
        'y = pooled(x, "SAME_UPPER", [2, 2], true)',
        head="x: f32[1, 1, 4, 4]",
        before=(
            "def pooled(x: f32[...], pad, kernel, twice) -> y {\n"
            " y = MaxPool(x, auto_pad=pad, kernel_shape=kernel) * (2.0 if twice else 1.0)\n}"
        ),
    )
    pool = computing(document)[0].attribute_values()
    assert pool["kernel_shape"] == [2, 2]
    assert pool["auto_pad"] == "SAME_UPPER"


def test_an_operator_may_be_an_argument() -> None:
    before = "def twice(x: f32[...], f) -> y {\n y = f(f(x))\n}\n" + (
        "def negated(x: f32[...]) -> y {\n y = -x\n}\n"
        "def applied(x: f32[...], outer, inner) -> y {\n y = outer(x, inner)\n}"
    )
    assert np.array_equal(value("y = twice(x, Neg)", before=before), X)
    assert np.array_equal(value("y = twice(x, negated)", before=before), X)
    assert np.array_equal(value("y = x |> applied(twice, Relu)", before=before), np.maximum(X, 0))


def test_values_of_the_graph_may_be_untyped_arguments() -> None:
    before = "def f(x, y) -> z {\n z = x - y\n}"
    assert np.array_equal(value("y = f(x, Relu(x))", before=before), np.minimum(X, 0))


def test_numbers_given_to_a_typed_parameter_have_its_element_type() -> None:
    before = "def f(x: f32[...], y: f64) -> z {\n z = Cast(x, to=f64) * y\n}"
    assert value("y = f(x, 3)", before=before).dtype == np.float64


def test_templates_do_not_see_the_graph_that_calls_them() -> None:
    text = (
        "def f(x: f32[...]) -> y {\n y = x + h\n}\ngraph g(x: f32[2]) -> y {\n h = -x\n y = f(h)\n}"
    )
    assert "there is no value `h`" in message(text)


def test_templates_see_earlier_definitions_and_each_other() -> None:
    before = (
        "let factor = 3\n"
        "def outer(x: f32[...]) -> y {\n y = inner(x) + 1\n}\n"
        "def inner(x: f32[...]) -> y {\n y = x * factor\n}"
    )
    assert np.array_equal(value("y = outer(x)", before=before), X * 3 + 1)


def test_a_template_may_call_itself_until_something_known_ends_it() -> None:
    before = (
        "def power(x: f32[...], n) -> y {\n y = if n == 0 {\n y = x\n } else {\n"
        " y = power(x * 2, n - 1)\n }\n}"
    )
    assert np.array_equal(value("y = power(x, 5)", before=before), X * 32)
    endless = "def f(x: f32) -> y {\n y = f(x)\n}\ngraph g(x: f32) -> y {\n y = f(x)\n}"
    assert "calls itself endlessly" in message(endless)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("dense(x)", "`dense` needs `outputs`"),
        ("dense(x, 2, 3)", "`dense` takes 2 arguments, not 3"),
        ("dense(x, output=2)", "did you mean `outputs`?"),
        ("dense(x, 2, outputs=3)", "`outputs` is given twice"),
        ("dense(h, 2)", "`x` is f32[B, inputs], but this is f32[N, 4, 1]"),
        ("dense(i, 2)", "`x` is f32[N, 4], but this is i64[N, 4]"),
    ],
)
def test_wrong_calls_of_templates_have_locations(call: str, said: str) -> None:
    text = DENSE + (
        "graph g(x: f32[N, 4]) -> y {\n h = x[..., _]\n i = Cast(x, to=i64)\n"
        f" y = {call}\n u = h * Cast(i[..., _], to=f32)\n}}"
    )
    shown = message(text)
    assert said in shown
    assert "t.pgraph:11:" in shown


def test_a_misspelt_template() -> None:
    shown = message(DENSE + "graph g(x: f32[N, 4]) -> y {\n y = x |> dens(4)\n}")
    assert "did you mean `dense`?" in shown


def test_a_dimension_that_is_named_twice_must_agree() -> None:
    text = (
        "def f(a: f32[n, m], b: f32[m, k]) -> y {\n y = a @ b\n}\n"
        "graph g(a: f32[2, 3], b: f32[4, 5]) -> y {\n y = f(a, b)\n}"
    )
    assert "`b` is f32[3, 5], but this is f32[4, 5]" in message(text)


# --- for and let --------------------------------------------------------------------------------


def test_a_for_loop_carries_values() -> None:
    assert np.array_equal(value("for i in 1..4 {\n x = x * i\n }\n y = x"), X * 6)


def test_names_in_a_for_loop_have_its_index_as_prefix() -> None:
    document = parse(
        DENSE + "graph g(x: f32[N, 4]) -> y {\n for i in 2..4 {\n h = x |> dense(4) |> dense(4)\n"
        " x = h + x\n }\n y = x\n}"
    )
    assert names(document) == [
        "i2/h/dense/1", "i2/h/dense", "i2/h/1", "i2/h", "i2/x",
        "i3/h/dense/1", "i3/h/dense", "i3/h/1", "i3/h", "i3/x", "y",
    ]  # fmt: skip
    assert list(weights(document))[:4] == [
        "i2/h/dense/w", "i2/h/dense/b", "i2/h/w", "i2/h/b",
    ]  # fmt: skip


def test_weights_of_iterations_differ_and_are_reproducible() -> None:
    text = DENSE + (
        "graph g(x: f32[N, 4]) -> y {\n for i in 0..3 {\n x = dense(x, 4)\n }\n y = x\n}"
    )
    first, again = weights(parse(text)), weights(parse(text))
    assert list(first) == [f"i{i}/x/{w}" for i in range(3) for w in "wb"]
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["i0/x/w"], first["i1/x/w"])


def test_a_loop_may_be_given_a_name() -> None:
    document = graph('@name("layer") for i in 0..2 {\n h = Relu(x)\n x = -h\n }\n y = x')
    assert names(document) == ["layer0/h", "layer0/x", "layer1/h", "layer1/x", "y"]


def test_for_loops_over_lists_and_pairs_and_nested() -> None:
    assert np.array_equal(value("for a in [2, 3] {\n x = x * a\n }\n y = x"), X * 6)
    assert np.array_equal(
        value("for (a, b) in [[2, 1], [3, 5]] {\n x = x * a + b\n }\n y = x"), (X * 2 + 1) * 3 + 5
    )
    nested = "for i in 0..2 {\n for j in 0..3 {\n x = x + 10 * i + j\n }\n }\n y = x"
    assert np.array_equal(value(nested), X + 36)
    assert names(graph(nested))[1:4:2] == ["i0/j0/x", "i0/j1/x"]


def test_an_empty_for_loop_changes_nothing() -> None:
    assert np.array_equal(value("for i in 3..3 {\n x = x * 2\n }\n y = x"), X)


def test_names_defined_in_a_for_loop_are_local() -> None:
    text = "graph g(x: f32[2]) -> y {\n for i in 0..2 {\n h = -x\n x = h\n }\n y = h + x\n}"
    assert "there is no value `h`" in message(text)


def test_names_in_braces_have_the_number_of_an_iteration() -> None:
    """`@each` declares an input or output for each number, and a `for` defines the outputs."""
    document = parse(
        "let layers = 2\n"
        "graph g(x: f32[4], @each(i, layers) `past.{i}`: f32[4]) -> (y, @each(k, 2) `now.{k}`) {\n"
        " for i in 0..layers {\n"
        "  `now.{i}` = x + `past.{i}`\n"
        "  x = -`now.{i}`\n"
        " }\n"
        " for (n, _) in [[0, 5], [1, 6]] {\n"
        "  `h.{n}` = 2 * `past.{n}` + `past.{n}`\n"
        "  x = x + `h.{n}`\n"
        " }\n"
        " y = x\n"
        "}"
    )
    made = model_of(document.module).graph
    assert made.input_names == ("x", "past.0", "past.1")
    assert made.output_names == ("y", "now.0", "now.1")
    assert "n1/h.1" in names(document)
    past = {"past.0": np.full(4, 1, np.float32), "past.1": np.full(4, 10, np.float32)}
    found = run(document, x=np.ones(4, np.float32), **past)
    assert [found[one][0] for one in ("now.0", "now.1", "y")] == [2, 8, 25]
    again = parse(text_of(document.module, document.weights))
    assert model_of(again.module).graph.output_names == ("y", "now.0", "now.1")


def test_braces_in_other_names_stay() -> None:
    document = parse("graph g(`x{i}`: f32[4]) -> `y{0}` {\n `y{0}` = -`x{i}`\n}")
    assert model_of(document.module).graph.input_names == ("x{i}",)
    assert model_of(document.module).graph.output_names == ("y{0}",)


@pytest.mark.parametrize(
    ("head", "body", "what"),
    [
        ("x: f32, @each(i, n) `p.{i}`: f32) -> y", "y = x", "`@each` takes a name and a number"),
        ("x: f32, @each(i) `p.{i}`: f32) -> y", "y = x", "`@each` takes a name and a number"),
        ("x: f32, @each(1, 2) `p.{i}`: f32) -> y", "y = x", "`@each` takes a name and a number"),
        ("x: f32, @each(i, -1) `p.{i}`: f32) -> y", "y = x", "`@each` takes a name and a number"),
        ("x: f32, @each(i, 2) p: f32) -> y", "y = x", "this name is the same for each `i`"),
        ("x: f32, @each(i, 99999999) `p.{i}`: f32) -> y", "y = x", "expands to too much"),
        ("x: f32) -> (@each(i, 2) `y.{i}`)", "`y.0` = x", "nothing defines the output `y.1`"),
        ("x: f32, @eahc(i, 2) `p.{i}`: f32) -> y", "y = x", "did you mean `@each`?"),
        (
            "x: f32) -> (@each(i, 1) `y.{i}`)",
            "for j in 0..2 {\n `y.0` = -x\n }",
            "`y.0` is defined twice",
        ),
        (
            "x: f32) -> y",
            "for i in 0..1 {\n y = `x.{j}`\n }",
            "there is no value `x.{j}`",
        ),
    ],
)
def test_wrong_numbered_names_are_errors(head: str, body: str, what: str) -> None:
    assert what in message(f"graph g({head} {{\n {body}\n}}")


def test_let_binds_constants() -> None:
    before = "let width = 6\nlet half = width / 2\nlet odd = half % 2 == 1 and not (half > 5)\n"
    assert np.array_equal(value("y = x * half", before=before), X * 3)
    assert np.array_equal(value("y = x * (7 if odd else 9)", before=before), X * 7)
    assert np.array_equal(value("let k = [1, 5][1]\n y = x + k", before=before), X + 5)


def test_constant_arithmetic_is_that_of_python() -> None:
    cases = {
        "7 / 2": 3.5, "6 / 2": 3, "-7 % 3": 2, "2 ** 10": 1024, "2 ** -1": 0.5,
        "1 + 2 * 3": 7, "(1 + 2) * 3": 9, "-2 ** 2": -4, "10 - 4 - 3": 3, "0x10": 16,
    }  # fmt: skip
    for text, expected in cases.items():
        document = graph(f"let k = {text}\n const c = k\n y = x * Cast(c, to=f32)")
        held = nodes(document)[0].attribute_values(document.weights)["value"]
        assert held == expected, text
        assert isinstance(held, np.ndarray)
        assert (held.dtype == np.int64) == isinstance(expected, int), text


def test_strings_are_concatenated() -> None:
    document = graph(
        'let side = "UPPER"\n y = MaxPool(x, kernel_shape=[2], auto_pad="SAME_" + side)'
    )
    assert computing(document)[0].attribute_values()["auto_pad"] == "SAME_UPPER"


def test_let_refuses_values_of_the_graph() -> None:
    assert "this is not known before the graph runs" in message(
        "graph g(x: f32[2]) -> y {\n let k = Relu(x)\n y = x\n}"
    )


# --- if --------------------------------------------------------------------------------


def test_a_constant_condition_selects_a_branch_at_once() -> None:
    statements = "let deep = {}\n y = if deep {{\n y = -x\n }} else {{\n h = x * 2\n y = h\n }}"
    assert np.array_equal(value(statements.format("true")), -X)
    assert np.array_equal(value(statements.format("2 < 1")), X * 2)
    assert "If" not in [node.op_type for node in nodes(graph(statements.format("true")))]


DYNAMIC = """
(y, z) = if x[0, 0, 0] > 0 {
    h = x * 2
    y = h + 1
    z = -h
} else if x[0, 0, 1] > 0 {
    y = x
    z = x
} else {
    y = -x
    z = y * 3
}
"""


@pytest.mark.parametrize(
    ("first", "second", "y", "z"), [(1, 0, (2, 1), -2), (0, 1, (1, 0), 1), (0, 0, (-1, 0), -3)]
)
def test_other_conditions_become_if_nodes(
    first: float, second: float, y: tuple[float, float], z: float
) -> None:
    document = parse(f"graph g(x: f32[2, 3, 4]) -> (y, z) {{{DYNAMIC}}}")
    x = X.copy()
    x[0, 0, :2] = first, second
    results = by_onnx(document, x=x)
    assert np.array_equal(results["y"], x * y[0] + y[1])
    expected = x * -3 if z == -3 else x * z
    assert np.array_equal(results["z"], expected)


def test_branches_use_templates_and_loops() -> None:
    document = parse(
        DENSE + "graph g(x: f32[N, 4]) -> y {\n y = if ReduceSum(x, keepdims=0) > 0 {\n"
        " y = x\n for i in 0..2 {\n y = -y\n }\n } else {\n y = dense(x, 4)\n }\n}"
    )
    x = np.ones((1, 4), np.float32)
    assert np.array_equal(by_onnx(document, x=x)["y"], x)
    (branch,) = [node for node in nodes(document) if node.op_type == "If"]
    assert branch.output_names == ("y",)


def test_branches_rebind_outer_names() -> None:
    document = graph(
        "h = x\n for i in 0..2 {\n h = if h[0, 0, 0] < 0 {\n h = -h\n } else {\n h = h + 1\n }\n }"
        "\n y = h"
    )
    assert np.array_equal(by_onnx(document, x=X)["y"], -X + 1)


def test_doc_strings_of_branches_are_kept() -> None:
    document = graph('y = if x[0, 0, 0] > 0 {\n """As it is."""\n y = x\n } else {\n y = -x\n }')
    assert '"""As it is."""' in text_of(document.module, document.weights)


def test_every_branch_defines_the_names_on_the_left() -> None:
    shown = message(
        "graph g(x: f32[2]) -> y {\n y = if x[0] > 0 {\n y = x\n } else {\n z = x\n }\n}"
    )
    assert "this branch does not define `y`" in shown


def test_elementwise_selection() -> None:
    assert np.array_equal(
        value("y = x if x > 0 else 0.1 * x"), np.where(X > 0, X, X * np.float32(0.1))
    )
    assert np.array_equal(value("y = x if 2 > 1 else -x"), X)


def test_graphs_inside_templates_do_not_hide_values_of_the_caller() -> None:
    document = parse(
        "def multiplied(x: f32[4], turns) -> y {\n"
        " (y, _) = Loop(turns, true, x, body=graph turn(i: i64, on: bool, before: f32[4])"
        " -> (more, after, total) {\n more = on\n after = before + x\n"
        " total = ReduceSum(after, keepdims=0)\n })\n}\n"
        "graph g(x: f32[4], n: i64) -> y {\n before = -x\n total = x * before\n"
        " y = multiplied(before, n) + multiplied(total, n)\n}"
    )
    x = np.arange(4, dtype=np.float32)
    found = by_onnx(document, x=x, n=np.array(2))["y"]
    assert np.array_equal(found, 3 * -x + 3 * (x * -x))


def test_indexing_a_tensor_of_unknown_rank() -> None:
    x = X[0]
    for text, expected in {
        "..., 0": x[..., 0],
        "0, ...": x[0, ...],
        "..., _, 0": x[..., None, 0],
        "_, ..., _": x[None, ..., None],
        "..., _, [0, 1]": x[..., None, [0, 1]],
        "..., [1, 0], _, 0": x[[1, 0]][:, None, 0],
    }.items():
        document = graph(f"y = x[{text}]", "x: f32[...]")
        assert np.array_equal(run(document, x=x)["y"], expected), text


# --- operators --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("not (x > 0) and x != -3 or x == 5", (~(X > 0) & (X != -3)) | (X == 5)),
        ("x % 3.0", np.fmod(X, 3)),
        ("Cast(x, to=i32) % 3", X.astype(np.int32) % 3),
        ("-x ** 2.0", -(X**2)),
        ("2.0 - x", 2 - X),
        ("x @ Transpose(x, perm=[0, 2, 1])", X @ X.transpose(0, 2, 1)),
        ("x |> Relu |> Sub(1.0)", np.maximum(X, 0) - 1),
        ("x + 1.0 |> Neg", -(X + 1)),
        ("Max(x |> Neg, x)", np.abs(X)),
    ],
)
def test_infix_operators_compute_what_numpy_does(text: str, expected: Any) -> None:
    found = value(f"y = {text}")
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)


numbers = st.sampled_from(["1", "2", "3", "0.5", "1.5", "k"])
values = st.sampled_from(["x", "y", "x", "y[0]", "x[:, ::-1]"])


def written(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Expressions composed of smaller ones, in the syntax that Python and .pgraph share."""
    pairs = st.tuples(parts, parts)
    return st.one_of(
        st.tuples(parts, st.sampled_from("+-*"), parts).map(" ".join),
        pairs.map(lambda pair: f"({pair[0]}) - ({pair[1]})"),
        parts.map(lambda part: f"-{part}"),
        parts.map(lambda part: f"({part}) / 2"),
        st.tuples(values, st.sampled_from(["2", "3", "k"])).map("**".join),
        parts.map(lambda part: f"-({part})"),
    )


@given(st.recursive(numbers | values, written, max_leaves=12))
def test_expressions_mean_what_they_mean_in_python(text: str) -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.integers(-3, 4, (2, 3)).astype(np.float32) for _ in "xy")
    expected = eval(text, {"x": x, "y": y, "k": 2})
    document = parse(
        f"let k = 2\ngraph g(x: f32[2, 3], y: f32[2, 3]) -> z {{\n z = x * 0 + ({text})\n u = y\n}}"
    )
    found = run(document, x=x, y=y)["z"]
    assert np.allclose(found, np.broadcast_to(expected, (2, 3)), rtol=1e-4), text


def test_the_right_side_of_a_pipe_is_a_call() -> None:
    assert "`|>` must be followed by a call" in message("graph g(x: f32[2]) -> y {\n y = x |> 3\n}")


# --- indexing --------------------------------------------------------------------------------

bound = st.none() | st.integers(-6, 6)


@st.composite
def words(draw: st.DrawFn, size: int) -> tuple[str, Any]:
    """An index for an axis of this size: its text, and its value for NumPy."""
    kind = draw(st.sampled_from(["place", "slice", "slice", "all", "list"]))
    if kind == "place":
        place = draw(st.integers(-size, size - 1))
        return str(place), place
    if kind == "list":
        places = draw(st.lists(st.integers(-size, size - 1), min_size=1, max_size=3))
        return str(places), places
    if kind == "all":
        return ":", slice(None)
    start, stop = draw(bound), draw(bound)
    step = draw(st.none() | st.integers(-3, 3).filter(bool))
    text = f"{'' if start is None else start}:{'' if stop is None else stop}"
    return text + ("" if step is None else f":{step}"), slice(start, stop, step)


@st.composite
def indices(draw: st.DrawFn) -> tuple[str, tuple[int, ...], list[Any]]:
    """An index expression, the shape that it indexes, and its value for NumPy."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    front = draw(st.integers(0, len(shape)))
    whole = draw(st.booleans())
    back = draw(st.integers(0, len(shape) - front)) if whole else 0
    picked = [draw(words(size)) for size in shape[:front]]
    picked += [("...", Ellipsis)] if whole else []
    picked += [draw(words(size)) for size in shape[len(shape) - back :]] if back else []
    for _ in range(draw(st.integers(0, 2))):
        picked.insert(draw(st.integers(0, len(picked))), ("_", None))
    if not picked:
        picked = [("...", Ellipsis)]
    return ", ".join(text for text, _ in picked), shape, [word for _, word in picked]


def by_numpy(array: Any, asked: list[Any]) -> Any:
    """Indexes axis by axis, since NumPy reorders axes if several indices are lists."""
    lists = [(place, one) for place, one in enumerate(asked) if isinstance(one, list)]
    if not lists:
        return array[tuple(asked)]
    ((place, chosen),) = lists
    kept = [slice(None) if isinstance(one, list) else one for one in asked]
    before = [one for one in kept[:place] if not isinstance(one, int)]
    whole = Ellipsis in before
    after = [one for one in kept[place + 1 :] if not isinstance(one, int)]
    axis = -1 - len(after) if whole else len(before)
    return np.take(array[tuple(kept)], chosen, axis)


@given(indices(), st.sampled_from([21, 13, 11, 10, 9]), st.booleans())
def test_indexing_is_that_of_numpy(
    index: tuple[str, tuple[int, ...], list[Any]], opset: int, symbolic: bool
) -> None:
    text, shape, asked = index
    if sum(isinstance(one, list) for one in asked) > 1:
        return
    steps = any(isinstance(one, slice) and one.step not in (None, 1) for one in asked)
    lists = any(isinstance(one, list) and min(one) < 0 for one in asked)
    if (opset < 10 and steps) or (opset < 11 and lists):
        return
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    expected = by_numpy(x, asked)
    if symbolic and opset >= 11:
        head = "x: f32[" + ", ".join("ABCD"[: len(shape)]) + "]"
    else:
        head = f"x: f32{list(shape)}"
    document = graph(f"y = x[{text}]", head, f"opset {opset}")
    if not symbolic and expected.size:  # Old versions of ONNX leave the shape of empty slices open.
        assert describe(nodes(document)[-1].results[0].type) == f"f32{list(expected.shape)}"
    if expected.size:
        assert np.array_equal(run(document, x=x)["y"], expected)


def test_indices_may_be_computed() -> None:
    head = "x: f32[2, 3, 4], i: i64"
    document = graph("y = x[:, i, 1:]", head)
    assert np.array_equal(run(document, x=X, i=np.array(2))["y"], X[:, 2, 1:])
    document = graph("y = x[..., _, i]", "x: f32[2, 3, 4], i: i64[2, 2]")
    i = np.array([[0, 1], [3, 2]])
    assert np.array_equal(run(document, x=X, i=i)["y"], X[:, :, None][..., i])


def test_slices_of_slices() -> None:
    assert np.array_equal(value("y = x[1][:, 0] * x[0, 0, 0]"), X[1][:, 0] * X[0, 0, 0])


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ("0, 0, 0, 0", "4 axes are indexed, but the tensor has 3"),
        ("..., ...", "`...` may occur only once"),
        ("::0", "the step of a slice must not be 0"),
        ("2", "index 2 is out of range for an axis of size 2"),
        ("..., -5", "index -5 is out of range for an axis of size 4"),
        ("[0], [1]", "only one axis may have several indices"),
        (":x[0, 0, 0]", "the ends of a slice must be integer constants"),
        ("x > 0", "an index must be an integer, not bool[2, 3, 4]"),
        ("0.5", "an index must be an integer, not f32[]"),
    ],
)
def test_wrong_indices(index: str, said: str) -> None:
    shown = message(f"opset 21\ngraph g(x: f32[2, 3, 4]) -> y {{\n y = x[{index}]\n}}")
    assert said in shown


def test_limits_of_older_operators_are_errors() -> None:
    text = "opset {}\ngraph g(x: f32[{}, 3]) -> y {{\n y = x[{}]\n}}"
    assert "Slice-1 has no steps" in message(text.format(9, 2, "::2"))
    assert "Gather-1 does not support negative indices" in message(text.format(9, "N", "-1"))
    assert "import opset 10 or later" in message(
        "opset 9\ngraph g(x: f32[2]) -> y {\n y = x % 2.0\n}"
    )


# --- annotations --------------------------------------------------------------------------------


def noted(node: OnnxOp, document: Document) -> dict[str, Any]:
    held = all_attributes(node, document.weights)
    return {name: to_python(one, document.weights) for name, one in held.items()}


def attributes(document: Document, name: str) -> dict[str, Any]:
    (node,) = [node for node in nodes(document) if node.output_names[0] == name]
    return noted(node, document)


@pytest.mark.parametrize(
    ("written", "attribute", "expected"),
    [
        ("@ipu(1)", "__ipu_number", 1),
        ("@stage(2)", "__pipeline_stage", 2),
        ("@phase(3)", "__execution_phase", 3),
        ("@priority(1.5)", "__schedule_priority", 1.5),
        ("@recompute", "__recompute_output_in_backward_pass", int(RecomputeType.Recompute)),
        ("@recompute(false)", "__recompute_output_in_backward_pass", int(RecomputeType.Checkpoint)),
        ('@partials("half")', "__partials_type", "HALF"),
        ("@memory(0.5)", "__available_memory", 0.5),
        ('@attribute("__mine", [1, 2])', "__mine", [1, 2]),
    ],
)
def test_annotations_become_attributes_of_nodes(
    written: str, attribute: str, expected: Any
) -> None:
    document = graph(f"{written} h = Relu(x)\n y = -h")
    assert attributes(document, "h")[attribute] == expected
    assert attribute not in attributes(document, "y")


def test_a_node_may_be_named_and_described() -> None:
    document = graph('@name("act1") @doc("why") @meta("k", "v")\ny = Relu(x)')
    (node,) = nodes(document)
    assert (node.node_name, value_name(node.results[0])) == ("act1", "y")
    (proto,) = export_model(document.module, document.weights).graph.node
    assert (proto.name, proto.doc_string) == ("act1", "why")
    assert [(one.key, one.value) for one in proto.metadata_props] == [("k", "v")]


def test_regions_annotate_all_of_their_statements() -> None:
    document = graph(
        "@ipu(0) {\n a = Relu(x)\n @stage(1) {\n b = -a\n }\n @ipu(2) c = b + a\n}\n y = c * 2.0"
    )
    assert [attributes(document, name).get("__ipu_number") for name in "abcy"] == [0, 0, 2, None]
    assert [attributes(document, name).get("__pipeline_stage") for name in "ab"] == [None, 1]


def test_annotations_apply_inside_templates_loops_and_branches() -> None:
    document = parse(
        DENSE + "graph g(x: f32[N, 4]) -> y {\n @ipu(3) for i in 0..2 {\n x = dense(x, 4)\n }\n"
        " @ipu(1) y = dense(x, 2)\n}"
    )
    placed = [noted(node, document).get("__ipu_number") for node in computing(document)]
    assert placed == [3, 3, 3, 3, 1, 1]


def test_an_unknown_annotation_is_refused() -> None:
    shown = message("graph g(x: f32[2]) -> y {\n @ipus(1) y = -x\n}")
    assert "there is no annotation `@ipus`" in shown
    assert "did you mean `@ipu`?" in shown
