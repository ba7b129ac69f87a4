"""Exchanges encoded as integers, which generated C passes to the process."""

from __future__ import annotations

from popgraph.support import dtypes
from popgraph.support.dtypes import DType
from popgraph.support.ranks.communicator import COMBINED_BY, KINDS, Exchange

_COMBINED = tuple(COMBINED_BY)
_ELEMENTS = tuple(dtypes.BY_NAME)
_BASES = (len(KINDS), len(_COMBINED), len(_ELEMENTS), 2**24)


def exchange_code(exchange: Exchange, dtype: DType) -> int:
    """Encodes an exchange and its element type; strides are below 2^24."""
    digits = (
        KINDS.index(exchange.kind),
        _COMBINED.index(exchange.combine),
        _ELEMENTS.index(dtype.name),
        exchange.stride,
    )
    code = exchange.size
    for digit, base in zip(reversed(digits), reversed(_BASES), strict=True):
        code = code * base + digit
    return code


def exchange_of(code: int) -> tuple[Exchange, DType]:
    """Decodes an exchange and its element type."""
    digits = []
    for base in _BASES:
        code, digit = divmod(code, base)
        digits.append(digit)
    kind, combine, element, stride = digits
    exchange = Exchange(KINDS[kind], stride, code, _COMBINED[combine])
    return exchange, dtypes.BY_NAME[_ELEMENTS[element]]
