"""Construction of operations outside every block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from xdsl.builder import Builder, ImplicitBuilder, InsertOpInvT
from xdsl.ir import Block
from xdsl.rewriter import InsertPoint


class _Detached(Builder):
    def insert(self, op: InsertOpInvT, insertion_point: InsertPoint | None = None) -> InsertOpInvT:
        return op


@contextmanager
def building_detached() -> Iterator[None]:
    """Constructed operations stay detached inside, even under another implicit builder."""
    with ImplicitBuilder(_Detached(InsertPoint.at_end(Block()))):
        yield
