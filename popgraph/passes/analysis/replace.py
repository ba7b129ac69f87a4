"""Replacing one operation by another: uses, names and locations move over."""

from __future__ import annotations

from xdsl.dialects.builtin import UnknownLoc
from xdsl.ir import Operation
from xdsl.rewriter import InsertPoint, Rewriter


def replace_op(old: Operation, new: Operation) -> None:
    """Inserts `new` where `old` stands; it takes over the uses, names and location."""
    if isinstance(new.location, UnknownLoc):
        new.location = old.location
    Rewriter.insert_op(new, InsertPoint.before(old))
    for before, after in zip(old.results, new.results, strict=True):
        after.name_hint = before.name_hint
        before.replace_all_uses_with(after)
    old.detach()
    old.erase()


def located(new: Operation, *sources: Operation) -> None:
    """Gives `new` the first location that is known."""
    known = [op.location for op in sources if not isinstance(op.location, UnknownLoc)]
    if known:
        new.location = known[0]
