"""Concise binary object representation (RFC 8949): an encoder for JSON values."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from popgraph.support.errors import PopgraphError

_NEGATIVE, _TEXT, _LIST, _MAP = 1, 3, 4, 5
"""Major types, stored in the upper three bits of an item's first byte."""

_SIMPLE = {False: b"\xf4", True: b"\xf5", None: b"\xf6"}

_WIDTHS = ((24, 1, ">B"), (25, 2, ">H"), (26, 4, ">I"), (27, 8, ">Q"))
"""(additional information, bytes, struct format) of a number that follows the head."""


def to_cbor(value: object) -> bytes:
    """Encodes numbers, strings, booleans, None, lists and dicts of them."""
    if value is None or isinstance(value, bool):
        return _SIMPLE[value]
    if isinstance(value, int):
        return _head(0, value) if value >= 0 else _head(_NEGATIVE, -1 - value)
    if isinstance(value, float):
        return b"\xfb" + struct.pack(">d", value)
    if isinstance(value, str):
        encoded = value.encode()
        return _head(_TEXT, len(encoded)) + encoded
    if isinstance(value, Mapping):
        pairs = (to_cbor(key) + to_cbor(one) for key, one in value.items())
        return _head(_MAP, len(value)) + b"".join(pairs)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return _head(_LIST, len(value)) + b"".join(map(to_cbor, value))
    raise PopgraphError(
        f"{type(value).__name__} cannot be encoded in CBOR",
        hint="use numbers, strings, bools, None, lists and dictionaries",
    )


def _head(kind: int, number: int) -> bytes:
    """The head of an item: major type and number or length, in the shortest form."""
    if number < 24:
        return bytes([kind << 5 | number])
    for mark, width, form in _WIDTHS:
        if number < 1 << 8 * width:
            return bytes([kind << 5 | mark]) + struct.pack(form, number)
    raise PopgraphError(f"{number} does not fit 64 bits", hint="CBOR integers have at most 64 bits")
