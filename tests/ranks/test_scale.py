"""Tests the scaling model: its arithmetic by hand, and the report of `popgraph scale`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from popgraph.cli import app
from popgraph.measure.scale import Network, Span, Step, efficiency_chart, predictions
from popgraph.support.charts.svg import svg

MEGABYTE = 10**6
FAST = Network(bandwidth=1e9, latency=0.0)


def test_an_all_reduce_moves_nearly_twice_its_bytes() -> None:
    assert FAST.all_reduce(MEGABYTE, 1) == 0
    assert FAST.all_reduce(MEGABYTE, 2) == pytest.approx(1e-3)
    assert FAST.all_reduce(MEGABYTE, 4) == pytest.approx(1.5e-3)
    adding = Network(1e9, 0.0, addition=5e8)
    assert adding.all_reduce(MEGABYTE, 4) == pytest.approx(1.5e-3 + 0.75e6 / 5e8)


def test_short_all_reduces_take_two_rounds_a_halving() -> None:
    slow = Network(bandwidth=1e12, latency=1e-3)
    assert slow.all_reduce(8, 2) == pytest.approx(2e-3, rel=1e-3)
    assert slow.all_reduce(8, 1024) == pytest.approx(20e-3, rel=1e-3)


def test_messages_overlap_with_computation() -> None:
    """A message of 2 ms, sent after 5 ms, is hidden by the 3 ms of computation that follow."""
    size = round(2e-3 * 1e9 / 1.5)
    step = Step(10e-3, (Span(5e-3, size), Span(3e-3)), 2e-3)
    assert step.seconds(FAST, 4) == pytest.approx(10e-3)
    (found,) = (one for one in predictions(step, FAST, 4) if one.ranks == 4)
    assert (found.efficiency, found.hidden) == pytest.approx((1.0, 1.0))


def test_messages_are_sent_one_at_a_time() -> None:
    size = round(4e-3 * 1e9 / 1.5)
    step = Step(6e-3, (Span(1e-3, size), Span(1e-3, size), Span(1e-3), Span(1e-3)), 2e-3)
    # Sent at 1 and 2 ms, received at 5 and 9 ms: 1 ms of work follows the first, 2 ms the second.
    assert step.seconds(FAST, 4) == pytest.approx(11e-3)
    found = predictions(step, FAST, 4)[-1]
    assert found.efficiency == pytest.approx(6 / 11)
    assert found.communication == pytest.approx(8e-3)
    assert found.hidden == pytest.approx(1 - 5 / 8)


def test_predicted_ranks_are_powers_of_two_and_the_limit() -> None:
    step = Step(1e-3, (Span(1e-3, 8), Span(0.0)), 0.0)
    found = predictions(step, FAST, 12)
    assert [one.ranks for one in found] == [1, 2, 4, 8, 12]
    assert found[0].efficiency == 1
    assert "<title>here 100 at 0</title>" in svg(efficiency_chart("all", {"here": found}))


TEXT = """
opset 21

graph net(x: f32[N, 16]) -> (y: f32[N, 4]) {
    weight a: f32[16, 32] = glorot_uniform(seed=1)
    weight b: f32[32, 4] = glorot_uniform(seed=2)
    y = Softmax(Relu(x @ a) @ b, axis=-1)
}

train (labels: i32[N]) {
    loss = nll(y, labels)
    optimizer = SGD(learning_rate=0.1, momentum=0.9)
}
"""


def test_the_scale_command(tmp_path: Path) -> None:
    model, results, chart = (tmp_path / name for name in ("net.pgraph", "scale.json", "scale.svg"))
    model.write_text(TEXT)
    arguments = ["scale", str(model), "--dim", "N=4", "--ranks", "8", "--bucket", "128"]
    arguments += ["--bandwidth", "10G,100G", "--json", str(results), "--svg", str(chart)]
    done = CliRunner().invoke(app, [*arguments, "--rounds", "1"])
    assert done.exit_code == 0, done.output
    assert "sends 2 messages: 512 bytes, 2.0 kB" in done.output
    assert "at 10Gbit/s" in done.output and "at 100Gbit/s" in done.output
    found = json.loads(results.read_text())
    slow, fast = (found["predictions"][f"{name}bit/s"] for name in ("10G", "100G"))
    assert [row["ranks"] for row in slow] == [1, 2, 4, 8]
    assert all(one["seconds"] >= other["seconds"] for one, other in zip(slow, fast, strict=True))
    assert chart.read_text().startswith("<svg")


@pytest.mark.parametrize("option", ["--bandwidth", "--latency", "--bucket"])
def test_scale_options_that_are_no_numbers_are_refused(option: str, tmp_path: Path) -> None:
    model = tmp_path / "net.pgraph"
    model.write_text(TEXT)
    done = CliRunner().invoke(app, ["scale", str(model), option, "fast"])
    assert done.exit_code == 2
    assert "'fast' is not one of" in done.output
