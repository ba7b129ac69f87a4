"""Tests displays of a running training: curves, the terminal, the page."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import popgraph
from popgraph.cli import app
from popgraph.cli.training_screen import Picture
from popgraph.support.pace import RateLimit
from popgraph.training.history import History
from popgraph.viewer.training_page import NAME, TrainingPage

LINEAR = """
graph linear(x: f32[N, 4]) -> (y: f32[N, 3]) {
    weight w: f32[4, 3] = glorot_uniform(seed=1)
    y = x @ w
}
"""
RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 4)).astype(np.float32)
CLASSES = (X @ RNG.normal(size=(4, 3))).argmax(1)
BRAILLE = re.compile("[\u2801-\u28ff]")


def train(*callbacks: popgraph.Callback, **settings: Any) -> popgraph.Trainer:
    chosen = {"epochs": 3, "batch": 16, "validation": 0.25, **settings}
    return popgraph.train(
        LINEAR, (X, CLASSES), "cross_entropy", "SGD(0.1)", callbacks=callbacks, **chosen
    )


def test_a_history_has_a_chart_for_each_number() -> None:
    history = train(metrics=["accuracy"]).history
    loss, accuracy = history.charts()
    assert [curve.name for curve in loss.curves] == ["steps", "epochs", "held-out data"]
    assert [len(curve.points) for curve in loss.curves] == [9, 3, 3]
    assert loss.curves[2].points[-1] == (9, history["val_loss"][-1])
    assert [curve.name for curve in accuracy.curves] == ["epochs", "held-out data"]
    assert history._repr_html_().count("<svg") == 2


def test_a_learning_rate_is_drawn_if_it_changes() -> None:
    moved = train(schedule=lambda step: 0.1 / (1 + step))
    assert [chart.title for chart in moved.history.charts()] == ["loss", "learning_rate"]


def test_curves_are_printed_where_there_is_no_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    train(popgraph.Curves())
    said = capsys.readouterr().out
    assert "loss" in said and BRAILLE.search(said) and "held-out data" in said


def test_a_notebook_updates_its_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    handle = SimpleNamespace(update=lambda history: shown.append(history._repr_html_()))

    def display(history: History, display_id: bool) -> Any:
        handle.update(history)
        return handle

    shell = SimpleNamespace(kernel=object())
    ipython = SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    train(popgraph.Curves())
    assert len(shown) >= 3, "at its start, in its first step, and at its end"
    assert "<svg" not in shown[0] and "<svg" in shown[-1]
    assert shown[-1].count("<tr>") == 4


def test_a_pace_limits_its_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    pace = RateLimit(1.0, fraction=0.1)
    assert pace.is_due()
    with pace.measured():
        now[0] += 0.5
    now[0] += 4.9
    assert not pace.is_due(), "half a second is a tenth of five"
    now[0] += 0.2
    assert pace.is_due()


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "linear.pgraph").write_text(LINEAR)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "labels.npy", CLASSES)
    found = ["train", str(tmp_path / "linear.pgraph"), f"x={tmp_path / 'x.npy'}"]
    found += [f"labels={tmp_path / 'labels.npy'}", "--loss", "cross_entropy"]
    return [*found, "--optimizer", "SGD(0.1)", "--validation", "0.25", "--epochs", "3"]


def test_the_command_draws_curves_at_the_end_in_a_pipe(files: list[str]) -> None:
    result = CliRunner().invoke(app, [*files, "--curves"])
    assert result.exit_code == 0, result.output
    assert result.output.index("epoch 3/3") < result.output.index("● held-out data")


def on_a_terminal(*arguments: str) -> str:
    """The output of a command on a terminal, after checking that it succeeded."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "popgraph", *arguments]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(command, stderr=theirs, stdout=theirs, env=environment) as run:
        os.close(theirs)
        found = b""
        while True:
            try:
                found += os.read(ours, 65536)
            except OSError:  # Linux raises when the last writer has closed the pty
                break
    os.close(ours)
    assert run.returncode == 0, found.decode()
    return found.decode()


def test_the_command_draws_curves_on_a_terminal_while_they_grow(files: list[str]) -> None:
    said = on_a_terminal(*files, "--curves")
    bar = said.index("epoch 1/3  loss")
    assert BRAILLE.search(said), "the curves"
    assert bar < said.rindex("● held-out data")


