"""Steps of a page of the docs between its blocks of Python, run in the process of these blocks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

COMMAND = re.compile(r"^\$ ((?:POPGRAPH_\w+=\S+ )*popgraph .*)$", re.MULTILINE)
FUNCTION = f'popgraph() {{ "{sys.executable}" -m popgraph "$@"; }}; '
"""A shell function that runs the command of this Python."""


def save(text: str, following: str) -> None:
    """Saves a `.pgraph` text; its errors are the `following` text of the page, if this is one."""
    path = _saved(text, r"# (\S+\.pgraph)")
    mistakes = what_is_wrong(path)
    shown = following if following.startswith("error: ") else ""
    assert mistakes == shown, f"{path.name}: {mistakes}"


def run_script(text: str) -> None:
    """Saves a script for Node, and runs it."""
    _run(["node", _saved(text, r"// (\S+\.mjs)").name])


def run_commands(console: str) -> None:
    """Runs each command of a console in a shell; it must succeed."""
    for command in COMMAND.findall(console):
        _run(["bash", "-eo", "pipefail", "-c", FUNCTION + command])


def _saved(text: str, first_line: str) -> Path:
    name = re.match(first_line, text)
    assert name, f"the first line of a block names its file: {text.splitlines()[0]}"
    path = Path(name[1]).absolute()
    path.write_text(text)
    return path


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"


def what_is_wrong(path: Path) -> str:
    """The errors of a text in the form of the command, or an empty text; warnings fail."""
    from popgraph.builder.pgraph import load
    from popgraph.support.errors import ErrorGroup, PopgraphError

    try:
        warnings = load(path).warnings
    except PopgraphError as error:
        errors = error.errors if isinstance(error, ErrorGroup) else (error,)
        shown = "\n\n".join(f"error: {one}" for one in errors)
        return shown.replace(f"{path.parent}/", "")
    assert not warnings, f"{path.name}: {warnings[0]}"
    return ""
