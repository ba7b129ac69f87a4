"""The emitter of each operation, and the kernels that emitters write."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from xdsl.ir import Block, Operation, SSAValue

from popgraph.dialects import tile
from popgraph.dialects.tile.cut import chunks_of
from popgraph.dialects.tile.loops.known import Kernel
from popgraph.dialects.tile.loops.ops import kernel_arguments
from popgraph.dialects.tile.running import ends_of
from popgraph.dialects.tile.structured.ops import indexed_dims
from popgraph.passes.structured.analysis.loops import has_gaps
from popgraph.passes.structured.analysis.parallel_loops import ParallelLoops
from popgraph.passes.structured.to_loops.contraction.contract import ContractLoops
from popgraph.passes.structured.to_loops.copy.assemble import AssembleLoops
from popgraph.passes.structured.to_loops.copy.relayout import RelayoutLoops
from popgraph.passes.structured.to_loops.elementwise.maps import MapLoops
from popgraph.passes.structured.to_loops.emit.access import spans
from popgraph.passes.structured.to_loops.emit.emitter import Body, Emitter
from popgraph.passes.structured.to_loops.emit.writer import Writer
from popgraph.passes.structured.to_loops.emit.zero_padding import zero_unwritten
from popgraph.passes.structured.to_loops.fused import FusedLoops
from popgraph.passes.structured.to_loops.kernel_functions import describe, runs_once
from popgraph.passes.structured.to_loops.reduction.reduce import ReduceLoops
from popgraph.support.tuning import Target


def emitter_of(op: Operation, target: Target) -> Emitter:
    """The emitter of an operation's loops."""
    match op:
        case tile.MapOp():
            return MapLoops(op, target, once=runs_once(op))
        # A register tile splits a dimension into panels and lanes: `tile.index` of an epilogue
        # would read another dimension.
        case tile.ReduceOp() if op.schedule and not indexed_dims(op.epilogue.block):
            return ContractLoops(op, op.schedule, target)
        case tile.ReduceOp():
            return ReduceLoops(op, target)
        case tile.FusedOp() if not op.transforms_tiles:
            return FusedLoops(op, target)
        case tile.PackOp():
            return RelayoutLoops(op, target, once=runs_once(op))
        case tile.AssembleOp():
            return AssembleLoops(op, target)
    # Most programs have none of the others, and import no module for them.
    from popgraph.passes.structured.to_loops.rare_emitters import RARE

    return RARE[type(op)](op, target)


def parallel_loops_of(op: Operation, target: Target) -> ParallelLoops | None:
    """The loops that threads may share; None if one thread runs the kernel."""
    # The memory of a result with gaps is zeroed as a whole: a late chunk would erase the results of
    # an earlier one.
    emitter = emitter_of(op, target)
    loops, zeroed = emitter.loops, () if emitter.covers_memory else emitter.outputs
    if loops is None or any(map(has_gaps, zeroed)):
        return None
    return ParallelLoops(tuple(loops), emitter.work, tuple(emitter.touched), emitter.most_cut_loops)


def kernel_of(
    op: Operation, target: Target, sizes: Sequence[SSAValue] = ()
) -> tuple[Kernel, Block]:
    """
    Writes the kernel of an operation: one body for all chunks of its cut.

    A tensor that the operation reads several times is one memory: C compilers then see which loads
    are adjacent. `sizes` are the memories of the sizes at which its loops end (`running_of`).
    """
    emitter = emitter_of(op, target)
    read = list(dict.fromkeys(emitter.inputs))
    body = Block(arg_types=kernel_arguments([*read, *sizes], emitter.outputs))
    chunk, *memories = body.args
    writer, count = Writer(body, target), len(read)
    memory_of = dict(zip(read, memories, strict=False))
    inputs = [memory_of[value] for value in emitter.inputs]
    outputs = memories[count + len(sizes) :]
    ends = zip(ends_of(op), memories[count:], strict=False)
    writer.sizes = {number: writer.size(memory) for number, memory in ends}
    if not emitter.covers_memory:
        short, in_place = emitter.writes_short_pieces, {result for _, result in emitter.inplace}
        zero_unwritten(
            writer, emitter.outputs, outputs, emitter.cut, short=short, in_place=in_place
        )
    parts = spans(writer, emitter.groups, emitter.cut, chunk, writer.sizes)
    emitter.write(Body(writer, inputs, outputs, parts))
    writer.close()
    numbers = [list(op.operands).index(value) for value in read]
    return Kernel(describe(body), numbers, chunks_of(emitter.cut), _in_place(emitter, read)), body


def _in_place(emitter: Emitter, read: Sequence[SSAValue]) -> list[tuple[int, int]]:
    """The pairs of an input, by number in `read`, and a result that may share memory."""
    # A tensor that is several inputs must allow it in each: x may not be overwritten in
    # y = x + transpose(x).
    if len(read) == len(emitter.inputs):
        return emitter.inplace
    pairs, results = set(emitter.inplace), range(len(emitter.outputs))
    return [
        (number, result)
        for (number, value), result in product(enumerate(read), results)
        if all((at, result) in pairs for at, same in enumerate(emitter.inputs) if same is value)
    ]
