"""
Notes in locations: observers of passes may append texts to the name of an operation.

Passes read names only and copy locations whole. An operation that a rewrite absorbs passes its
notes on to the result.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from xdsl.dialects.builtin import LocationAttr, NameLoc, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue

from popgraph.dialects.graphcore.base import GraphcoreOp
from popgraph.dialects.locations import GRADIENT as GRADIENT
from popgraph.dialects.locations import notes as notes

NAMELESS = StringAttr("")


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
