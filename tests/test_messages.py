"""Tests messages of the Python API for models, sessions and files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popgraph
from popgraph.support.errors import ErrorGroup, ParseError, PopgraphError
from popgraph.support.files import path_of

NET = "graph net(x: f32[N, 4]) -> y {\n  weight w: f32[4, 3] = ones\n  y = x @ w\n}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("net.pgraph").write_text(NET)
    return tmp_path


# --- models: texts and files -------------------------------------------------------------------


def test_an_unfinished_text_is_not_taken_for_a_file() -> None:
    """Every prefix of a text with more than one word."""
    for end in range(len("graph n"), len(NET)):
        with pytest.raises((ParseError, ErrorGroup)) as caught:
            popgraph.compile(NET[:end])
        assert "<text>" in str(caught.value)


@pytest.mark.parametrize("text", ["opset 21", "def f(", "# nothing", "y = Relu(x)", "}", " "])
def test_a_line_of_a_text_is_not_taken_for_a_file(text: str) -> None:
    with pytest.raises(ParseError):
        popgraph.compile(text)


@pytest.mark.parametrize(
    "name", ["net", "my net", "graph.onnx", "graph one.onnx", "run=3/net.onnx", "net (1).pgraph"]
)
def test_names_are_taken_for_files(name: str) -> None:
    assert path_of(name) == Path(name)


Door = Callable[[Any], object]
DOORS: dict[str, Door] = {
    "compile": popgraph.compile,
    "trainer": lambda model: popgraph.Trainer(model, "mse", "SGD(0.1)"),
    "to_pgraph": popgraph.to_pgraph,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nett.pgraph", "there is no such file; did you mean 'net.pgraph'?"),
        ("net.onnx", "there is no such file; did you mean 'net.pgraph'?"),
        ("net", "there is no such file; did you mean 'net.pgraph'?"),
        ("a/net.onnx", "there is no folder 'a'"),
        (".", "it is a folder, not a file"),
    ],
)
def test_the_closest_file_is_named(name: str, said: str, door: str) -> None:
    with pytest.raises(PopgraphError) as caught:
        DOORS[door](name)
    assert caught.value.what.endswith(said)


def test_a_missing_array_file() -> None:
    np.save("x.npy", np.ones((2, 4), np.float32))
    with pytest.raises(PopgraphError, match=r"there is no such file; did you mean 'x\.npy'"):
        popgraph.train("net.pgraph", {"x": "xx.npy"}, "mse", "SGD(0.1)")


# --- sessions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "named", [{}, {"providers": ["CPUExecutionProvider"]}, {"sess_options": None}]
)
@pytest.mark.parametrize("model", ["net.onnx", b"bytes", Path("net.onnx")])
def test_a_session_without_a_data_flow_recommends_compile(
    model: Any, named: dict[str, Any]
) -> None:
    with pytest.raises(TypeError) as caught:
        popgraph.InferenceSession(model, **named)
    assert str(caught.value).endswith(
        "\n  try: this is PopART's session; to call a model: "
        'run = popgraph.compile("net.onnx"); run(x=array)'
    )
    with pytest.raises(TypeError, match=r"to train a model on arrays: popgraph\.train\("):
        popgraph.TrainingSession(model, **named)


# --- training ----------------------------------------------------------------------------------

OPEN = {"x": np.ones((8, 4), np.float32), "t": np.ones((8, 3), np.float32)}


def test_a_missing_optimizer_has_a_hint_in_python() -> None:
    with pytest.raises(PopgraphError) as caught:
        popgraph.train("net.pgraph", OPEN, "mse")
    assert caught.value.hint.startswith("optimizer='Adam(0.001)', or 'SGD(0.1, momentum=0.9)'")


@pytest.mark.parametrize("batch", [3, 8])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["x", "t"])
def test_data_that_are_not_finite_are_named(name: str, number: float, batch: int) -> None:
    data = {one: array.copy() for one, array in OPEN.items()}
    data[name][5, 1] = number
    with pytest.raises(PopgraphError) as caught:
        popgraph.train("net.pgraph", data, "mse", "SGD(0.1)", batch=batch)
    assert f": input {name!r} holds {number} in sample 5 of the data" in caught.value.what
    assert caught.value.where == "the data"
    assert "learning rate" not in caught.value.hint


def test_batches_that_are_not_finite_are_named() -> None:
    bad = OPEN["x"].copy()
    bad[6, 0] = np.nan
    with pytest.raises(PopgraphError, match="input 'x' holds nan in sample 6 of"):
        popgraph.train("net.pgraph", [OPEN, {**OPEN, "x": bad}], "mse", "SGD(0.1)")


def test_weights_that_are_not_finite_at_first_are_named() -> None:
    text = NET.replace("= ones", "= [[1, 1, 1], [1, 1, nan], [1, 1, 1], [1, 1, 1]]")
    with pytest.raises(PopgraphError) as caught:
        popgraph.train(text, OPEN, "mse", "SGD(0.1)")
    assert ": weight 'w' holds nan at [1, 2] before the first step" in caught.value.what
    assert caught.value.hint == "initialize it with finite values"


def test_only_divergence_hints_at_the_learning_rate() -> None:
    with pytest.raises(PopgraphError) as caught:
        popgraph.train("net.pgraph", OPEN, "mse", "SGD(1e30)", epochs=20)
    assert "reduce the learning rate, since the data are finite" in caught.value.hint


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "loss": ({"loss": 5}, "a loss is a name or an expression, not int"),
    "epochs": ({"epochs": "3"}, "epochs is int or None, not '3' (str)"),
    "half an epoch": ({"epochs": 1.5}, "epochs is int or None, not 1.5 (float)"),
    "no epoch": ({"epochs": 0}, "epochs must be a positive integer, not 0"),
    "batch": ({"batch": "a"}, "batch is int or None, not 'a' (str)"),
    "no batch": ({"batch": 0}, "batch must be a positive integer, not 0"),
    "patience": ({"patience": "3"}, "patience is int or None, not '3' (str)"),
    "seed": ({"seed": "a"}, "seed is int, not 'a' (str)"),
    "freeze": ({"freeze": 3}, "freeze is Sequence of str or str, not 3 (int)"),
    "callbacks": ({"callbacks": [5]}, "callbacks is Sequence[Callback], not [5] (list)"),
    "threads": ({"threads": "2"}, "threads is int, not '2' (str)"),
    "no data": ({"data": {}}, "no data to train on"),
    "no samples": (
        {"data": {"x": np.zeros((0, 4)), "t": np.zeros((0, 3))}},
        "the data have no samples",
    ),
    "None for samples": (
        {"data": {"x": None, "t": OPEN["t"]}},
        "input 'x' is one value of type NoneType, not samples",
    ),
    "only inputs": (
        {"data": {"x": OPEN["x"]}},
        "a named loss compares the output with one array that is not an input; "
        "the data have 0: none",
    ),
    "a folder that is not there": (
        {"checkpoint": "nowhere/a.ckpt"},
        "the file cannot be written: there is no folder 'nowhere'",
    ),
    "a folder": ({"checkpoint": "."}, "the file cannot be written: it is a folder"),
}


@pytest.mark.parametrize("case", WRONG)
def test_arguments_of_another_type_are_named(case: str) -> None:
    changed, message = WRONG[case]
    usual = {"data": OPEN, "loss": "mse", "optimizer": "SGD(0.1)"}
    with pytest.raises(PopgraphError) as caught:
        popgraph.train("net.pgraph", **{**usual, **changed})
    assert caught.value.what == message


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "input 'x' holds NoneType, the model requires float32"),
        ("abc", "input 'x' holds <U3, the model requires float32"),
        ({"a": 1}, "input 'x' holds dict, the model requires float32"),
        ([[1], [2, 3]], "input 'x' has rows of different shapes"),
    ],
)
def test_inputs_that_are_not_arrays(given: Any, message: str) -> None:
    with pytest.raises(PopgraphError) as caught:
        popgraph.compile("net.pgraph")(x=given)
    assert caught.value.what == message


def test_options_must_be_an_options_object() -> None:
    with pytest.raises(PopgraphError, match=r"options is a popgraph\.Options, not dict"):
        popgraph.compile("net.pgraph", options={"winograd": False})  # type: ignore[arg-type]
    with pytest.raises(PopgraphError, match="no input 5"):
        popgraph.compile("net.pgraph")({5: OPEN["x"]})  # type: ignore[dict-item]
