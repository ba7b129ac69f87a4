"""
Kills writers of files at each of their lines: `python -m tests.killed_writers check_file FOLDER`.

A process of the tests is too large for this: each of its hundreds of forks would take 0.1 s.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from popgraph.support import writing
from popgraph.support.writing import write_file, write_pair

OLD, NEW = b"what stood there " * 1000, b"what is written now " * 1000


def killed_at(step: int, write: Callable[[], object]) -> bool:
    """Runs `write` in a child that is killed at a line; whether it was killed before the end."""
    child = os.fork()
    if child == 0:
        left = step

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal left
            if frame.f_code.co_filename not in (writing.__file__, __file__):
                return None
            left -= event == "line"
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        write()
        os._exit(0)
    return os.waitpid(child, 0)[1] == signal.SIGKILL


def kills(write: Callable[[], object]) -> Iterator[int]:
    """Kills a writer at its first line, the next one at its second line, until one completes."""
    step = 0
    while killed_at(step, write):
        yield step
        step += 1
    assert step > 20, "the writer was watched"


def parts(content: bytes) -> Iterator[bytes]:
    """The content in chunks, so that a writer can be killed between them."""
    for start in range(0, len(content), 9000):
        yield content[start : start + 9000]


def check_file(folder: Path) -> None:
    """The file is the old one or the new one."""
    file = folder / "file"
    found = set()
    file.write_bytes(OLD)
    for _ in kills(lambda: write_file(file, parts(NEW))):
        found.add(file.read_bytes())
        if file.read_bytes() == NEW:
            file.write_bytes(OLD)
    assert found == {OLD, NEW} and file.read_bytes() == NEW
    assert [path.name for path in folder.iterdir()] == ["file"], "the next write removes the rest"


def check_pair(folder: Path) -> None:
    """The first file names the second one, whose content identifies its writer."""
    first, second = folder / "model.txt", folder / "model.bin"

    def write(content: bytes) -> None:
        naming = lambda name: [name.encode() + b" has " + content[:20]]  # noqa: E731
        write_pair(first, naming, second, lambda: parts(content))

    write(OLD)
    seen = set()
    for _ in kills(lambda: write(NEW)):
        name, begin = first.read_bytes().split(b" has ")
        content = (folder / name.decode()).read_bytes()
        assert content in (OLD, NEW) and content[:20] == begin
        seen.add(content)
    assert seen == {OLD, NEW}
    write(NEW)
    assert first.read_bytes() == b"model.bin has " + NEW[:20] and second.read_bytes() == NEW


if __name__ == "__main__":
    {"check_file": check_file, "check_pair": check_pair}[sys.argv[1]](Path(sys.argv[2]))
