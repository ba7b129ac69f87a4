"""
Packings: pieces of persistent memory that one call fills from constants alone.

An analysis, and no pass: it changes no IR. The key of a packing is of the C of the kernel that
fills it and of the compiler's flags, which exist only when the kernels are printed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

from xdsl.ir import Attribute, Block, SSAValue

from popgraph.backends.c.print.layout import Packing
from popgraph.backends.c.print.unit import Kernel
from popgraph.dialects.program.attributes import BlobAttr, DataAttr
from popgraph.dialects.tile import BufferOp, CallOp, ProgramOp
from popgraph.dialects.tile.program.work import size
from popgraph.support.cache_files import digest

MAGIC = "popgraph packing 1"


def packings(program: ProgramOp, kernels: Sequence[Kernel], compiled: str) -> list[Packing]:
    """
    What programs of one model may share of the memory that `prepare` fills, by where it stands.

    A packing is written by one call, and nothing else of `prepare` touches it; a step reads it,
    or parts of it. Its key is of all that decides what it holds: the kernel and its numbers, how
    C is `compiled`, and the constants.
    """
    texts = {kernel.name: f"{kernel.numbers} {kernel.text}" for kernel in kernels}
    found = []
    for packing in _alone(program.prepare.block):
        key = _key(packing, texts, compiled)
        if key:
            found.append(Packing(packing.op, packing.begin, packing.end, key))
    cut = _cut(found, _uses(program.body.block))
    return [packing for packing in found if packing not in cut]


def _alone(block: Block) -> Iterator[Packing]:
    """The uses of persistent memory that no other one touches."""
    group: list[Packing] = []
    end = 0
    for use in sorted(_uses(block), key=attrgetter("begin")):
        if use.begin >= end and group:
            yield from group if len(group) == 1 else ()
            group = []
        group.append(use)
        end = max(end, use.end)
    yield from group if len(group) == 1 else ()


def _uses(block: Block) -> Iterator[Packing]:
    """What the operations of a block do with persistent memory."""
    for op in block.ops:
        for value in () if isinstance(op, BufferOp) else op.operands:
            buffer = _buffer(value)
            if buffer.space.data == "persistent":
                begin = buffer.offset.value.data
                yield Packing(op, begin, begin + size(value.type))


def _buffer(value: SSAValue) -> BufferOp:
    assert isinstance(value.owner, BufferOp), "what programs work on are buffers"
    return value.owner


def _cut(packings: Sequence[Packing], reads: Iterator[Packing]) -> set[Packing]:
    """The packings that a step reads together with something else."""
    begins, found = [packing.begin for packing in packings], set()
    for begin, end in {(read.begin, read.end) for read in reads}:
        first = max(0, bisect_right(begins, begin) - 1)
        for packing in packings[first : bisect_left(begins, end)]:
            inside = packing.begin <= begin and end <= packing.end
            if begin < packing.end and not inside:
                found.add(packing)
    return found


def _key(packing: Packing, texts: Mapping[str, str], compiled: str) -> str:
    """Of what a call writes; empty unless it writes there, and reads constants alone."""
    call = packing.op
    if not isinstance(call, CallOp):
        return ""
    *inputs, output = map(_buffer, call.arguments)
    literals = [_spelled(each.literal) for each in inputs if each.space.data == "constant"]
    if output.offset.value.data != packing.begin or len(literals) != len(inputs):
        return ""
    return digest(MAGIC, compiled, texts[call.callee.string_value()], *literals)


def _spelled(literal: Attribute | None) -> str:
    assert isinstance(literal, DataAttr | BlobAttr), "a constant has a literal"
    content = literal.payload.data.hex() if isinstance(literal, DataAttr) else literal.key.text
    return f"{content} {literal.type}"
