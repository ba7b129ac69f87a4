"""Reads tables of a flatbuffer, the format of onnxruntime-training's checkpoints."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from popgraph.support.reading import Unreadable


@dataclass(frozen=True)
class Table:
    """
    A table at a position of a buffer; fields have the numbers of the schema, from 0.

    An offset out of the buffer is Unreadable, or an error of `struct`; absent fields are None.
    """

    content: bytes
    position: int

    @staticmethod
    def root(content: bytes) -> Table:
        """The root table."""
        return Table(content, 0)._at(0)

    def number(self, field: int, kind: str) -> Any:
        """A number; `kind` is its letter in `struct`."""
        at = self._field(field)
        return None if at is None else self._read(kind, at)

    def table(self, field: int) -> Table | None:
        """A table."""
        at = self._field(field)
        return None if at is None else self._at(at)

    def tables(self, field: int) -> Iterator[Table]:
        """The tables of a vector."""
        start, count = self._vector(field, 4)
        for number in range(count):
            yield self._at(start + 4 * number)

    def numbers(self, field: int, kind: str) -> tuple[Any, ...]:
        """The numbers of a vector."""
        start, count = self._vector(field, struct.calcsize(kind))
        return struct.unpack_from(f"<{count}{kind}", self.content, start)

    def data(self, field: int) -> bytes:
        """The bytes of a vector."""
        start, count = self._vector(field, 1)
        return self.content[start : start + count]

    def text(self, field: int) -> str:
        """A string."""
        return self.data(field).decode()

    def _field(self, field: int) -> int | None:
        """The position of a field, by the table's list of fields."""
        listed = self.position - self._read("i", self.position)
        entry = 4 + 2 * field
        if entry >= self._read("H", listed):
            return None
        offset = self._read("H", listed + entry)
        return self.position + offset if offset else None

    def _vector(self, field: int, size: int) -> tuple[int, int]:
        """The position of the first element, and the number of elements of `size` bytes."""
        at = self._field(field)
        if at is None:
            return 0, 0
        start = at + self._read("I", at)
        count = self._read("I", start)
        if start + 4 + count * size > len(self.content):
            raise Unreadable("it is damaged")
        return start + 4, count

    def _at(self, position: int) -> Table:
        """The table that an offset at this position points to."""
        return Table(self.content, position + self._read("I", position))

    def _read(self, kind: str, position: int) -> Any:
        if position < 0:
            raise Unreadable("it is damaged")
        return struct.unpack_from(f"<{kind}", self.content, position)[0]
