"""Kernels that begin and finish exchanges between ranks."""

from __future__ import annotations

from popgraph.dialects import tile
from popgraph.passes.structured.to_loops.emit.emitter import Body, Emitter
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.support.tuning import Target


class StartExchangeLoops(Emitter):
    """Begins to send one message, on one thread."""

    covers_memory = True
    loops = None

    def __init__(self, op: tile.StartExchangeOp, target: Target) -> None:
        super().__init__(op, target)
        self.op, self.outputs = op, [op.output]
        self.inputs = [op.x] if op.when is None else [op.x, op.when]

    @property
    def inplace(self) -> list[tuple[int, int]]:
        return [(0, 0)] if self.op.is_in_place else []

    def write(self, body: Body) -> None:
        source, *when = body.inputs
        conditions = [body.writer.load_input(memory, Index()) for memory in when]
        (result,) = body.outputs
        condition = conditions[0] if conditions else None
        body.writer.do(tile.SendOp(source, result, condition, self.op.exchange))


class FinishExchangeLoops(Emitter):
    """Waits for a message; copies it if the result is not in the memory of the operand."""

    covers_memory = True
    loops = None

    def __init__(self, op: tile.FinishExchangeOp, target: Target) -> None:
        super().__init__(op, target)
        self.inputs, self.outputs = op.operands, [op.output]

    @property
    def inplace(self) -> list[tuple[int, int]]:
        return [(0, 0)]

    def write(self, body: Body) -> None:
        body.writer.do(tile.ReceiveOp(body.inputs[0], body.outputs[0]))
