"""Tests the progress of compilation: a line on a terminal, nothing in a pipe."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest

import popgraph
from popgraph.support import progress
from popgraph.support.progress import CompilingLine, silence, with_listener
from tests import gated_compiler

MLP = Path(__file__).parents[2] / "examples/mlp.pgraph"


def test_listeners_get_passes_and_parts(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("POPGRAPH_CACHE_DIR", str(tmp_path))
    heard = list[str]()
    with with_listener(heard.append):
        popgraph.compile(MLP)(x=np.zeros((3, 64), np.float32))
    said = list(filter(None, heard))
    assert any(one == "pass canonicalize" for one in said)
    *_, last, linking = said
    assert last.startswith("C, ") and last.split()[1] == last.split()[3]
    assert linking.startswith("C, linking, by ")
    assert not heard[-1], "it has ended"
    with with_listener(heard.append), silence():
        popgraph.compile(MLP)(x=np.zeros((4, 64), np.float32))
    assert list(filter(None, heard)) == said


COMMAND = "from popgraph.cli import main; main()"
PYTHON = """
import sys
import numpy as np
import popgraph

popgraph.compile(sys.argv[1])(x=np.zeros((3, 64), np.float32))
"""


def on_a_terminal(folder: Path, script: str, *arguments: str, gate: Path | None = None) -> str:
    """The output of a process whose stderr is a terminal; opens the gate when C is compiled."""
    ours, theirs = pty.openpty()
    shown_at_once = (
        "from popgraph.support import progress; progress.CompilingLine.DELAY_SECONDS = 0\n"
    )
    command = [sys.executable, "-c", shown_at_once + script, *arguments]
    environment = {**os.environ, "POPGRAPH_CACHE_DIR": str(folder / "cache"), "TERM": "xterm"}
    with subprocess.Popen(command, stderr=theirs, stdout=subprocess.PIPE, env=environment) as run:
        os.close(theirs)
        found = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux raises when the last writer has closed the pty.
                break
            if not part:
                break
            found += part
            if gate is not None and b": C, 0 of " in found:
                gate.touch()
    os.close(ours)
    assert run.returncode == 0
    return found.decode()


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file whose existence lets the C compiler continue."""
    yield from gated_compiler.gated(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("script", "arguments"), [(COMMAND, ["run", str(MLP), "--random"]), (PYTHON, [str(MLP)])]
)
def test_a_terminal_shows_a_line_and_clears_it(
    tmp_path: Path, gate: Path, script: str, arguments: list[str]
) -> None:
    """The line appears while the C compiler still waits at the gate."""
    shown = on_a_terminal(tmp_path, script, *arguments, gate=gate)
    assert re.search(r"compiling, \d+ s: C, 1 of \d+ parts, by compiler", shown)
    assert shown.endswith("\r\x1b[K")
    assert not re.search(r"\x1b\[\d*m", shown), "no colours, whatever NO_COLOR says"


def test_a_thread_reports_a_silent_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written, twice = list[str](), Event()

    class Stream:
        def write(self, text: str) -> None:
            written.append(text)
            if len(written) == 2:
                twice.set()

        def flush(self) -> None:
            pass

    monkeypatch.setattr(sys, "stderr", Stream())
    line = CompilingLine()
    monkeypatch.setattr(CompilingLine, "DELAY_SECONDS", 0.001)
    monkeypatch.setattr(CompilingLine, "UPDATE_SECONDS", 0.001)
    line("C, 0 of 12 parts")
    assert twice.wait(gated_compiler.SECONDS)
    line("")
    assert all(text == "\r\x1b[Kcompiling, 0 s: C, 0 of 12 parts" for text in written[:2])
    assert written[-1] == "\r\x1b[K"


def test_background_compilation_shows_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "is_terminal", lambda: True)
    monkeypatch.setattr(CompilingLine, "DELAY_SECONDS", 0.0)
    thread = Thread(target=progress.report, args=("pass a",))
    thread.start()
    thread.join()
    with silence():
        progress.report("pass b")
    assert capsys.readouterr().err == ""


def test_a_pipe_gets_no_line(tmp_path: Path) -> None:
    environment = {**os.environ, "POPGRAPH_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "popgraph", "run", str(MLP), "--random"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and "compiling" not in done.stderr


def test_short_compilation_shows_nothing(capsys) -> None:  # type: ignore[no-untyped-def]
    line = CompilingLine()
    for text in ("pass a", "", "pass b", ""):
        line(text)
    assert capsys.readouterr().err == ""
