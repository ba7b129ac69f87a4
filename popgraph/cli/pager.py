"""Shows long texts in a pager."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys

import typer


def show(text: str) -> None:
    """
    Prints a text, through `PAGER` (default less) if it is longer than the terminal.

    An empty `PAGER`, `cat` or a dumb terminal prints everything at once.
    """
    words = shlex.split(os.environ.get("PAGER", "less"))
    height = shutil.get_terminal_size().lines
    is_long = text.count("\n") >= height - 1 and sys.stdout.isatty() and sys.stdin.isatty()
    if not is_long or not words or os.environ.get("TERM") == "dumb" or not shutil.which(words[0]):
        typer.echo(text)
        return
    sys.stdout.flush()
    # Defaults for less, unless the user set others: keep colours, and keep the text after exit.
    settings = {"LESS": "RX", **os.environ}
    subprocess.run(words, input=text + "\n", text=True, env=settings, errors="replace", check=False)
