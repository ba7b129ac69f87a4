"""How do structured operations become kernels with their loops written out?"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects import tile
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.tile_loops.assemble import assemble_kernel
from popgraph.passes.tile_loops.bodies import indexed_dims
from popgraph.passes.tile_loops.contract import ContractLoops
from popgraph.passes.tile_loops.maps import MapLoops
from popgraph.passes.tile_loops.reduce import ReduceLoops
from popgraph.passes.tile_loops.reduction import Reduction
from popgraph.passes.tile_loops.relayout import relayout_kernel
from popgraph.passes.tile_loops.scatter import scatter_kernel

__all__ = ["TileLoops"]


@dataclass(frozen=True)
class TileLoops(Pass):
    """
    Write out the loops of every structured operation: each becomes a `tile.kernel`.

    `vector_bytes` is the size of the target's vectors.
    """

    name = "tile-loops"
    TOLERANCE = 1e-5
    vector_bytes: int = 64

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for op in list(module.walk()):
            kernel = self._kernel(op)
            if kernel is not None:
                kernel.location = op.location
                Rewriter.insert_op(kernel, InsertPoint.before(op))
                for old, new in zip(op.results, kernel.outputs, strict=True):
                    new.name_hint = old.name_hint
                    old.replace_all_uses_with(new)
                op.detach()
                op.erase()

    def _kernel(self, op: Operation) -> tile.KernelOp | None:
        match op:
            case tile.MapOp():
                return MapLoops(op, self.vector_bytes).kernel()
            case tile.ReduceOp():
                return ReduceLoops(Reduction.of_reduce(op), self.vector_bytes).kernel()
            case tile.ContractOp() if op.schedule and not indexed_dims(op.finish.block):
                return ContractLoops(op, op.schedule).kernel()
            case tile.ContractOp():
                return ReduceLoops(Reduction.of_contract(op), self.vector_bytes).kernel()
            case tile.ScatterOp():
                return scatter_kernel(op)
            case tile.AssembleOp():
                return assemble_kernel(op, self.vector_bytes)
            case tile.PackOp() | tile.UnpackOp():
                return relayout_kernel(op, self.vector_bytes)
        return None
