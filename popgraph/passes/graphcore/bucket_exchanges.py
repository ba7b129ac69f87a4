"""Gradient bucketing: joins small all-reduces into few large ones, sent when they are complete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.graphcore.base import Elementwise, shape_of, tensor_of
from popgraph.dialects.graphcore.broadcasting import ReshapeOp
from popgraph.dialects.graphcore.exchanges import ExchangeOp
from popgraph.dialects.graphcore.movement import ConcatOp, PadOp, SliceOp
from popgraph.dialects.program import ConstantOp, VariableOp, graphs_of
from popgraph.passes.analysis.replace import made_for
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options
from popgraph.support.ranks.communicator import ALL_GATHER, ALL_REDUCE, Exchange
from popgraph.support.shapes import prod

Key: TypeAlias = tuple[Exchange, SSAValue | None, Attribute]
"""Properties that exchanges in one bucket share."""


@dataclass(frozen=True)
class BucketExchanges(Pass):
    """
    a = exchange(x), b = exchange(y)  ->  c = exchange(concat(x, y)), a = slice(c), b = slice(c).

    Only all-reduces of the same kind and element type, in the order in which their operands are
    computed, until a bucket has `bucket_bytes`. A bucket follows its last operand directly, and
    operations that wait for it follow all that do not, so that communication overlaps with the
    backward pass. A sharded weight is all-gathered while the reader of the previous one computes.
    """

    name = "bucket-exchanges"
    AFTER = ("add-optimizer",)
    BEFORE = ("canonicalize", "expand")

    bucket_bytes: int = Options.bucket_bytes

    @classmethod
    def of(cls, options: Options) -> BucketExchanges | None:
        training = options.training
        exchanges = training is not None and training.optimizer.ranks > 1
        return cls(options.bucket_bytes) if exchanges else None

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for graph in graphs_of(module):
            found = [op for op in graph.block.ops if isinstance(op, ExchangeOp)]
            if found:
                _move_up(graph.block, [op for op in found if op.kind.data != ALL_GATHER])
                for bucket in list(self._buckets(graph.block)):
                    if len(bucket) > 1:
                        _join(bucket)
                _wait_late(graph.block)
                _gather_ahead(graph.block)

    def _buckets(self, block: Block) -> Iterator[list[ExchangeOp]]:
        """Groups of exchanges to join, in order; no member is read before the last one begins."""
        places = _places(block)
        filling: dict[Key, list[ExchangeOp]] = {}
        read: dict[Key, int] = {}
        for op in filter(_is_reduction, list(places)):
            assert isinstance(op, ExchangeOp)
            key = _key(op)
            first = min((places[one] for one in _readers(op, block)), default=len(places))
            if key in filling and read[key] < places[op]:
                yield filling.pop(key)
            bucket = filling.setdefault(key, [])
            read[key] = min(first, read[key]) if bucket else first
            bucket.append(op)
            if sum(map(_bytes, bucket)) >= self.bucket_bytes:
                yield filling.pop(key)
        yield from filling.values()


def _is_reduction(op: Operation) -> bool:
    return isinstance(op, ExchangeOp) and op.kind.data == ALL_REDUCE


def _key(op: ExchangeOp) -> Key:
    return op.exchange, op.when, tensor_of(op.x).element_type


def _bytes(op: ExchangeOp) -> int:
    return prod(shape_of(op.x)) * element_bytes(op.x.type)


def _join(bucket: Sequence[ExchangeOp]) -> None:
    """Replaces several exchanges by one at the position of the last."""
    last = bucket[-1]
    with made_for(last):
        row = ConcatOp([op.x for op in bucket], axis=0)
        exchange = last.exchange
        whole = ExchangeOp(
            row,
            last.when,
            kind=exchange.kind,
            size=exchange.size,
            stride=exchange.stride,
            combine=exchange.combine,
        )
        start, parts = 0, []
        for op in bucket:
            (count,) = shape_of(op.x)
            parts.append(SliceOp(whole, starts=[start], sizes=[count], steps=[1]))
            start += count
    for op, part in zip(bucket, parts, strict=True):
        op.result.replace_all_uses_with(part.result)
        Rewriter.erase_op(op)


def _places(block: Block) -> dict[Operation, int]:
    return {op: place for place, op in enumerate(block.ops)}


def _readers(op: ExchangeOp, block: Block) -> Iterator[Operation]:
    """Operations of a block that read a result, themselves or in their bodies."""
    for use in op.result.uses:
        reader = block.find_ancestor_op_in_block(use.operation)
        assert reader is not None, "what a graph computes is read in it"
        yield reader


def _move_up(block: Block, exchanges: Sequence[ExchangeOp]) -> None:
    """Moves exchanges, and cheap operations that prepare their messages, as early as possible."""
    moving = set[Operation](exchanges)
    waiting = list(moving)
    while waiting:
        makers = {value.owner for value in waiting.pop().operands} - moving
        found = [op for op in makers if isinstance(op, _CHEAP)]
        moving.update(found)
        waiting += found
    keys = dict[Operation, tuple[int, ...]]()
    for place, op in enumerate(block.ops):
        after = place
        if op in moving:
            after = max((keys[one][0] for one in _makers(op, block)), default=-1)
        keys[op] = after, op in moving, place
    _sort(block, keys)


def _wait_late(block: Block) -> None:
    """Sorts operations by the last exchange that they depend on: none, the first, the second ..."""
    numbers = dict[Operation, int]()
    waits = dict[Operation, tuple[int, ...]]()
    for place, op in enumerate(block.ops):
        last = max((numbers.get(one, waits[one][0]) for one in _makers(op, block)), default=0)
        waits[op] = last, place
        if isinstance(op, ExchangeOp) and not op.gathers_variable:
            numbers[op] = len(numbers) + 1
    end = block.last_op
    assert end is not None
    waits[end] = len(numbers) + 1, waits[end][1]
    _sort(block, waits)


def _gather_ahead(block: Block) -> None:
    """
    Moves each all-gather of a weight before the reader of the previously gathered weight.

    Its message then overlaps with that computation, and at most two weights are whole at a time.
    """
    before: ExchangeOp | None = None
    for op in [op for op in block.ops if isinstance(op, ExchangeOp) and op.gathers_variable]:
        reader = None if before is None else _computing_reader(before, block)
        places = _places(block)
        if reader is not None and places[reader] < places[op]:
            variable = op.x.owner
            assert isinstance(variable, Operation), "a variable is gathered"
            early = [one for one in (variable, op) if places[one] > places[reader]]
            for one in early:
                one.detach()
                block.insert_op_before(one, reader)
        before = op


def _computing_reader(op: ExchangeOp, block: Block) -> Operation | None:
    """The first operation that computes with a result: slices and reshapes only pass it on."""
    places, found = _places(block), list[Operation]()
    waiting: list[SSAValue] = [op.result]
    while waiting:
        for use in waiting.pop().uses:
            reader = block.find_ancestor_op_in_block(use.operation)
            assert reader is not None, "what a graph computes is read in it"
            if isinstance(reader, SliceOp | ReshapeOp):
                waiting.append(reader.result)
            else:
                found.append(reader)
    return min(found, key=places.__getitem__, default=None)


def _sort(block: Block, keys: Mapping[Operation, tuple[int, ...]]) -> None:
    ordered = sorted(keys, key=keys.__getitem__)
    if ordered != list(block.ops):
        for op in ordered:
            op.detach()
        block.add_ops(ordered)


_CHEAP = (Elementwise, ReshapeOp, PadOp, ConstantOp, VariableOp)
"""Operations that may be computed earlier than written: they cost little time and memory."""


def _makers(op: Operation, block: Block) -> Iterator[Operation]:
    for value in op.operands:
        if isinstance(value.owner, Operation) and value.owner.parent is block:
            yield value.owner
