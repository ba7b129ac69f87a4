"""Alternating processes: each is started once, and sleeps while another one is timed."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

POLL_SECONDS = 0.02
END = "end"


class Contestant:
    """One or several processes that work on request, with a common folder."""

    def __init__(
        self, name: str, folder: Path, commands: Sequence[tuple[list[str], dict[str, str]]]
    ) -> None:
        """Starts all commands, and waits until the first rank of them is ready."""
        self.name, self.folder, self._round = name, folder, 0
        folder.mkdir()
        self._running = [
            subprocess.Popen([*command, "--folder", str(folder)], env=environment)
            for command, environment in commands
        ]
        self.ready: dict[str, Any] = self._answer()

    def round(self) -> dict[str, Any]:
        """Runs the next round, and returns the contestant's result."""
        self._round += 1
        (self.folder / f"go-{self._round}").touch()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        answer = self.folder / f"answer-{self._round}"
        while not answer.exists():
            if any(one.poll() is not None for one in self._running):
                self.end()
                raise SystemExit(f"{self.name}: a process ended during a round")
            time.sleep(POLL_SECONDS)
        found: dict[str, Any] = json.loads(answer.read_text())
        return found

    def end(self) -> None:
        (self.folder / END).touch()
        for one in self._running:
            one.wait()


def answer_rounds(
    folder: Path, is_first: bool, ready: dict[str, Any], work: Callable[[], dict[str, Any]]
) -> None:
    """The process of a contestant: works in each round until the end; the first rank answers."""
    number, answer = 0, ready
    while True:
        if is_first:
            unfinished = folder / "unfinished"
            unfinished.write_text(json.dumps(answer))
            unfinished.rename(folder / f"answer-{number}")
        number += 1
        while not (folder / f"go-{number}").exists():
            if (folder / END).exists():
                return
            time.sleep(POLL_SECONDS)
        answer = work()
