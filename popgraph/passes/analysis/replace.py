"""Replaces operations; uses, names and locations are transferred."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects.builtin import UnknownLoc
from xdsl.ir import Operation
from xdsl.rewriter import InsertPoint, Rewriter


def replace_op(old: Operation, new: Operation) -> None:
    """Replaces `old` by `new`, which inherits its uses, names and location."""
    if isinstance(new.location, UnknownLoc):
        new.location = old.location
    Rewriter.insert_op(new, InsertPoint.before(old))
    for before, after in zip(old.results, new.results, strict=True):
        after.name_hint = before.name_hint
        before.replace_all_uses_with(after)
    old.detach()
    old.erase()


def insert_made_for(origin: Operation, *made: Operation, at: InsertPoint | None = None) -> None:
    """Inserts operations before `origin`, or `at` a point, with its location."""
    point = at or InsertPoint.before(origin)
    for op in made:
        op.location = origin.location
        Rewriter.insert_op(op, point)


@contextmanager
def made_for(origin: Operation, at: InsertPoint | None = None) -> Iterator[list[Operation]]:
    """
    Inserts operations constructed in this context before `origin`, or `at` a point.

    They get its location. Afterwards the list contains them, in order.
    """
    point, made = at or InsertPoint.before(origin), list[Operation]()
    end = point.insert_before
    before = point.block.last_op if end is None else end.prev_op
    with ImplicitBuilder(Builder(point)):
        yield made
    made += locate_made(origin, before, point)


def locate_made(origin: Operation, before: Operation | None, point: InsertPoint) -> list[Operation]:
    """Gives operations between `before` (None: the block's start) and a point origin's location."""
    made = list[Operation]()
    op = point.block.first_op if before is None else before.next_op
    while op is not None and op is not point.insert_before:
        op.location = origin.location
        made.append(op)
        op = op.next_op
    return made


def erase_dead(ops: Sequence[Operation]) -> None:
    """Erases operations without used results, last first."""
    for op in reversed(ops):
        if op.results and all(result.first_use is None for result in op.results):
            Rewriter.erase_op(op)


def located(new: Operation, *sources: Operation) -> None:
    """Gives `new` the first known location of the sources."""
    known = [op.location for op in sources if not isinstance(op.location, UnknownLoc)]
    if known:
        new.location = known[0]
