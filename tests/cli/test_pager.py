"""Tests that long texts are shown in a pager on a terminal, and unchanged elsewhere."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

CODE = "from popgraph.cli import main; main()"


def on_terminal(*arguments: str, **settings: str) -> str:
    """The output of a command on a terminal of ten lines."""
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
        except OSError:  # Linux raises at the end of a pty.
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
def test_without_a_pager_the_whole_text_is_printed(settings: dict[str, str]) -> None:
    shown = on_terminal("passes", **{"PAGER": "sed s/^/|/", **settings})
    assert "spread-replicas" in shown
    assert "|" not in shown.splitlines()[0]


def test_files_get_texts_without_a_pager() -> None:
    result = subprocess.run(
        [sys.executable, "-c", CODE, "passes"],
        capture_output=True,
        text=True,
        env={**os.environ, "PAGER": "sed s/^/|/", "LINES": "5"},
    )
    assert result.returncode == 0, result.stderr
    assert "spread-replicas" in result.stdout
    assert "|" not in result.stdout
