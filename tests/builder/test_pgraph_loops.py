"""Tests `loop` and `if` of `.pgraph`: results, printed form and training."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import popgraph
from popgraph import compiler
from popgraph.builder.onnx.write import export_model
from popgraph.builder.pgraph import Document, parse, text_of
from popgraph.builder.pgraph.print.formatter import format_text
from popgraph.cli import app
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options
from popgraph.testing import model_difference
from tests.builder.pgraph_programs import programs, run, text
from tests.sampling import examples

Arrays = dict[str, Any]


def computed(document: Document, backend: str, inputs: Arrays) -> Arrays:
    compilation = Compilation(document.weights)
    made = compiler.runner(document.module.clone(), compilation, Options(), backend, 1)
    return dict(made(inputs))


def comes_back(written: str) -> Document:
    """The document of a text, after checking that its printed form is the same model."""
    document = parse(written)
    shown = text_of(document.module, document.weights)
    again = parse(shown)
    models = [export_model(one.module, one.weights) for one in (document, again)]
    assert model_difference(*models) == "", shown
    assert text_of(again.module, again.weights) == shown
    assert format_text(shown) == shown
    return document


def inputs_of(seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, 3)).astype(np.float32)
    m = rng.normal(size=(4, 3)).astype(np.float32)
    return {"a": a, "b": b, "m": m, "n": np.array(seed % 3)}


@settings(max_examples=examples(100), deadline=None)
@given(programs())
def test_a_program_printed_and_parsed_is_the_same(program: list[Any]) -> None:
    written = text(program)
    laid_out = format_text(written)
    assert format_text(laid_out) == laid_out
    comes_back(laid_out)


@settings(max_examples=examples(20, slow=5), deadline=None)
@given(programs(), st.integers(0, 8))
def test_a_program_computes_the_same_as_numpy(program: list[Any], seed: int) -> None:
    inputs = inputs_of(seed)
    found = computed(parse(text(program)), "reference", inputs)["y"]
    assert np.allclose(found, run(program, inputs), rtol=1e-4, atol=1e-4)


@settings(max_examples=examples(5, slow=50), deadline=None)
@given(programs(2, 4), st.integers(0, 8))
def test_a_program_computes_the_same_in_c(program: list[Any], seed: int) -> None:
    inputs = inputs_of(seed)
    found = computed(parse(text(program)), "c", inputs)["y"]
    assert np.allclose(found, run(program, inputs), rtol=1e-4, atol=1e-4)


# --- each form, once by hand --------------------------------------------------------------------

X = np.array([[1, -2, 3], [0.5, 1, -1], [2, 0, 1], [-1, 1, 1]], np.float32)
"""Four rows of three."""


def both(statements: str, head: str = "x: f32[4, 3]", before: str = "", **inputs: Any) -> Any:
    """`y` of a graph by the reference backend, after checking that C agrees."""
    document = comes_back(f"opset 21\n{before}\ngraph g({head}) -> y {{\n{statements}\n}}\n")
    given = {"x": X, **inputs}
    first, second = (computed(document, backend, given)["y"] for backend in ("reference", "c"))
    assert np.allclose(first, second, rtol=1e-5, atol=1e-6)
    return second


def test_a_loop_carries_a_state() -> None:
    found = both("y = loop i in 0..3 with y = x {\n y = 2 * y + 1\n }")
    assert np.array_equal(found, X * 8 + 7)


def test_iterations_count_from_the_lower_bound() -> None:
    assert both("y = loop i in 2..5 with y = 0 {\n y = 10 * y + i\n }") == 234
    assert both("y = loop i in 5..2 with y = 7 {\n y = 10 * y + i\n }") == 7


def test_trip_counts_may_be_computed() -> None:
    text = "y = loop i in n..2 * n with y = 0 {\n y = 10 * y + i\n }"
    assert both(text, "x: f32[4, 3], n: i64", n=np.array(3)) == 345


def test_a_loop_scans_rows_and_stacks_results() -> None:
    found = both(
        "(h, y) = loop row in x with h = x[0] {\n h = h + row\n y = h * row\n }\n", "x: f32[N, 3]"
    )
    sums = X[0] + np.cumsum(X, axis=0)
    assert np.allclose(found, sums * X)


def test_a_loop_needs_no_state() -> None:
    found = both("y = loop i in 0.., row in x {\n y = row * Cast(i, to=f32)\n }", "x: f32[N, 3]")
    assert np.array_equal(found, X * np.arange(4, dtype=np.float32)[:, None])


def test_a_condition_is_evaluated_before_each_iteration() -> None:
    text = "y = loop while y < {} with y = x[0, 0] {{\n y = y * 2\n }}"
    assert both(text.format(10)) == 16
    assert both(text.format(1)) == 1


def test_a_condition_may_use_the_index_and_outer_values() -> None:
    text = "y = loop i in 0.. while i < 3 and y < most with y = x[0, 0] {\n y = y * 2\n }"
    assert both(text, "x: f32[4, 3], most: f32", most=np.array(99, np.float32)) == 8
    assert both(text, "x: f32[4, 3], most: f32", most=np.array(3, np.float32)) == 4


def test_computed_lower_bounds() -> None:
    head, n = "x: f32[4, 3], n: i64", np.array(2)
    text = "y = loop i in n + 1.. while i < 7 with y = 0 {\n y = y * 10 + i\n }"
    assert both(text, head, n=n) == 3456
    text = (
        "y = loop i in n..9 while size < 100 with (y = 0, size = 1) {\n"
        " size = size * 3\n y = y * 10 + i\n }"
    )
    assert both(text, head, n=n) == 23456


def test_a_loop_over_no_rows() -> None:
    text = "(h, y) = loop row in x with h = s {\n h = h + row\n y = h * 2\n }"
    found = both(text, "x: f32[N, 3], s: f32[3]", x=X[:0], s=X[0])
    assert found.shape == (0, 3)


def test_a_body_computes_the_condition() -> None:
    text = (
        "(y, going) = loop i in 0..9 while going with (y = x[0, 0], going = true) {\n"
        " y = y * 2\n going = y < 10\n }"
    )
    assert both(text) == 16
    assert both(text.replace("(y, going)", "y", 1)) == 16


def test_a_condition_may_end_rows_early() -> None:
    text = (
        "y = loop row in x, i in 0.. while i < 2 with y = x[0] {\n"
        " y = y + row * Cast(i + 1, to=f32)\n }"
    )
    assert np.allclose(both(text), X[0] + X[0] + 2 * X[1])


def test_a_block_names_its_results() -> None:
    found = both(
        "(_, ys) = loop row in x with h = x[0] -> turn(next, seen: f32[3]) {\n"
        " next = h + row\n seen = next * 2\n }\n y = if ys[0, 0] > 1e9 -> a {\n a = ys\n"
        " } else -> b {\n b = -ys\n }",
    )
    assert np.allclose(found, -2 * (X[0] + np.cumsum(X, axis=0)))


def test_names_are_rebound_in_nested_blocks() -> None:
    found = both(
        "y = loop i in 0..2 with y = x {\n"
        " y = if ReduceSum(y, keepdims=0) > 0 {\n y = y * 2\n } else {\n y = -y\n }\n"
        " y = loop j in 0..2 with y = y {\n y = y + 1\n }\n"
        " for k in 0..2 {\n y = y * 3\n }\n }"
    )
    expected = X
    for _ in range(2):
        expected = expected * 2 if expected.sum() > 0 else -expected
        expected = (expected + 2) * 9
    assert np.array_equal(found, expected)


def test_the_size_of_a_state_may_grow() -> None:
    document = comes_back(
        "opset 21\ngraph g(x: f32[2]) -> y {\n"
        " y = loop i in 0..2 with y: f32[?] = x {\n y = Concat(y, y, axis=0)\n }\n}\n"
    )
    found = computed(document, "reference", {"x": X[0, :2]})["y"]
    assert np.array_equal(found, np.tile(X[0, :2], 4))


TEMPLATE = """
def settle(x: f32[n], f, least=0.1) -> (h, turns) {
    (h, turns) = loop i in 0..20 while error > least with (h = x, error = inf, turns = 0) {
        new = f(h)
        error = ReduceMax(Abs(new - h), keepdims=0)
        h = new
        turns = i + 1
    }
}
def half(x: f32[n]) -> y {
    y = 0.5 * x
}
"""


def test_loops_in_templates() -> None:
    found = both(
        "(y, _) = settle(x[0], half)\n (h, _) = settle(y, half, least=1)\n y2 = h + y",
        before=TEMPLATE,
    )
    h = X[0]
    while True:
        h, error = h * np.float32(0.5), np.abs(h * 0.5).max()
        if error <= 0.1:
            break
    assert np.array_equal(found, h)


def test_loops_in_functions() -> None:
    found = both(
        "y = my.Grown(x)",
        before="opset my 1\nfunction my.Grown(x) -> y {\n opset 21\n"
        " y = loop i in 0..3 with y = x {\n y = y + x\n }\n}\n",
    )
    assert np.array_equal(found, X * 4)


def test_unused_results_of_loops_have_names() -> None:
    """Other runtimes refuse a Loop or Scan with unnamed results."""
    runtime = pytest.importorskip("onnxruntime", reason="another runtime")
    document = parse(
        "opset 21\ngraph g(x: f32[4, 3]) -> y {\n"
        " y = loop i in 0.., row in x with h = x[0] {\n h = h + row\n y = h\n }\n}\n"
    )
    model = export_model(document.module, document.weights).SerializeToString()
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    assert np.allclose(session.run(["y"], {"x": X})[0], X[0] + np.cumsum(X, axis=0))


def test_unused_results_of_a_node_are_underscores() -> None:
    found = both(
        "(_, y) = Loop(3, true, x, body=graph (i: i64, go: bool, h: f32[4, 3]) -> (go, new, s) {\n"
        " new = h * 2\n s = ReduceSum(h, keepdims=0)\n })"
    )
    assert np.array_equal(found, X.sum() * np.array([1, 2, 4], np.float32))


# --- names --------------------------------------------------------------------------------------


def test_keywords_of_loops_may_be_names() -> None:
    text = """graph g(loop: f32[2], while: f32[2], with: bool[2]) -> y {
    for loop2 in 0..2 {
        while = while + loop
    }
    y = loop if with else while |> Neg
}
"""
    document = parse(text.replace("graph g(loop", "graph g(loop"))
    shown = format_text(text)
    assert "y = `loop` if `with` else `while` |> Neg\n" in shown
    models = [export_model(one.module, one.weights) for one in (document, parse(shown))]
    assert model_difference(*models) == ""


COMMENTED = """graph g(x: f32[4, 3]) -> y {
    # above
    (y, ys) = loop row in x with y = x[0] {  # beside the head
        # in the block
        y = y + row  # beside

        ys = 2 * y
        # at its end
    }
    z = if x[0, 0] > 0 -> a {  # then
        a = x
    } else -> b {  # else
        b = -x  # negated
    }
}
"""


def test_comments_stay_where_they_are() -> None:
    assert format_text(COMMENTED) == COMMENTED


LONG = """graph g(x: f32[4, 3]) -> y {
    (first_result, second_result) = loop row in x while a_condition with (
        first_result: f32[4, 3] = x, second_result: f32[4, 3] = x, a_condition: bool = true,
    ) -> turn(
        the_first_result: f32[4, 3], the_second_result: f32[4, 3], whether_to_go_on: bool, row,
    ) {
        the_first_result = first_result
    }
}
"""


def test_a_long_head_is_broken_within_its_lists() -> None:
    assert format_text(LONG) == LONG
    assert format_text(LONG.replace("\n        first_result: f", " first_result: f")) == LONG


# --- training -----------------------------------------------------------------------------------

RECURRENT = """opset 21
graph g(x: f32[5, 2, 3], sharp: f32) -> y {
    weight w: f32[3, 4] = normal(std=0.5, seed=1)
    weight u: f32[4, 4] = normal(std=0.5, seed=2)
    const start: f32[2, 4] = zeros
    (h, norms) = loop row in x with h = start {
        h = Tanh(row @ w + h @ u)
        norms = ReduceSum(h * h, keepdims=0)
    }
    k = loop i in 0..2 with k = h {
        k = k + Sin(k @ u)
    }
    y = if sharp > 0 {
        y = k * k
    } else {
        weight v: f32[4, 4] = normal(std=0.5, seed=3)
        y = k @ v
    }
}
train (labels: f32[2, 4]) {
    difference = y - labels
    loss = ReduceSum(difference * difference, keepdims=0) + 0.1 * ReduceSum(norms, keepdims=0)
    optimizer = SGD(0.01)
}
"""


def loss_of(weights: Arrays, x: Any, labels: Any, sharp: float) -> float:
    h, norms = np.zeros((2, 4)), 0.0
    for row in x:
        h = np.tanh(row @ weights["w"] + h @ weights["u"])
        norms += float((h * h).sum())
    for _ in range(2):
        h = h + np.sin(h @ weights["u"])
    y = h * h if sharp > 0 else h @ weights["y/else/v"]
    return float(((y - labels) ** 2).sum() + 0.1 * norms)


def trained(path: Path, data: Arrays) -> tuple[Arrays, Arrays]:
    """The weights before and after one step."""
    session = popgraph.TrainingSession(path, popgraph.DataFlow(1, ["loss"]))
    session.prepareDevice()
    session.weightsFromHost()
    before = {name: np.array(value) for name, value in session.weights().items()}
    session.run(popgraph.PyStepIO(data, session.initAnchorArrays()))
    session.weightsToHost()
    return before, dict(session.weights())


@pytest.mark.parametrize("sharp", [1.0, -1.0])
def test_a_training_step_differentiates_loops_and_branches(tmp_path: Path, sharp: float) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 2, 3)).astype(np.float32)
    labels = rng.normal(size=(2, 4)).astype(np.float32)
    (path := tmp_path / "net.pgraph").write_text(RECURRENT)
    data = {"x": x, "labels": labels, "sharp": np.array(sharp, np.float32)}
    before, after = trained(path, data)
    for name, value in before.items():
        exact = {key: one.astype(np.float64) for key, one in before.items()}
        for place in np.ndindex(value.shape):
            losses = []
            for change in (1e-4, -1e-4):
                exact[name] = value.astype(np.float64)
                exact[name][place] += change
                losses.append(loss_of(exact, x, labels, sharp))
            slope = (losses[0] - losses[1]) / 2e-4
            found = (value[place] - after[name][place]) / 0.01
            assert np.isclose(found, slope, rtol=2e-2, atol=2e-3), (name, place)


BATCHES = """opset 21
graph g(x: f32[N, 5, 3]) -> h {
    weight w: f32[3, 3] = normal(std=0.5, seed=1)
    rows = Transpose(x, perm=[1, 0, 2])
    h = loop row in rows with h = x[:, 0] {
        h = if ReduceSum(row, keepdims=0) > 6 {
            h = Tanh(row @ w + h)
        } else {
            h = h + row @ w
        }
    }
}
train (labels: f32[N, 3]) {
    difference = h - labels
    loss = ReduceMean(difference * difference, keepdims=0)
    optimizer = SGD(0.1)
}
"""


def test_popgraph_train_of_loops(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (path := tmp_path / "net.pgraph").write_text(BATCHES)
    files = []
    for name, shape in {"x": (8, 5, 3), "labels": (8, 3)}.items():
        np.save(tmp_path / f"{name}.npy", rng.random(shape).astype(np.float32))
        files.append(f"{name}={tmp_path / name}.npy")
    result = CliRunner().invoke(app, ["train", str(path), *files, "--epochs", "9"])
    assert result.exit_code == 0, result.output
    losses = [float(found) for found in re.findall(r"loss\D*([0-9.]+)", result.output)]
    assert len(losses) == 9, result.output
    assert losses[-1] < 0.9 * losses[0]
