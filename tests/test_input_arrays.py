"""Tests input arrays: the same rule for names and element types at every entry point."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from typer.testing import CliRunner

import popgraph
from popgraph.cli import app
from popgraph.support import dtypes
from popgraph.support.errors import RunError
from popgraph.support.inputs import check_names, fitted


@pytest.mark.parametrize(
    ("given", "wanted", "said"),
    [
        ([0.1, 2], "f32", None),
        ([1, 2], "f32", None),
        ([True, False], "i32", None),
        ([], "i64", None),
        (np.array([1.0], ">f4"), "f32", None),
        (np.array([0.1, np.nan, np.inf]), "f16", None),
        (np.array([0.1], np.float32), "f64", None),
        (np.array([2**31 - 1]), "i32", None),
        (np.array([255]), "u8", None),
        (np.array([7, -8]), "i4", None),
        (np.array([0.5, 448.0]), "f8e4m3fn", None),
        (np.array([1.5]), "c64", None),
        (np.array([[0.0, 1e39]]), "f32", "input 'x' holds 1e+39, which float32 cannot represent"),
        (np.array([70000.0]), "f16", "input 'x' holds 70000.0, which float16 cannot represent"),
        (np.array([0.1]), "f8e4m3fn", "holds 0.1, which float8_e4m3fn cannot represent"),
        (np.array([2**31]), "i32", "input 'x' holds 2147483648, which int32 cannot represent"),
        (np.array([-1]), "u64", "input 'x' holds -1, which uint64 cannot represent"),
        (np.array([2**63], np.uint64), "i64", "which int64 cannot represent"),
        (np.array([2**63 - 1]), "f64", "which float64 cannot represent"),
        (np.array([2**24 + 1]), "f32", "input 'x' holds 16777217, which float32 cannot represent"),
        (np.array([1.0]), "i64", "input 'x' holds float64, the model requires int64"),
        (np.array([1]), "bool", "input 'x' holds int64, the model requires bool"),
        (np.array([1j]), "f32", "input 'x' holds complex128, the model requires float32"),
        (["a"], "f32", "input 'x' holds <U1, the model requires float32"),
        ([[1], [2, 3]], "f32", "input 'x' has rows of different shapes"),
    ],
)
def test_arrays_are_converted_if_values_are_unchanged(
    given: Any, wanted: str, said: str | None
) -> None:
    dtype = dtypes.BY_NAME[wanted]
    if said is not None:
        with pytest.raises(RunError) as caught:
            fitted("x", given, dtype)
        assert said in caught.value.what
        return
    made = fitted("x", given, dtype)
    assert made.dtype == dtype.numpy
    assert_array_equal(made.astype(complex), np.asarray(given).astype(dtype.numpy).astype(complex))


def test_errors_name_the_position_of_a_value() -> None:
    with pytest.raises(RunError) as caught:
        fitted("x", np.array([[0.0, 1e39]]), dtypes.BY_NAME["f32"], "the data")
    assert caught.value.where == "the data, x[0, 1]"


@pytest.mark.parametrize("row", dtypes.DTYPES, ids=lambda row: row.name)
def test_hints_of_wrong_types_are_valid(row: dtypes.DType) -> None:
    with pytest.raises(RunError) as caught:
        fitted("x", np.array(["2020-01-01"], "M8[D]"), row)
    known = {"np": np, "ml_dtypes": ml_dtypes, "x": np.zeros(2, np.float32)}
    assert eval(caught.value.hint.removeprefix("pass "), known).dtype == row.numpy


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ["image"],
            "the model has no input 'image'\n  try: the model's inputs are 'images', 'n'"
            "; did you mean 'images'?",
        ),
        (["images"], "input 'n' is missing\n  try: the model's inputs are 'images', 'n'"),
        (
            ["images", "n", "qq"],
            "the model has no input 'qq'\n  try: the model's inputs are 'images', 'n'",
        ),
    ],
)
def test_unknown_names_suggest_the_closest_one(given: list[str], message: str) -> None:
    with pytest.raises(RunError) as caught:
        check_names(given, ["images", "n"])
    assert str(caught.value) == message


# All entry points that take arrays.

STATIC = "graph net(x: f32[2, 3]) -> y {\n  weight w: f32[3, 2] = ones\n  y = x @ w\n}"
OPEN = STATIC.replace("f32[2, 3]", "f32[N, 3]")


def _run(text: str, backend: str = "c") -> Callable[[Any], None]:
    def give(x: Any) -> None:
        popgraph.compile(text, backend=backend)(x=x)

    return give


def _trainer() -> popgraph.Trainer:
    trainer = popgraph.Trainer(OPEN, "mse", "SGD(0.0)")
    trainer.prepare({"x": np.ones((2, 3), np.float32), "t": np.ones((2, 2), np.float32)})
    return trainer


def _train(x: Any) -> None:
    popgraph.train(OPEN, {"x": x, "t": np.ones((2, 2), np.float32)}, "mse", "SGD(0.1)")


def _evaluate(x: Any) -> None:
    _trainer().evaluate({"x": x, "t": np.ones((2, 2), np.float32)})


def _predict(x: Any) -> None:
    _trainer().predict({"x": x})


def _command(x: Any) -> None:
    with TemporaryDirectory() as folder:
        model, file = Path(folder, "net.pgraph"), Path(folder, "x.npy")
        model.write_text(OPEN)
        np.save(file, x)
        found = CliRunner().invoke(app, ["run", str(model), "-i", f"x={file}"])
    if found.exit_code:
        raise RunError(found.stderr)


ENTRIES: dict[str, Callable[[Any], None]] = {
    "static": _run(STATIC),
    "open": _run(OPEN),
    "reference": _run(STATIC, "reference"),
    "fit": _train,
    "evaluate": _evaluate,
    "predict": _predict,
    "command": _command,
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_point_converts_alike(entry: str) -> None:
    give = ENTRIES[entry]
    for fits in (np.ones((2, 3)), np.ones((2, 3), int), np.ones((2, 3), ">f4"), [[1.5] * 3] * 2):
        give(fits)
    with pytest.raises(RunError, match=r"'x' holds 1e\+39, which float32 cannot represent"):
        give(np.full((2, 3), 1e39))
    with pytest.raises(RunError, match="'x' holds complex128, the model requires float32"):
        give(np.ones((2, 3), complex))
