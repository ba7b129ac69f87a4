"""The lowering of structured operations to kernels with their loops written out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from popgraph.dialects import tile
from popgraph.dialects.program import PrepareOp
from popgraph.dialects.tile.attributes import moved_to_start
from popgraph.passes.analysis.replace import replace_op
from popgraph.passes.analysis.structural_hash import StructuralHasher
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.loops.outline_kernels import Functions
from popgraph.passes.options import Options
from popgraph.passes.structured.analysis.blocks import take_apart
from popgraph.passes.structured.analysis.inplace_concat import Joins
from popgraph.passes.structured.analysis.loops import indexed_dims
from popgraph.passes.structured.analysis.parallel_loops import ParallelLoops
from popgraph.passes.structured.to_loops.contraction.contract import ContractLoops
from popgraph.passes.structured.to_loops.copy.assemble import (
    assemble_kernel,
    assemble_parallel_loops,
)
from popgraph.passes.structured.to_loops.copy.exchange import finish_kernel, start_kernel
from popgraph.passes.structured.to_loops.copy.relayout import (
    relayout_kernel,
    relayout_parallel_loops,
)
from popgraph.passes.structured.to_loops.elementwise.maps import MapLoops
from popgraph.passes.structured.to_loops.elementwise.scatter import (
    scatter_kernel,
    scatter_parallel_loops,
)
from popgraph.passes.structured.to_loops.elementwise.top_k import (
    top_k_kernel,
    top_k_parallel_loops,
)
from popgraph.passes.structured.to_loops.emit.equal_inputs import merge_equal_inputs
from popgraph.passes.structured.to_loops.fused.chain import ChainLoops
from popgraph.passes.structured.to_loops.fused.nest import NestLoops
from popgraph.passes.structured.to_loops.reduction.combiners import Reduction
from popgraph.passes.structured.to_loops.reduction.reduce import ReduceLoops
from popgraph.passes.structured.to_loops.winograd.tile_transforms import (
    transform_kernel,
    transform_parallel_loops,
)
from popgraph.passes.structured.to_loops.winograd.winograd import WinogradLoops
from popgraph.passes.tuning import Target

__all__ = ["StructuredToLoops"]

STRUCTURED = {
    tile.MapOp,
    tile.ReduceOp,
    tile.ContractOp,
    tile.ScatterOp,
    tile.TopKOp,
    tile.AssembleOp,
    tile.PackOp,
    tile.UnpackOp,
    tile.TransformTilesOp,
    tile.TransformGradientTilesOp,
    tile.WinogradOp,
    tile.NestOp,
    tile.ChainOp,
    tile.StartExchangeOp,
    tile.FinishExchangeOp,
}


@dataclass(frozen=True)
class Shared:
    """A kernel that several operations launch."""

    name: str
    kernel: tile.KernelOp
    operands: tuple[int, ...]
    """Which operands of such an operation the kernel reads, in its order."""

    def launch(self, op: Operation) -> tile.LaunchOp:
        inputs = [op.operands[number] for number in self.operands]
        types = [result.type for result in op.results]
        return tile.LaunchOp(self.name, inputs, types, self.kernel.chunks, self.kernel.inplace)


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


@dataclass(frozen=True)
class Loops:
    """What becomes of one operation: its kernel, and what threads may share of it."""

    kernel: Callable[[], tile.KernelOp]
    parallel_loops: Callable[[], ParallelLoops | None]


def loops_of(op: Operation, target: Target) -> Loops:
    """Who writes the loops of an operation."""
    made: MapLoops | ReduceLoops | ContractLoops | WinogradLoops | NestLoops | ChainLoops
    match op:
        case tile.MapOp():
            made = MapLoops(op, target, once=runs_once(op))
        case tile.ReduceOp():
            made = ReduceLoops(Reduction.of_reduce(op), target)
        case tile.ContractOp() if op.schedule and not indexed_dims(op.epilogue.block):
            made = ContractLoops(op, op.schedule, target)
        case tile.ContractOp():
            made = ReduceLoops(Reduction.of_contract(op), target)
        case tile.WinogradOp():
            made = WinogradLoops(op, target)
        case tile.NestOp():
            made = NestLoops(op, target)
        case tile.ChainOp():
            made = ChainLoops(op, target)
        case tile.ScatterOp():
            return Loops(partial(scatter_kernel, op, target), partial(scatter_parallel_loops, op))
        case tile.TopKOp():
            return Loops(partial(top_k_kernel, op, target), partial(top_k_parallel_loops, op))
        case tile.AssembleOp():
            how = op, target
            return Loops(partial(assemble_kernel, *how), partial(assemble_parallel_loops, *how))
        case tile.PackOp() | tile.UnpackOp():
            once = runs_once(op)
            return Loops(
                partial(relayout_kernel, op, target, once=once),
                partial(relayout_parallel_loops, op, target),
            )
        case tile.TransformTilesOp() | tile.TransformGradientTilesOp():
            written = partial(transform_kernel, op, target)
            return Loops(written, partial(transform_parallel_loops, op))
        case tile.StartExchangeOp():
            return Loops(partial(start_kernel, op, target), lambda: None)
        case tile.FinishExchangeOp():
            return Loops(partial(finish_kernel, op), lambda: None)
        case _:
            raise AssertionError(f"{op.name} has no loops")
    return Loops(made.kernel, made.parallel_loops)


def is_nested(op: Operation) -> bool:
    """Whether an operation is part of a nest or a chain, which is written as a whole."""
    return isinstance(op.parent_op(), tile.NestOp | tile.ChainOp)


def runs_once(op: Operation) -> bool:
    """Whether an operation runs when the program is loaded, not whenever it is called."""
    return isinstance(op.parent_op(), PrepareOp)


def positions(kernel: tile.KernelOp, op: Operation) -> tuple[int, ...]:
    """Where each input of the kernel stands among the operands of the operation."""
    operands = list(op.operands)
    return tuple(operands.index(value) for value in kernel.inputs)


@dataclass(frozen=True)
class StructuredToLoops(Pass):
    """
    Write out the loops of every structured operation: each becomes a `tile.kernel`.

    Of operations that are equal but for their operands, and for where in larger tensors these are
    parts, the loops are written once, as a function that each of them launches. Concatenations
    whose pieces can be computed in place stay: they are work for plan-memory.
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
        structures = StructuralHasher(moved_to_start)
        found = [(op, (structures.of(op), runs_once(op))) for op in kernels_of(module)]
        counts = Counter(key for _, key in found)
        functions = Functions(module)
        written: dict[Hashable, Shared] = {}
        for op, key in found:
            if key in written:
                replace_op(op, written[key].launch(op))
                continue
            kernel = loops_of(op, self.target).kernel()
            merge_equal_inputs(kernel)
            kernel.location = op.location
            if counts[key] == 1:
                replace_op(op, kernel)
                continue
            written[key] = Shared(functions.add(kernel), kernel, positions(kernel, op))
            replace_op(op, written[key].launch(op))
        functions.insert()
