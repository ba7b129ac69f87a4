"""Construction of operations that stand nowhere yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from xdsl.builder import Builder, ImplicitBuilder, InsertOpInvT
from xdsl.ir import Block
from xdsl.rewriter import InsertPoint


class _Nowhere(Builder):
    """A builder that inserts nothing."""

    def insert(self, op: InsertOpInvT, insertion_point: InsertPoint | None = None) -> InsertOpInvT:
        return op


@contextmanager
def building_nothing() -> Iterator[None]:
    """What is constructed inside stands nowhere until it is added, whatever is built around it."""
    with ImplicitBuilder(_Nowhere(InsertPoint.at_end(Block()))):
        yield
