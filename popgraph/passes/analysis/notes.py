"""
Notes in locations: behind the name of an operation, whoever watches the passes may write some.

Passes look at names alone, and copy locations whole. What a rewrite takes in leaves its notes to
what it becomes part of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from xdsl.dialects.builtin import LocationAttr, NameLoc, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue

from popgraph.dialects.graphcore.base import GraphcoreOp

NAMELESS = StringAttr("")

GRADIENT = "gradient"
"""Note on what computes the gradient of an operation; its name is that of the operation."""


def notes(location: Attribute) -> Iterator[str]:
    """The notes on an operation."""
    inner = location.location if isinstance(location, NameLoc) else None
    while isinstance(inner, NameLoc):
        yield inner.desc.data
        inner = inner.location


def noted(location: LocationAttr, texts: Iterable[str]) -> LocationAttr:
    """The location with further notes, the first of them behind its name."""
    name, rest = NAMELESS, cast(Attribute, location)
    if isinstance(location, NameLoc):
        name, rest = location.desc, location.location
    for text in reversed(list(texts)):
        rest = NameLoc(StringAttr(text), rest)
    return NameLoc(name, rest)


def taken_in(operands: Iterable[SSAValue]) -> list[Operation]:
    """The operations that gave these operands of one that is gone, and that nobody reads now."""
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
