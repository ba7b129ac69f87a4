"""Kernels that begin and finish exchanges between ranks."""

from __future__ import annotations

from popgraph.dialects import tile
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.writer import Writer
from popgraph.passes.tuning import Target


def start_kernel(op: tile.StartExchangeOp, target: Target) -> tile.KernelOp:
    """One message, begun by one thread."""
    inputs = [op.x] if op.when is None else [op.x, op.when]
    inplace = [(0, 0)] if op.is_in_place else []
    kernel = tile.KernelOp(inputs, [tensor(op.output)], inplace=inplace)
    block = kernel.body.block
    _, source, *when, result = block.args
    writer = Writer(block, target)
    told = [writer.load_input(one, Index()) for one in when]
    block.add_op(tile.SendOp(source, result, told[0] if told else None, op.exchange))
    return kernel


def finish_kernel(op: tile.FinishExchangeOp) -> tile.KernelOp:
    """Waits, and copies only where the result has memory of its own."""
    kernel = tile.KernelOp(list(op.operands), [tensor(op.output)], inplace=[(0, 0)])
    block = kernel.body.block
    block.add_op(tile.ReceiveOp(block.args[1], block.args[-1]))
    return kernel
