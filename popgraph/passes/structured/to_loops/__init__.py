"""The lowering of structured operations to kernels with their loops written out."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from popgraph.dialects import tile
from popgraph.dialects.program import PrepareOp
from popgraph.dialects.tile.attributes import moved_to_start
from popgraph.dialects.tile.cut import chunks_of
from popgraph.dialects.tile.loops.known import Kernel, KnownKernels, set_key
from popgraph.dialects.tile.loops.ops import kernel_arguments
from popgraph.dialects.tile.running import ends_of, sizes_for
from popgraph.passes.analysis.replace import replace_op
from popgraph.passes.analysis.structural_hash import SpelledStructure, StructuralHasher
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options
from popgraph.passes.structured.analysis.blocks import take_apart
from popgraph.passes.structured.analysis.inplace_concat import Joins
from popgraph.passes.structured.analysis.loops import has_gaps, indexed_dims
from popgraph.passes.structured.analysis.parallel_loops import ParallelLoops
from popgraph.passes.structured.to_loops.contraction.contract import ContractLoops
from popgraph.passes.structured.to_loops.copy.assemble import AssembleLoops
from popgraph.passes.structured.to_loops.copy.exchange import (
    FinishExchangeLoops,
    StartExchangeLoops,
)
from popgraph.passes.structured.to_loops.copy.relayout import RelayoutLoops
from popgraph.passes.structured.to_loops.elementwise.maps import MapLoops
from popgraph.passes.structured.to_loops.elementwise.order import OrderLoops
from popgraph.passes.structured.to_loops.elementwise.positions import PositionsLoops
from popgraph.passes.structured.to_loops.elementwise.scatter import ScatterLoops
from popgraph.passes.structured.to_loops.elementwise.segments import SegmentsLoops
from popgraph.passes.structured.to_loops.elementwise.suppress import SuppressLoops
from popgraph.passes.structured.to_loops.elementwise.top_k import TopKLoops
from popgraph.passes.structured.to_loops.emit.access import spans
from popgraph.passes.structured.to_loops.emit.emitter import Body, Emitter
from popgraph.passes.structured.to_loops.emit.equal_inputs import merge_equal_inputs
from popgraph.passes.structured.to_loops.emit.writer import Writer
from popgraph.passes.structured.to_loops.emit.zero_padding import zero_unwritten
from popgraph.passes.structured.to_loops.fused.chain import ChainLoops
from popgraph.passes.structured.to_loops.fused.nest import NestLoops
from popgraph.passes.structured.to_loops.kernel_functions import Functions, describe
from popgraph.passes.structured.to_loops.reduction.reduce import ReduceLoops
from popgraph.passes.structured.to_loops.winograd.tile_transforms import TransformLoops
from popgraph.passes.structured.to_loops.winograd.winograd import WinogradLoops
from popgraph.passes.tuning import Target
from popgraph.support.cache_files import digest

__all__ = ["StructuredToLoops"]

EMITTERS: Mapping[type[Operation], Callable[[Any, Target], Emitter]] = {
    tile.WinogradOp: WinogradLoops,
    tile.NestOp: NestLoops,
    tile.ChainOp: ChainLoops,
    tile.ScatterOp: ScatterLoops,
    tile.TopKOp: TopKLoops,
    tile.PositionsOp: PositionsLoops,
    tile.SuppressOp: SuppressLoops,
    tile.OrderOp: OrderLoops,
    tile.SegmentsOp: SegmentsLoops,
    tile.AssembleOp: AssembleLoops,
    tile.TransformTilesOp: TransformLoops,
    tile.TransformGradientTilesOp: TransformLoops,
    tile.StartExchangeOp: StartExchangeLoops,
    tile.FinishExchangeOp: FinishExchangeLoops,
}
"""The emitters of operations that have only one."""

STRUCTURED = {
    *(tile.MapOp, tile.ReduceOp, tile.ContractOp, tile.PackOp, tile.UnpackOp),
    *EMITTERS,
}
"""The operations that become kernels."""


def kernels_of(module: Operation) -> list[Operation]:
    """The operations that become kernels, in their order; joins are work for plan-memory."""
    joins = Joins()
    return [
        op
        for op in module.walk()
        if type(op) in STRUCTURED
        and not is_nested(op)
        and not (isinstance(op, tile.AssembleOp) and op in joins)
    ]


def emitter_of(op: Operation, target: Target) -> Emitter:
    """The emitter of an operation's loops."""
    match op:
        case tile.MapOp():
            return MapLoops(op, target, once=runs_once(op))
        case tile.ContractOp() if op.schedule and not indexed_dims(op.epilogue.block):
            return ContractLoops(op, op.schedule, target)
        case tile.ReduceOp() | tile.ContractOp():
            return ReduceLoops(op, target)
        case tile.PackOp() | tile.UnpackOp():
            return RelayoutLoops(op, target, once=runs_once(op))
    return EMITTERS[type(op)](op, target)


