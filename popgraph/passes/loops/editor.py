"""An editor of kernels: keeps operations of a body, and inserts others between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, Operation, SSAValue

from popgraph.dialects.tile.loops.soundness import constant_of
from popgraph.dialects.unchecked import operands_of, refill
from popgraph.passes.structured.to_loops.emit.vectors import lanes_of
from popgraph.passes.structured.to_loops.emit.writer import Level, Writer
from popgraph.support.tuning import Target


class Depths(dict[SSAValue, int]):
    """The levels of values, by number; found when first requested."""

    def __init__(self, levels: Sequence[Level]) -> None:
        super().__init__()
        self._levels = levels

    def __missing__(self, value: SSAValue) -> int:
        owner = value.owner
        block = owner if isinstance(owner, Block) else owner.parent
        found = next(at for at, level in enumerate(self._levels) if level.block is block)
        self[value] = found
        return found


class Editor(Writer):
    """
    Edits the body of a kernel from its first operation to the last.

    New operations are hoisted and shared with kept ones, as if one writer had written both.
    Deferred operations are kept before their first use, or dropped if there is none.
    """

    def __init__(self, block: Block, target: Target) -> None:
        super().__init__(block, target)
        self.depths = Depths(self.levels)
        self._deferred: dict[Operation, int] = {}
        self._dropped: list[Operation] = []

    def close(self) -> None:
        (outermost,) = self.levels
        for op in (*self._dropped, *self._deferred):
            op.drop_all_references()
        # The bounds of unrolled loops have no uses left.
        used = [op for op in outermost.operations if not _is_unused_constant(op)]
        refill(outermost.block, used)

    def keep(self, op: Operation) -> None:
        """Keeps an operation of the innermost level, with its regions."""
        if self._deferred:
            for inner in op.walk() if op.regions else (op,):
                for operand in operands_of(inner):
                    self.need(operand)
        self._place(op, len(self.levels) - 1)

    def defer(self, op: Operation) -> None:
        """Defers a pure operation of the innermost level until an operation uses it."""
        # Emitters write index arithmetic where it is first used: kept early, the same kernel would
        # be other C.
        self._deferred[op] = len(self.levels) - 1

    def drop(self, op: Operation) -> None:
        """Drops an operation, which has no uses in the end."""
        self._dropped.append(op)

    def need(self, value: SSAValue) -> None:
        """Keeps the operation of a value, if it is deferred, after the ones of its operands."""
        op = value.owner
        if op in self._deferred:
            assert isinstance(op, Operation)
            depth = self._deferred.pop(op)
            for operand in operands_of(op):
                self.need(operand)
            self._place(op, depth)

    @contextmanager
    def inside(self, block: Block) -> Iterator[None]:
        """Opens a block of an operation; `insert` keeps the operation after its blocks."""
        self.levels.append(Level(block))
        yield
        level = self.levels.pop()
        refill(block, level.operations)

    def insert(self, op: Operation) -> None:
        """Inserts an operation, new or with edited blocks, at the innermost level."""
        self.levels[-1].operations.append(op)
        for result in op.results:
            self.depths[result] = len(self.levels) - 1

    def _place(self, op: Operation, depth: int) -> None:
        level = self.levels[depth]
        level.operations.append(op)
        for key in _keys(op):
            level.known.setdefault(key, op.results[0])


def _keys(op: Operation) -> tuple[object, ...]:
    """The keys by which a writer finds an operation instead of writing it again."""
    kind = type(op)
    if kind not in _SHARED:
        return ()
    operands = operands_of(op)
    if kind is arith.AddiOp and type(op.results[0].type) is IndexType:
        return ((kind, *operands),)
    if kind is arith.MuliOp and (factor := constant_of(operands[1])) is not None:
        return (((kind, factor), operands[0]),)
    if kind is vector.BroadcastOp:
        return (((kind, lanes_of(op.results[0])), operands[0]),)
    if kind is arith.ConstantOp:
        if type(op.results[0].type) is IndexType:
            return (op.properties["value"], constant_of(op.results[0]))
        return (op.properties["value"],)
    return ()


_SHARED = {arith.AddiOp, arith.MuliOp, vector.BroadcastOp, arith.ConstantOp}


def _is_unused_constant(op: Operation) -> bool:
    return type(op) is arith.ConstantOp and op.result.first_use is None
