"""Tests the output of commands for models with host steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from popgraph.cli import app
from popgraph.measure import timing

HOST = """opset 18
graph host(x: f32[3, 4]) -> (places, s, aside) {
    a = x * x
    places = NonZero(a)
    s = ReduceSum(GatherND(a, Transpose(places)), keepdims=0)
    aside = Exp(x)
}
"""
STRINGS = """opset 18
graph words(x: f32[6, 4]) -> (y) {
    words = Cast(Exp(x), to=8)
    y = Neg(Cast(words, to=f32))
}
"""
FIRST = (
    "// step 1, compiled: Mul, NonZero, Exp; x: f32[3, 4] -> a: f32[3, 4], places: i64[2, ?], "
    "aside: f32[3, 4]"
)
SECOND = "// step 2, compiled: Transpose, GatherND, ReduceSum; places: i64[2, ?], a: f32[3, 4] -> s"
PYTHON = (
    "// step 2, in Python: Cast ('words' is string[6, 4]); "
    "words/1: f32[6, 4] -> words: string[6, 4]"
)
ROUNDED = 2e-5
"""Relative error of a sum of numbers that are rounded to six digits."""


@pytest.fixture(autouse=True)
def _unpinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timing must not pin the test process to other cores."""
    monkeypatch.setattr(timing, "pin", lambda threads: None)


def shown(text: str, folder: Path, command: str, *arguments: str) -> str:
    """The output of a command on a model."""
    (folder / "net.pgraph").write_text(text)
    result = CliRunner().invoke(app, [command, str(folder / "net.pgraph"), *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_print_lists_the_steps_of_a_model(tmp_path: Path) -> None:
    lines = shown(HOST, tmp_path, "print").splitlines()
    assert lines[0] == FIRST and lines[1].startswith(SECOND) and lines[2] == "builtin.module {"
    assert PYTHON in shown(STRINGS, tmp_path, "print").splitlines()


@pytest.mark.parametrize(
    ("level", "first", "third"),
    [
        ("graphcore", "graphcore.exp", "graphcore.gather"),
        ("structured", "tile.map", "tile.reduce"),
        ("loops", "tile.launch", "tile.launch"),
        ("program", "tile.call", "tile.call"),
        ("c", "void main_run", "void main_run"),
    ],
)
def test_print_shows_every_segment(level: str, first: str, third: str, tmp_path: Path) -> None:
    text = shown(HOST, tmp_path, "print", "--at", level)
    before, after = text.split(SECOND)
    assert before.startswith(FIRST) and first in before
    assert third in after
    assert "// for places: i64[2, 12], a: f32[3, 4]: the sizes that made-up inputs give" in after
    assert text.count("static inline void popgraph_share(") == (level == "c")


def test_print_runs_nothing_where_all_sizes_are_known(tmp_path: Path) -> None:
    text = shown(STRINGS, tmp_path, "print", "--at", "graphcore")
    assert "graphcore.exp" in text and "graphcore.neg" in text and "made-up" not in text


@pytest.mark.parametrize("threads", ["1", "2"])
def test_profile_times_each_step(threads: str, tmp_path: Path) -> None:
    files = tmp_path / "p.json", tmp_path / "p.html"
    forms = ["--json", str(files[0]), "--html", str(files[1])]
    text = shown(STRINGS, tmp_path, "profile", "--rounds", "2", "--threads", threads, *forms)
    assert "step 2: Cast in Python" in text
    calls = json.loads(files[0].read_text())["calls"]
    assert [call["kind"] for call in calls] == ["segment", "host", "host", "segment"]
    assert calls[1]["microseconds"] > 0 and "net.pgraph:3" in calls[1]["source"]
    assert sum(call["share"] for call in calls) == pytest.approx(1, rel=ROUNDED)
    for call in (calls[0], calls[3]):
        inside = call["bodies"][0]["calls"]
        assert inside and all(inner["kind"] == "kernel" for inner in inside)
        for part in ("microseconds", "share"):
            whole = pytest.approx(call[part], rel=ROUNDED)
            assert sum(inner[part] for inner in inside) == whole
    assert "Cast in Python" in files[1].read_text()


def test_steps_of_strings_cannot_be_profiled(tmp_path: Path) -> None:
    text = "opset 20\ngraph g(x: string[3]) -> y {\n    y = StringConcat(x, x)\n}\n"
    (tmp_path / "net.pgraph").write_text(text)
    result = CliRunner().invoke(app, ["profile", str(tmp_path / "net.pgraph")])
    assert result.exit_code == 1
    assert "input 'x' is string[3]: only numeric tensors can be generated" in result.output


def test_bench_times_models_with_host_steps(tmp_path: Path) -> None:
    short = ("--seconds", "0", "--repeats", "2", "--format", "json")
    found = json.loads(shown(HOST, tmp_path, "bench", *short))
    assert found["rows"][0]["best_ms"] > 0
    assert found["bytes_moved"] >= 4 * 4 * 12, "what the kernels of both segments touch"
    (tmp_path / "net.pgraph").write_text(HOST)
    result = CliRunner().invoke(app, ["bench", str(tmp_path / "net.pgraph"), "--accuracy"])
    assert result.exit_code == 1 and "leave out --accuracy" in result.output


@pytest.mark.parametrize("command", ["schedules", "tune", "bisect", "emit", "export"])
def test_models_without_lower_levels_are_refused(command: str, tmp_path: Path) -> None:
    (tmp_path / "net.pgraph").write_text(HOST)
    more = ["-o", str(tmp_path / "out")] if command in ("emit", "export") else []
    result = CliRunner().invoke(app, [command, str(tmp_path / "net.pgraph"), *more])
    assert result.exit_code == 1
    assert "the output size of NonZero depends on data: this model" in result.output
    assert "at: node 'places' (NonZero)" in result.output


def test_ops_lists_host_operators() -> None:
    result = CliRunner().invoke(app, ["ops", "stringconcat"])
    assert result.output.startswith("StringConcat") and "host step" in result.output
    result = CliRunner().invoke(app, ["ops", "nonzero"])
    assert result.output.startswith("NonZero") and "up to a bound" in result.output


def test_opt_refuses_models_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "net.pgraph").write_text(HOST)
    result = CliRunner().invoke(app, ["opt", str(tmp_path / "net.pgraph")])
    assert result.exit_code == 1 and "this is a model, not IR text" in result.output


def test_print_shows_models_that_cannot_be_trained(tmp_path: Path) -> None:
    section = "train (labels: i32[3]) {\n  loss = nll(Softmax(aside), labels)\n"
    weighted = HOST.replace("Exp(x)", "Exp(x) * w").replace(
        "    a =", "    weight w: f32[4] = ones\n    a ="
    )
    text = f"{weighted}{section}  optimizer = SGD(0.1)\n}}\n"
    assert "onnx.NonZero" in shown(text, tmp_path, "print", "--train")
    arguments = ["print", str(tmp_path / "net.pgraph"), "--train", "--at", "graphcore"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "output 'places' has a data-dependent size" in result.output