def test_a_loss_may_have_any_name(files: list[str], tmp_path: Path) -> None:
    """A loss of any name is drawn on the terminal and monitored by default."""
    costly = LINEAR.replace("-> (y: f32[N, 3])", "-> (y: f32[N, 3], cost)")
    costly = costly.replace("y = x @ w", "y = x @ w\n    cost = ReduceMean(y * y, keepdims=0)")
    (tmp_path / "linear.pgraph").write_text(costly)
    arguments = [one for one in files if not one.startswith("labels=")]
    arguments[arguments.index("cross_entropy")] = "cost"
    said = on_a_terminal(*arguments, "--curves", "--patience", "2")
    assert "epoch 1/3  cost" in said and "val_cost" in said


def test_curves_have_colours_and_fit_the_terminal() -> None:
    out = io.StringIO()
    console = Console(file=out, width=40, force_terminal=True, color_system="standard")
    console.print(Picture(train().history))
    lines = out.getvalue().splitlines()
    assert "\x1b[34m" in out.getvalue() and "\x1b[33m" in out.getvalue()
    assert max(len(re.sub(r"\x1b\[\d*m", "", line)) for line in lines) <= 40


def test_layer_statistics_equal_a_check_on_the_last_batch() -> None:
    trained = train(validation=None, batch=64, shuffle=False)
    assert trained.layers() == trained.check((X, CLASSES), batch=64).layers
    with pytest.raises(popgraph.PopgraphError, match="no step has run yet"):
        popgraph.Trainer(LINEAR, "cross_entropy", "SGD(0.1)").layers()


def test_watching_gradients_changes_no_bit(tmp_path: Path) -> None:
    dropped = LINEAR.replace("y = x @ w", "y = Dropout(x, 0.5) @ w")
    settings: dict[str, Any] = {"epochs": 4, "batch": 8}
    arguments = (dropped, (X, CLASSES), "cross_entropy", "Adam(0.05)")
    seen = popgraph.train(*arguments, callbacks=[TrainingPage(tmp_path / "page.html")], **settings)
    alone = popgraph.train(*arguments, **settings)
    assert seen.history.steps == alone.history.steps
    np.testing.assert_array_equal(seen.weights()["w"], alone.weights()["w"])


def test_a_report_holds_the_training_and_the_trained_weights(
    files: list[str], tmp_path: Path
) -> None:
    report = tmp_path / "report.html"
    result = CliRunner().invoke(app, [*files, "--report", str(report), "--metric", "accuracy"])
    assert result.exit_code == 0, result.output
    assert str(report) in result.output
    found = re.findall(r'id="part-(\w+)">(.*?)</script>', report.read_text(), re.DOTALL)
    parts = {name: json.loads(held) for name, held in found}
    training = parts[NAME]
    assert not training["runs"] and training["done"] == training["planned"] == 6
    assert len(training["charts"]) == 2 and len(training["epochs"]) == 3
    assert [layer["name"] for layer in training["layers"]] == ["w"]
    assert training["facts"]["optimizer"].startswith("sgd")
    assert parts["lowered"]["kernels"], "the step is there as C"
    before = popgraph.view(LINEAR).document.part("weights")["weights"]["w"]["norm"]
    assert parts["weights"]["weights"]["w"]["norm"] != before


def test_a_report_of_nothing_is_not_written(tmp_path: Path) -> None:
    """A training that is resumed at its end runs no step, so there is no report."""
    notes: list[str] = []
    page = TrainingPage(tmp_path / "page.html", told=notes.append)
    settings: dict[str, Any] = {"checkpoint": tmp_path / "run.ckpt", "resume": True}
    train(**settings)
    train(page, **settings)
    assert notes == ["no step has run: there is nothing to show of the training"]
    assert not (tmp_path / "page.html").exists()


def test_the_page_is_served_while_the_training_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    told: list[str] = []
    seen: list[dict[str, Any]] = []

    class Reader(popgraph.Callback):
        def on_epoch(self, trainer: Any, row: Any) -> None:
            with urllib.request.urlopen(f"{opened[0]}part/{NAME}", timeout=60) as got:
                seen.append(json.load(got))

    train(TrainingPage(browse=True, told=told.append), Reader())
    assert opened[0] in told[0]
    assert [one["done"] for one in seen] == [3, 6, 9] and all(one["runs"] for one in seen)
    assert len(seen[-1]["epochs"]) == 3


def test_long_trainings_show_their_last_epochs() -> None:
    page = TrainingPage()
    rows = [{"epoch": at, "step": at, "loss": 1.0} for at in range(1, 500)]
    trainer: Any = SimpleNamespace(
        history=History(rows, rows), stopped="", planned=500, facts={"optimizer": "sgd"}
    )
    found = page.part(trainer)
    assert found["epochs"][-1][0] == "499" and len(found["epochs"]) == 100
    assert found["left_out"] == 399
