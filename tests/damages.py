"""Ways to damage a file, for tests that must survive them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def _holding(change: Callable[[bytes], bytes]) -> Callable[[Path], bytes]:
    """Puts another file in place, so that who has mapped this one keeps it; returns what it has."""

    def damage(path: Path) -> bytes:
        content = change(path.read_bytes())
        path.unlink()
        path.write_bytes(content)
        return content

    return damage


def _flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0x10]) + content[middle + 1 :]


def _folder(path: Path) -> bytes:
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("something")
    return b""


DAMAGES: dict[str, Callable[[Path], bytes]] = {
    "empty": _holding(lambda content: b""),
    "half": _holding(lambda content: content[: len(content) // 2]),
    "junk": _holding(lambda content: b"junk " * 100),
    "flipped": _holding(_flipped),
    "folder": _folder,
}
"""By what happened to the file."""
