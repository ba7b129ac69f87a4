"""Boustrophedon order: iterations of a loop read large weights forwards and backwards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from popgraph.dialects.program import CallLoopOp, ConstantOp, GraphOp, PrepareOp, graphs_of
from popgraph.dialects.tile import ReduceOp, ViewOp, is_contraction
from popgraph.dialects.tile.cut import NAME, CutAttr, Part
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.properties import BOUND, UNCUT
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.parallel_loops import Loop, MemoryAccess, ParallelLoops
from popgraph.passes.structured.to_loops import kernels_of, parallel_loops_of
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target


@dataclass(frozen=True)
class AlternateChunks(Pass):
    """
    Alternate the order of chunks between iterations, for operands larger than L2.

    chunks 0 1 2 3, 0 1 2 3, ...  ->  chunks 0 1 2 3, 3 2 1 0, ...

    A typical case is the recurrent weights of an LSTM, read once per iteration. In one order, L2
    has always evicted the next chunk; in alternating order, it still holds the last chunks of the
    previous iteration. Only with one thread: several threads have cuts of their own.
    """

    # An LSTM of 512 units and batch 1 is 1.17 times as fast (dabc8de9).

    name = "alternate-chunks"
    NEEDS = (BOUND,)
    LOSES = (UNCUT,)
    threads: int = 1
    target: Target = Target()

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        if self.threads > 1:
            return
        graphs = {graph.sym_name.data: graph for graph in graphs_of(module)}
        for graph in graphs.values():
            for op in graph.block.ops:
                if isinstance(op, CallLoopOp) and op.turns != 1:
                    self._alternate(op, graphs[op.graph.string_value()])

    def _alternate(self, call: CallLoopOp, body: GraphOp) -> None:
        constant = set(_constant(call, body))
        for op in kernels_of(body):
            if is_contraction(op) and op.schedule is not None:
                self._cut(op, constant)

    def _cut(self, op: ReduceOp, constant: set[SSAValue]) -> None:
        """Cuts a kernel into chunks; L2 holds `alternating_chunks` of them."""
        kernel, tuning = parallel_loops_of(op, self.target), self.target.tuning
        held = self.target.l2(tuning.alternating_l2)
        if kernel is None:
            return
        for read in kernel.touched[:2]:  # The two operands of products.
            too_large = read.value in constant and read.size > held
            if too_large and _is_read_once(op, read.value):
                chunks = -(-read.size * tuning.alternating_chunks // held)
                if parts := list(_split(kernel, read, chunks)):
                    op.attributes[NAME] = CutAttr.of(parts, alternating=True)


def _constant(call: CallLoopOp, body: GraphOp) -> Iterator[SSAValue]:
    """Yields the values that are equal in every iteration."""
    first = 1 + len(call.carried) + len(call.scanned)
    found = set[SSAValue](body.block.args[first:])
    for op in body.block.ops:
        views = isinstance(op, ViewOp) and all(value in found for value in op.operands)
        if isinstance(op, ConstantOp | PrepareOp) or views:
            found.update(op.results)
    yield from found


def _is_read_once(op: ReduceOp, factor: SSAValue) -> bool:
    """Whether all products with an element of an operand are in one register tile."""
    assert op.schedule is not None
    products = prod(op.sizes) // prod(tensor(factor).get_shape())
    return products <= max(1, op.schedule.mr.data)


def _split(kernel: ParallelLoops, read: MemoryAccess, chunks: int) -> Iterator[Part]:
    """Cuts outer loops into parts until there are enough chunks."""
    left = kernel.together
    for number, loop in enumerate(kernel.loops):
        part = _part(loop, number, chunks) if left and number in read.along else None
        if part is not None:
            left, chunks = left - 1, -(-chunks // part.count)
            yield part


def _part(loop: Loop, number: int, count: int) -> Part | None:
    """A loop cut into about `count` parts, if it can be cut."""
    units = -(-loop.extent // loop.step)
    size = max(loop.least, -(-units // count))
    while loop.even and units % size:
        size += 1
    parts = -(-units // size)
    return Part(number, parts, size * loop.step) if parts > 1 else None
