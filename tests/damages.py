"""Ways to damage a file, for tests of error handling."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def _holding(change: Callable[[bytes], bytes]) -> Callable[[Path], bytes]:
    """Replaces the file, so that existing mappings keep the old one; returns the new content."""

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
"""Functions that damage a file, by name."""
