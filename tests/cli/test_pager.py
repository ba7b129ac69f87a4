"""Tests that long texts on a terminal are shown page by page, and anywhere else as they are."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

CODE = "from popgraph.cli import main; main()"


def on_terminal(*arguments: str, **settings: str) -> str:
    """What a terminal of ten lines shows of a command."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "LINES": "10", "NO_COLOR": "1", "TERM": "xterm", **settings}
    shown = b""
    with subprocess.Popen(
        [sys.executable, "-c", CODE, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
    ) as process:
        os.close(theirs)
        try:
            while part := os.read(ours, 1 << 16):
                shown += part
        except OSError:  # the end, as Linux tells it
            pass
        assert process.wait(60) == 0
    os.close(ours)
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    "arguments", [("passes",), ("ops", "--dialect", "tile"), ("ops",)], ids=str
)
def test_a_long_text_is_shown_in_the_pager(arguments: tuple[str, ...]) -> None:
    shown = on_terminal(*arguments, PAGER="sed s/^/|/")
    assert len(shown.splitlines()) > 10
    assert all(line.startswith("|") for line in shown.splitlines())


@pytest.mark.parametrize(
    "settings",
    [{"PAGER": ""}, {"PAGER": "no-such-pager"}, {"TERM": "dumb"}, {"LINES": "1000"}],
    ids=str,
)
def test_nothing_is_lost_without_one(settings: dict[str, str]) -> None:
    shown = on_terminal("passes", **{"PAGER": "sed s/^/|/", **settings})
    assert "spread-replicas" in shown
    assert "|" not in shown.splitlines()[0]


def test_files_get_texts_as_they_are() -> None:
    told = subprocess.run(
        [sys.executable, "-c", CODE, "passes"],
        capture_output=True,
        text=True,
        env={**os.environ, "PAGER": "sed s/^/|/", "LINES": "5"},
    )
    assert told.returncode == 0, told.stderr
    assert "spread-replicas" in told.stdout
    assert "|" not in told.stdout
