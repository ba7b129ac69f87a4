"""Tests `popgraph profile`: kernels, source names, memory, page formats."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from popgraph.backends.c.run.profile import Profile
from popgraph.cli import app, models
from popgraph.cli.options import options
from popgraph.compiler import compile, load, lower
from popgraph.measure import timing
from popgraph.passes.onnx.infer_shapes import specialise

EXAMPLES = Path(__file__).parents[2] / "examples"
LENET = str(EXAMPLES / "lenet.pgraph")


@pytest.fixture(autouse=True)
def _unpinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests stay on the cores that they are on."""
    monkeypatch.setattr(timing, "pin", lambda threads: None)


class Page(HTMLParser):
    """What a page holds: the tags, and whatever it would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]


def test_all_three_forms_tell_the_same(tmp_path: Path) -> None:
    files = tmp_path / "p.json", tmp_path / "p.html"
    arguments = ["--dim", "N=1", "--rounds", "2", "--rows", "3"]
    result = CliRunner().invoke(
        app,
        ["profile", LENET, *arguments, "--json", str(files[0]), "--html", str(files[1])],
    )
    assert result.exit_code == 0, result.output
    found = json.loads(files[0].read_text())
    calls = found["calls"]
    assert sum(call["share"] for call in calls) == pytest.approx(1)
    assert max(call["in_use"] for call in calls) == found["largest_live_set"] <= found["arena"]
    assert any(call["source"] == "image/conv/1  lenet.pgraph:8" for call in calls)
    longest = max(calls, key=lambda call: call["microseconds"])
    assert longest["kernel"] in result.output
    assert f"... and {len(calls) - 3} more calls" in result.output
    page = Page()
    page.feed(files[1].read_text())
    assert not page.fetched and "script" not in page.tags
    assert page.tags.count("svg") == 2 and page.tags.count("tr") == len(calls) + 1


def test_a_step_of_training(tmp_path: Path) -> None:
    """Backward, too: more than twice the products, and more kernels for one line of the text."""
    names = "forward", "step"
    for name, option in zip(names, ([], ["--train"]), strict=True):
        file = str(tmp_path / f"{name}.json")
        arguments = ["profile", LENET, *option, "--dim", "N=2", "--rounds", "1", "--json", file]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
    forward, step = (json.loads((tmp_path / f"{name}.json").read_text()) for name in names)
    done = [sum(call["flops"] for call in found["calls"]) for found in (forward, step)]
    assert done[1] > 2 * done[0]
    convolutions = [call for call in step["calls"] if "lenet.pgraph:8" in call["source"]]
    assert len(convolutions) > sum("lenet.pgraph:8" in call["source"] for call in forward["calls"])


def test_a_rate_that_changes_is_told_in_every_step() -> None:
    """The program is the one that `popgraph train` runs."""
    _, _, training = models.opened(EXAMPLES / "vae.pgraph", ["N=2"], train=True)
    assert training is not None and not training.optimizer.learning_rate.constant


UNTRAINED = {
    "net.pgraph": "it has no `train` section",
    "rule.pgraph": "it has no optimizer",
    "net.onnx": "it has no `train` section",
    "nothing.pgraph": "there is no such file",
}


@pytest.mark.parametrize("name", UNTRAINED)
@pytest.mark.parametrize("command", ["print", "profile", "schedules", "tune"])
def test_files_that_do_not_say_how_they_are_trained(
    name: str, command: str, tmp_path: Path
) -> None:
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
    specialise(module, {"x": (2, 1, 28, 28)}, compilation.weights)
    lower(module, compilation, options())
    profile = Profile(module, compilation.weights, threads)
    inputs = timing.random_model_inputs(profile.executable.inputs)
    expected = compile(LENET, threads=threads)(inputs)
    for name, values in profile.executable.run(inputs).items():
        np.testing.assert_array_equal(values, expected[name])
    assert len(profile.times) == len(profile.calls) > 5
    assert profile.total > 0 and all(0 <= time <= profile.total * 10 for time in profile.times)
