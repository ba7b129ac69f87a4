"""
Packings: slices of persistent memory that one call fills from constants alone.

An analysis of the printer, not a pass: it changes no IR. The key of a packing digests the C of the
kernel that fills it and the compiler's flags. Both exist only after printing.
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
    The packings that programs of one model can share, in the order of their offsets.

    A packing is written by one call, and nothing else in `prepare` touches it; a step reads it or
    slices of it. Its key digests everything that determines its contents: the kernel with its
    parameters, how C is `compiled`, and the constants.

    Eight lengths of a 4-layer encoder hold 16 MB of packed weights in all, not 102 MB.
    """
    texts = {kernel.name: f"{kernel.numbers} {kernel.text}" for kernel in kernels}
    found = []
    for packing in _exclusive(program.prepare.block):
        key = _key(packing, texts, compiled)
        if key:
            found.append(Packing(packing.op, packing.begin, packing.end, key))
    # A step that reads a packing together with its neighbour needs both in one array.
    across = _read_across(found, _uses(program.body.block))
    return [packing for packing in found if packing not in across]


def _exclusive(block: Block) -> Iterator[Packing]:
    """The uses of persistent memory that overlap no other use."""
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
    """The uses of persistent memory by the operations of a block."""
    for op in block.ops:
        for value in () if isinstance(op, BufferOp) else op.operands:
            buffer = _buffer(value)
            if buffer.space.data == "persistent":
                begin = buffer.offset.value.data
                yield Packing(op, begin, begin + size(value.type))


def _buffer(value: SSAValue) -> BufferOp:
    assert isinstance(value.owner, BufferOp), "operands of a program are buffers"
    return value.owner


def _read_across(packings: Sequence[Packing], reads: Iterator[Packing]) -> set[Packing]:
    """The packings that a step reads together with adjacent memory."""
    begins, found = [packing.begin for packing in packings], set()
    for begin, end in {(read.begin, read.end) for read in reads}:
        first = max(0, bisect_right(begins, begin) - 1)
        for packing in packings[first : bisect_left(begins, end)]:
            inside = packing.begin <= begin and end <= packing.end
            if begin < packing.end and not inside:
                found.add(packing)
    return found


def _key(packing: Packing, texts: Mapping[str, str], compiled: str) -> str:
    """The key of a packing; empty unless its call writes it and reads only constants."""
    call = packing.op
    if not isinstance(call, CallOp):
        return ""
    *inputs, output = map(_buffer, call.arguments)
    literals = [_content_of(each.literal) for each in inputs if each.space.data == "constant"]
    if output.offset.value.data != packing.begin or len(literals) != len(inputs):
        return ""
    return digest(MAGIC, compiled, texts[call.callee.string_value()], *literals)


def _content_of(literal: Attribute | None) -> str:
    assert isinstance(literal, DataAttr | BlobAttr), "a constant has a literal"
    content = literal.payload.data.hex() if isinstance(literal, DataAttr) else literal.key.text
    return f"{content} {literal.type}"
