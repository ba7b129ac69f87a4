"""Long texts on a terminal, page by page."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys

import typer


def show(text: str) -> None:
    """
    Prints a text; in `PAGER` (else in less) where it is longer than the terminal.

    An empty `PAGER` or `cat` prints everything at once, as does a terminal that can nothing.
    """
    words = shlex.split(os.environ.get("PAGER", "less"))
    height = shutil.get_terminal_size().lines
    is_long = text.count("\n") >= height - 1 and sys.stdout.isatty() and sys.stdin.isatty()
    if not is_long or not words or os.environ.get("TERM") == "dumb" or not shutil.which(words[0]):
        typer.echo(text)
        return
    sys.stdout.flush()
    # What less is told unless the reader told it otherwise: keep colours, and what was shown.
    settings = {"LESS": "RX", **os.environ}
    subprocess.run(words, input=text + "\n", text=True, env=settings, errors="replace", check=False)
