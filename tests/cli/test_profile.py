"""Tests `popgraph profile`: kernels, source names, memory, page formats."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from popgraph import zoo
from popgraph.backends.c.run.profile import Profile
from popgraph.cli import app, models
from popgraph.cli.options import options
from popgraph.cli.profile_page import page
from popgraph.compiler import compile, load, lower
from popgraph.measure import timing
from popgraph.measure.chrome_trace import COMPILER, PROGRAM, chrome_trace
from popgraph.measure.profile_report import Body, Call, PassTime, Report, csv_of
from popgraph.passes.onnx.infer_shapes import specialise

EXAMPLES = Path(__file__).parents[2] / "examples"
LENET = str(zoo.lenet.path)


@pytest.fixture(autouse=True)
def _unpinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Profile must not pin the test process to other cores."""
    monkeypatch.setattr(timing, "pin", lambda threads: None)


class Page(HTMLParser):
    """The tags of a page, and the addresses that it would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]


def test_all_formats_have_the_same_numbers(tmp_path: Path) -> None:
    files = [tmp_path / f"p.{kind}" for kind in ("json", "html", "csv", "trace")]
    arguments = ["--dim", "N=1", "--rounds", "2", "--rows", "3"]
    for file in files:
        arguments += [f"--{file.suffix[1:]}", str(file)]
    result = CliRunner().invoke(app, ["profile", LENET, *arguments])
    assert result.exit_code == 0, result.output
    found = json.loads(files[0].read_text())
    calls = found["calls"]
    assert sum(call["share"] for call in calls) == pytest.approx(1, rel=1e-5)
    assert max(call["in_use"] for call in calls) == found["largest_live_set"] <= found["arena"]
    assert any(call["source"] == "features/conv/1  lenet.pgraph:12" for call in calls)
    longest = max(calls, key=lambda call: call["microseconds"])
    assert longest["kernel"] in result.output
    assert f"... and {len(calls) - 3} more calls" in result.output
    rows = list(csv.DictReader(files[2].read_text().splitlines()))
    measured = [(call["kernel"], call["microseconds"]) for call in calls]
    measured += [(one["name"], one["microseconds"]) for one in found["passes"]]
    assert [(row["kernel"], float(row["microseconds"])) for row in rows] == measured
    assert [row["kind"] for row in rows[len(calls) :]] == ["pass"] * len(found["passes"])
    spans = [one for one in json.loads(files[3].read_text())["traceEvents"] if one["ph"] == "X"]
    assert [one["name"] for one in spans if one["pid"] == PROGRAM] == [
        call["kernel"] for call in calls
    ]
    passes = [one["name"] for one in spans if one["pid"] == COMPILER]
    assert passes == [one["name"] for one in found["passes"]] and "plan-memory" in passes
    assert passes[-1] == "C compiler" and all(one["dur"] >= 0 for one in spans)
    page = Page()
    page.feed(files[1].read_text())
    assert not page.fetched and "script" not in page.tags
    assert (
        page.tags.count("svg") == 2
        and page.tags.count("tr") == len(calls) + len(found["passes"]) + 2
    )


def test_a_step_of_training(tmp_path: Path) -> None:
    """A step has more than twice the operations of inference, and more kernels per line."""
    names = "forward", "step"
    for name, option in zip(names, ([], ["--train"]), strict=True):
        file = str(tmp_path / f"{name}.json")
        arguments = ["profile", LENET, *option, "--dim", "N=2", "--rounds", "1", "--json", file]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
    forward, step = (json.loads((tmp_path / f"{name}.json").read_text()) for name in names)
    done = [sum(call["flops"] for call in found["calls"]) for found in (forward, step)]
    assert done[1] > 2 * done[0]
    convolutions = [call for call in step["calls"] if "lenet.pgraph:12" in call["source"]]
    assert len(convolutions) > sum("lenet.pgraph:12" in call["source"] for call in forward["calls"])


def test_a_scheduled_learning_rate_is_an_input_of_the_step() -> None:
    """The learning rate stays an input, as in the program that `popgraph train` runs."""
    _, _, training = models.opened(EXAMPLES / "vae.pgraph", ["N=2"], train=True)
    assert training is not None and not training.task.training.optimizer.learning_rate.constant


UNTRAINED = {
    "net.pgraph": "it has no `train` section",
    "rule.pgraph": "it has no optimizer",
    "net.onnx": "it has no `train` section",
    "nothing.pgraph": "there is no such file",
}


@pytest.mark.parametrize("name", UNTRAINED)
@pytest.mark.parametrize("command", ["print", "profile", "schedules", "tune"])
def test_training_requires_a_train_section(name: str, command: str, tmp_path: Path) -> None:
    text = "opset 21\ngraph net(x: f32[2, 4]) -> (y: f32[2, 4]) {\n  y = Softmax(x, axis=-1)\n}\n"
    (tmp_path / "net.pgraph").write_text(text)
    section = "train (labels: i32[2]) {\n  loss = nll(y, labels)\n}\n"
    (tmp_path / "rule.pgraph").write_text(text + section)
    convert = ["convert", str(tmp_path / "net.pgraph"), str(tmp_path / "net.onnx")]
    assert CliRunner().invoke(app, convert).exit_code == 0
    result = CliRunner().invoke(app, [command, str(tmp_path / name), "--train"])
    assert result.exit_code == 1 and UNTRAINED[name] in result.output


@pytest.mark.parametrize("threads", [1, 2])
def test_a_profiled_program_computes_the_same(threads: int) -> None:
    module, compilation = load(LENET)
    specialise(module, {"image": (2, 1, 28, 28)}, compilation.weights)
    lower(module, compilation, options())
    profile = Profile(module, compilation.weights, threads)
    inputs = timing.random_model_inputs(profile.executable.inputs)
    expected = compile(LENET, threads=threads)(inputs)
    for name, values in profile.executable.run(inputs).items():
        np.testing.assert_array_equal(values, expected[name])
    assert len(profile.times) == len(profile.calls) > 5
    assert profile.total > 0 and all(0 <= time <= profile.total * 10 for time in profile.times)


NEST = """opset 18
graph nest(x: f32[4, 8]) -> (y, z) {
    const w: f32[8, 8] = ones()
    y = Loop(
        50, true, x,
        body=graph outer(i: i64, going: bool, before: f32[4, 8]) -> (on, after) {
            h = Loop(
                5, true, before,
                body=graph inner(j: i64, g: bool, b: f32[4, 8]) -> (g2, a) {
                    g2 = g
                    a = Tanh(b @ w)
                },
            )
            after = If(
                i < 2,
                then_branch=graph early() -> (r) { r = h * x },
                else_branch=graph late() -> (r) { r = Exp(h) - x },
            )
            on = i < 6
        },
    )
    z = Neg(y)
}
"""


def _profiled(tmp_path: Path, *arguments: str) -> tuple[dict[str, Any], str, Page]:
    """The report of `NEST` in all its forms."""
    (tmp_path / "nest.pgraph").write_text(NEST)
    files = tmp_path / "p.json", tmp_path / "p.html"
    forms = ["--json", str(files[0]), "--html", str(files[1])]
    result = CliRunner().invoke(
        app, ["profile", str(tmp_path / "nest.pgraph"), "--rounds", "3", *arguments, *forms]
    )
    assert result.exit_code == 0, result.output
    page = Page()
    page.feed(files[1].read_text())
    return json.loads(files[0].read_text()), result.output, page


def _within(calls: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for call in calls:
        yield call
        for body in call["bodies"]:
            yield from _within(body["calls"])


@pytest.mark.parametrize("threads", ["1", "2"])
def test_loops_and_branches_show_their_bodies(threads: str, tmp_path: Path) -> None:
    found, text, page = _profiled(tmp_path, "--threads", threads)
    outer = next(call for call in found["calls"] if call["kind"] == "loop")
    assert outer["kernel"].endswith(": 7 of at most 50 turns") and outer["count"] == 1
    (turn,) = outer["bodies"]
    assert turn["count"] == 7
    inner = next(call for call in turn["calls"] if call["kind"] == "loop")
    assert inner["count"] == 7 and inner["bodies"][0]["count"] == 35
    assert {call["count"] for call in inner["bodies"][0]["calls"]} == {35}
    branch = next(call for call in turn["calls"] if call["kind"] == "branch")
    assert [body["count"] for body in branch["bodies"]] == [2, 5]
    assert [body["calls"][0]["count"] for body in branch["bodies"]] == [2, 5]
    assert any("nest.pgraph:11" in call["source"] for call in inner["bodies"][0]["calls"])
    lines = [line.rstrip() for line in text.splitlines()]
    assert any(line.endswith("then_0: taken 2 times") for line in lines)
    assert any(line.endswith("else_0: taken 5 times") for line in lines)
    assert text.count("the loop itself") == 2 and text.count("the branch itself") == 1
    passes = len(found["passes"]) + 1
    assert page.tags.count("tr") - passes == sum(1 for line in lines if "  " in line)


def test_times_of_bodies_are_parts_of_their_loop(tmp_path: Path) -> None:
    found, _, _ = _profiled(tmp_path)
    assert sum(call["share"] for call in found["calls"]) == pytest.approx(1)
    for call in _within(found["calls"]):
        inside = [inner for body in call["bodies"] for inner in body["calls"]]
        if inside:
            parts = sum(inner["microseconds"] for inner in inside) + call["own"]
            assert parts == pytest.approx(call["microseconds"], abs=0.05)
            assert call["flops"] == sum(inner["flops"] for inner in inside)
    product = next(c for c in _within(found["calls"]) if "nest.pgraph:11" in c["source"])
    assert product["flops"] >= 35 * 2 * 4 * 8 * 8


def test_only_profiled_programs_read_the_clock(tmp_path: Path) -> None:
    (tmp_path / "nest.pgraph").write_text(NEST)
    printed = CliRunner().invoke(app, ["print", str(tmp_path / "nest.pgraph"), "--at", "c"])
    assert "main_run" in printed.output and "loop_0_run" in printed.output
    program = printed.output.split("void main_prepare")[-1]
    assert "clock" not in program
    assert "trace_" not in printed.output


WHILE = """opset 18
graph net(x: f32[4, 8]) -> y {
    n = Cast(ReduceSum(x * 0, keepdims=0) + TURNS, to=7)
    y = Loop(
        n, true, x,
        body=graph turn(i: i64, going: bool, b: f32[4, 8]) -> (on, next) {
            on = going
            next = Tanh(b) + 1
        },
    )
}
"""


@pytest.mark.parametrize(("turns", "kernels"), [(0, 0), (7, 7)])
def test_data_dependent_iterations_are_counted(turns: int, kernels: int, tmp_path: Path) -> None:
    (tmp_path / "net.pgraph").write_text(WHILE.replace("TURNS", str(turns)))
    file = tmp_path / "p.json"
    arguments = ["profile", str(tmp_path / "net.pgraph"), "--rounds", "2", "--json", str(file)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    loop = next(c for c in json.loads(file.read_text())["calls"] if c["kind"] == "loop")
    assert loop["kernel"].endswith(f": {turns} turns") and loop["count"] == 1
    assert [call["count"] for call in loop["bodies"][0]["calls"]] == [kernels]


def test_a_training_step_draws_labels(tmp_path: Path) -> None:
    """Made-up labels also fit a classifier of two classes."""
    text = """opset 18