def parallel_loops_of(op: Operation, target: Target) -> ParallelLoops | None:
    """The loops that threads may share; None where one thread does it all."""
    emitter = emitter_of(op, target)
    loops, zeroed = emitter.loops, () if emitter.covers_memory else emitter.outputs
    if loops is None or any(map(has_gaps, zeroed)):
        return None
    return ParallelLoops(tuple(loops), emitter.work, tuple(emitter.touched), emitter.cut_together)


def kernel_of(
    op: Operation, target: Target, sizes: Sequence[SSAValue] = ()
) -> tuple[Kernel, Block]:
    """
    The kernel of an operation, with one body for all chunks of its cut.

    `sizes` are the memories of the sizes at which its loops end, see `running`.
    """
    emitter = emitter_of(op, target)
    body = Block(arg_types=kernel_arguments([*emitter.inputs, *sizes], emitter.outputs))
    chunk, *memories = body.args
    writer, count = Writer(body, target), len(emitter.inputs)
    inputs, outputs = memories[:count], memories[count + len(sizes) :]
    ends = zip(ends_of(op), memories[count:], strict=False)
    writer.sizes = {number: writer.size(memory) for number, memory in ends}
    if not emitter.covers_memory:
        short = emitter.writes_short_pieces
        zero_unwritten(writer, emitter.outputs, outputs, emitter.cut, short=short)
    parts = spans(writer, emitter.groups, emitter.cut, chunk, writer.sizes)
    emitter.write(Body(writer, inputs, outputs, parts))
    writer.close()
    read, inplace = merge_equal_inputs(body, emitter.inputs, emitter.inplace)
    operands = [*op.operands]
    numbers = [operands.index(value) for value in read]
    return Kernel(describe(body), numbers, chunks_of(emitter.cut), inplace), body


def is_nested(op: Operation) -> bool:
    """Whether an operation is part of a nest or a chain, which is written as a whole."""
    return isinstance(op.parent_op(), tile.NestOp | tile.ChainOp)


def runs_once(op: Operation) -> bool:
    """Whether an operation runs when the program is loaded, not whenever it is called."""
    return isinstance(op.parent_op(), PrepareOp)


@dataclass(frozen=True)
class StructuredToLoops(Pass):
    """
    Write out the loops of every structured operation: kernels become functions of the module.

    tile.map ... -> func.func + tile.launch

    Operations that are equal but for their operands, and for where in larger tensors these are
    parts, share one kernel, whose loops are written once. Concatenations whose pieces can be
    computed in place stay: they are work for plan-memory.
    """

    name = "structured-to-loops"
    TOLERANCE = 1e-5
    target: Target = Target()

    @classmethod
    def of(cls, options: Options) -> StructuredToLoops:
        return cls(options.target)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for op in list(module.walk()):
            if isinstance(op, tile.ContractOp) and op.block is not None and op.schedule is None:
                take_apart(op)
        structures, functions = StructuralHasher(moved_to_start), Functions(module)
        known = KnownByStructure(self.target, compilation.kernels) if compilation.kernels else None
        written: dict[Hashable, tuple[str, Kernel]] = {}
        for op in kernels_of(module):
            structure = structures.of(op), runs_once(op)
            if structure not in written:
                written[structure] = self._written(op, functions, known)
            function, kernel = written[structure]
            replace_op(op, kernel.launch(function, op, sizes_for(op)))
        functions.insert()

    def _written(
        self, op: Operation, functions: Functions, known: KnownByStructure | None
    ) -> tuple[str, Kernel]:
        """The function of an operation: its loops, unless they are known."""
        key = known.key(op) if known else ""
        kernel = known.kernels.find(key) if known else None
        if kernel is not None:
            read = [op.operands[number] for number in kernel.operands]
            inputs = [*read, *sizes_for(op)]
            function = functions.declare(kernel.title, kernel_arguments(inputs, op.results), op)
        else:
            kernel, body = kernel_of(op, self.target, sizes_for(op))
            function = functions.add(kernel.title, body, op)
            if known:
                known.kernels.note(key, kernel)
        if known:
            set_key(function, key)
        return function.sym_name.data, kernel


class KnownByStructure:
    """Kernels of earlier programs, found by operations that are equal in every process."""

    def __init__(self, target: Target, kernels: KnownKernels) -> None:
        self.kernels, self._target = kernels, repr(target)
        self._structures = SpelledStructure(moved_to_start)

    def key(self, op: Operation) -> str:
        """A hash of all that decides what the kernel of an operation is."""
        return digest(self._target, repr(runs_once(op)), repr(self._structures.of(op)))
