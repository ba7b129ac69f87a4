"""Operations that become kernels."""

from __future__ import annotations

from xdsl.ir import Operation

from popgraph.dialects import tile
from popgraph.dialects.program import PrepareOp
from popgraph.passes.structured.analysis.inplace_concat import Joins

STRUCTURED = {
    *(tile.MapOp, tile.ReduceOp, tile.ContractOp, tile.PackOp, tile.UnpackOp, tile.WinogradOp),
    *(tile.NestOp, tile.ChainOp, tile.ScatterOp, tile.TopKOp, tile.AssembleOp),
    *(tile.TransformTilesOp, tile.TransformGradientTilesOp),
    *(tile.StartExchangeOp, tile.FinishExchangeOp),
}


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


def is_nested(op: Operation) -> bool:
    """Whether an operation is part of a nest or a chain, which is written as a whole."""
    return isinstance(op.parent_op(), tile.NestOp | tile.ChainOp)


def runs_once(op: Operation) -> bool:
    """Whether an operation runs when the program is loaded, not whenever it is called."""
    return isinstance(op.parent_op(), PrepareOp)
