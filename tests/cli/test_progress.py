"""Tests what is shown while a model is compiled: a line on a terminal, nothing in a pipe."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np

import popgraph
from popgraph.cli.report import CompilingLine
from popgraph.support.progress import listening, silence

MLP = Path(__file__).parents[2] / "examples/mlp.pgraph"


def test_a_listener_hears_of_passes_and_of_parts(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("POPGRAPH_CACHE_DIR", str(tmp_path))
    heard = list[str]()
    with listening(heard.append):
        popgraph.compile(MLP)(x=np.zeros((3, 64), np.float32))
    said = list(filter(None, heard))
    assert any(one == "pass canonicalize" for one in said)
    assert said[-1].startswith("C, ") and said[-1].split()[1] == said[-1].split()[3]
    assert not heard[-1], "it has ended"
    with listening(heard.append), silence():
        popgraph.compile(MLP)(x=np.zeros((4, 64), np.float32))
    assert list(filter(None, heard)) == said


def on_a_terminal(folder: Path, *arguments: str) -> str:
    """What a command writes to a terminal that is its error stream."""
    ours, theirs = pty.openpty()
    script = "from popgraph.cli import main, report; report.CompilingLine.DELAY = 0; main()"
    command = [sys.executable, "-c", script, *arguments]
    environment = {**os.environ, "POPGRAPH_CACHE_DIR": str(folder), "TERM": "xterm"}
    with subprocess.Popen(command, stderr=theirs, stdout=subprocess.PIPE, env=environment) as run:
        os.close(theirs)
        found = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux says so when nobody writes any more.
                break
            if not part:
                break
            found += part
    os.close(ours)
    assert run.returncode == 0
    return found.decode()


def test_a_terminal_shows_a_line_and_clears_it(tmp_path: Path) -> None:
    shown = on_a_terminal(tmp_path, "run", str(MLP), "--random")
    assert "s: C, 1 of " in shown
    assert shown.endswith("\r\x1b[K")


def test_a_pipe_gets_no_line(tmp_path: Path) -> None:
    environment = {**os.environ, "POPGRAPH_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "popgraph", "run", str(MLP), "--random"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and "compiling" not in done.stderr


def test_what_is_soon_compiled_shows_nothing(capsys) -> None:  # type: ignore[no-untyped-def]
    line = CompilingLine()
    for text in ("pass a", "", "pass b", ""):
        line(text)
    assert capsys.readouterr().err == ""
