"""Tests that Ctrl-C ends the process where an exception would be lost."""

from __future__ import annotations

import signal
import subprocess
import sys

CODE = """
import os, signal
from popgraph.support.signals import terminating_on_sigint
signal.signal(signal.SIGINT, {before})  # in the background, it may be ignored
with terminating_on_sigint():
    {inside}
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print("heard")
"""
KILL = "os.kill(os.getpid(), signal.SIGINT)"


def run(inside: str, before: str = "signal.default_int_handler") -> tuple[int, str]:
    code = CODE.format(inside=inside, before=before)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_sigint_ends_a_callback_and_raises_after_it() -> None:
    assert run(KILL) == (-signal.SIGINT, "")
    assert run("pass") == (0, "heard\n")


def test_custom_signal_handlers_are_kept() -> None:
    mine = "lambda *_: print('mine')"
    assert run(KILL, mine) == (0, "mine\nmine\n")
