"""
Notes in locations: observers of passes may append texts to the name of an operation.

Passes read names only and copy locations whole. An operation that a rewrite absorbs passes its
notes on to the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from xdsl.dialects.builtin import LocationAttr, NameLoc, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue

from popgraph.dialects.graphcore.base import GraphcoreOp

NAMELESS = StringAttr("")

GRADIENT = "gradient"
"""Note on operations that compute a gradient; their name is that of the forward operation."""


def notes(location: Attribute) -> Iterator[str]:
    """The notes in a location."""
    inner = location.location if isinstance(location, NameLoc) else None
    while isinstance(inner, NameLoc):
        yield inner.desc.data
        inner = inner.location


def noted(location: LocationAttr, texts: Iterable[str]) -> LocationAttr:
    """The location with further notes, inserted directly after its name."""
    name, rest = NAMELESS, cast(Attribute, location)
    if isinstance(location, NameLoc):
        name, rest = location.desc, location.location
    for text in reversed(list(texts)):
        rest = NameLoc(StringAttr(text), rest)
    return NameLoc(name, rest)


def absorbed(operands: Iterable[SSAValue]) -> list[Operation]:
    """Operations that a rewrite absorbed: they computed these operands and have no use any more."""
    found: dict[Operation, None] = {}
    waiting = [value.owner for value in operands]
    while waiting:
        op = waiting.pop()
        if not isinstance(op, GraphcoreOp) or op in found:
            continue
        if all(use.operation in found for result in op.results for use in result.uses):
            found[op] = None
            waiting += [value.owner for value in op.operands]
    return list(found)