graph net(x: f32[4, 8]) -> y {
    weight w: f32[8, 2] = ones()
    y = Softmax(x @ w, axis=-1)
}
train (labels: i32[4]) {
    loss = nll(y, labels)
    optimizer = SGD(0.1)
}
"""
    (tmp_path / "net.pgraph").write_text(text)
    arguments = ["profile", str(tmp_path / "net.pgraph"), "--train", "--rounds", "2"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output


def test_traces_nest_bodies_in_loops() -> None:
    def call(kernel: str, microseconds: float, kind: str = "kernel", *bodies: Body) -> Call:
        inside = sum(one.microseconds for body in bodies for one in body.calls)
        own = microseconds - inside
        return Call(kernel, "x:1", microseconds, 0.5, 3, 4, 100, kind, 2, own, list(bodies))

    loop = call("loop", 10, "loop", Body("turn", 2, [call("a", 3), call("b", 5)]))
    found = Report("net", 1, 14, 100, 100, 0, [call("first", 4), loop], [PassTime("dce", 7)])
    events = chrome_trace(found)["traceEvents"]
    spans = {one["name"]: (one["ts"], one["dur"]) for one in events if one["ph"] == "X"}
    assert spans == {
        "dce": (0, 7),
        "first": (0, 4),
        "loop": (4, 10),
        "a": (4, 3),
        "b": (7, 5),
        "the loop itself": (12, 2),
    }
    assert [one["ts"] for one in events if one["ph"] == "C"] == [0, 4]
    rows = list(csv.DictReader(csv_of(found).splitlines()))
    assert [(row["number"], row["in"]) for row in rows] == [
        ("1", ""),
        ("2", ""),
        ("3", "2"),
        ("4", "2"),
        ("5", ""),
    ]
    assert (rows[-1]["kind"], rows[-1]["kernel"], rows[-1]["microseconds"]) == ("pass", "dce", "7")
    assert "<td>dce</td>" in page(found)


def test_traces_show_a_call_on_each_of_its_threads() -> None:
    def call(kernel: str, chunks: int) -> Call:
        return Call(kernel, "x:1", 4, 0.5, 3, 4, 100, chunks=chunks)

    found = Report("net", 2, 8, 100, 100, 0, [call("alone", 1), call("shared", 14)])
    events = chrome_trace(found)["traceEvents"]
    spans = [(one["name"], one["tid"], one["ts"]) for one in events if one["ph"] == "X"]
    assert spans == [("alone", 1, 0), ("shared", 1, 4), ("shared", 2, 4)]
    names = [one["args"]["name"] for one in events if one["name"] == "thread_name"]
    assert names == ["thread 1", "thread 2"]


def test_popgraph_check_compares_meanings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(
        "popgraph.measure.profile.same_meaning", lambda step, *_: seen.append(step.name)
    )
    monkeypatch.setenv("POPGRAPH_CHECK", "1")
    result = CliRunner().invoke(app, ["profile", LENET, "--dim", "N=1", "--rounds", "1"])
    assert result.exit_code == 0, result.output
    assert {"expand", "plan-memory"} <= set(seen)
