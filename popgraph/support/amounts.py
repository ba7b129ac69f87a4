"""Counts and byte sizes as text."""

from __future__ import annotations


def counted(number: int, word: str) -> str:
    """`1 tensor`, `2 tensors`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def bytes_text(count: int) -> str:
    """`268 bytes`, `4.2 kB`, `102.4 MB`."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return counted(count, "byte")
