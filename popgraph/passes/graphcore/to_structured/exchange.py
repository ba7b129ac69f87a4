"""Lowers exchanges between ranks to a start and a finish, with as much work between as possible."""

from __future__ import annotations

from xdsl.ir import Block, Operation, SSAValue

from popgraph.dialects import tile
from popgraph.dialects.graphcore import ExchangeOp


def lower_exchange(op: ExchangeOp) -> SSAValue:
    """
    y = exchange(x)  ->  z = start_exchange(x); ...; y = finish_exchange(z)

    The finish is inserted directly before the first reader of the result.
    """
    begun = tile.StartExchangeOp(op.x, op.when, op.exchange)
    finish = tile.FinishExchangeOp(begun.output, None if begun.is_in_place else op.x)
    block = op.parent
    assert block is not None, "an exchange is in a graph"
    # Everything in between overlaps with the message.
    reader = _first_reader(block, op)
    if reader is not None:
        finish.detach()
        finish.location = op.location
        block.insert_op_before(finish, reader)
    return finish.output


def _first_reader(block: Block, op: ExchangeOp) -> Operation | None:
    readers = {block.find_ancestor_op_in_block(use.operation) for use in op.result.uses}
    found = op.next_op
    while found is not None and found not in readers:
        found = found.next_op
    return found
