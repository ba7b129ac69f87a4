"""Maps that pack neighbouring elements into words that memory already holds."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Block, SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.tile.affine import Linear, offset
from popgraph.dialects.tile.attributes import layout_of
from popgraph.dialects.tile.structured.ops import yielded
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.support.shapes import prod


def views_words(op: tile.MapOp) -> bool:
    """Whether a map packs adjacent elements into words, so that a view of its operand is enough."""
    return _makes_words(op) and memory_holds_words(op)


def memory_holds_words(op: tile.MapOp) -> bool:
    """Whether memory holds the words of a map in their order."""
    source, word = (tensor(value) for value in (op.inputs[0], op.outputs[0]))
    if layout_of(source) is not None or layout_of(word) is not None:
        return False
    if isinstance(op.parent_op(), tile.FusedOp):
        return False  # Local memory holds one row of one element type.
    if isinstance(op.inputs[0].owner, Block):
        return False  # Memory of the caller may be unaligned.
    if prod(source.get_shape()[:-1]) == 1 and _is_piece(op.inputs[0]):
        return False  # One row may begin inside a word of the whole; several rows never do.
    count, sizes = len(op.inputs), op.sizes
    if prod(source.get_shape()) != count * prod(sizes) or word.get_shape() != sizes:
        return False
    place = offset(word, AffineMap.identity(len(sizes)), sizes)
    return all(
        offset(source, map_, sizes) == place.scaled(count) + Linear(number)
        for number, map_ in enumerate(op.input_maps)
    )


def _is_piece(value: SSAValue) -> bool:
    """Whether a tensor, or a view of it, is a piece of a concatenation."""
    readers = [use.operation for use in value.uses]
    return any(
        isinstance(reader, tile.AssembleOp)
        or (isinstance(reader, tile.ViewOp) and _is_piece(reader.output))
        for reader in readers
    )


def _makes_words(op: tile.MapOp) -> bool:
    """Whether a map packs several small integers into one, the first in the lowest bits."""
    inputs = op.mapped_inputs
    if len(inputs) < 2 or len(set(inputs)) > 1 or len(op.outputs) != 1 or op.mapped_tables:
        return False
    bits = 8 * element_bytes(tensor(inputs[0]))
    whole = 8 * element_bytes(tensor(op.outputs[0]))
    block = op.body.block
    if bits * len(inputs) != whole:
        return False
    parts = _parts(yielded(block)[0], block, bits)
    wanted = {number: bits * number for number in range(len(inputs))}
    return parts is not None and parts == wanted


def _parts(value: SSAValue, block: Block, bits: int) -> Mapping[int, int] | None:
    """{number of an argument: its lowest bit} for a word of arguments only; else None."""
    op = value.owner
    match op:
        case arith.OrIOp():
            sides = [_parts(side, block, bits) for side in op.operands]
            both = [side for side in sides if side is not None]
            if len(both) < len(sides) or both[0].keys() & both[1].keys():
                return None
            return {**both[0], **both[1]}
        case arith.ShLIOp():
            by = _constant(op.rhs)
            if isinstance(op.lhs.owner, arith.ExtSIOp) and by is not None:
                number = _argument(op.lhs.owner.input, block)
                is_last = by + bits == _width(value)
                return {number: by} if number is not None and is_last else None
            found = _parts(op.lhs, block, bits)
            if found is None or by is None:
                return None
            return {number: at + by for number, at in found.items()}
        case arith.AndIOp() if _constant(op.rhs) == (1 << bits) - 1:
            wide = op.lhs.owner
            if not isinstance(wide, arith.ExtSIOp | arith.ExtUIOp):
                return None
            number = _argument(wide.input, block)
            return None if number is None else {number: 0}
        case arith.ExtUIOp():
            number = _argument(op.input, block)
            return None if number is None else {number: 0}
    return None


def _width(value: SSAValue) -> int:
    return 8 * element_bytes(value.type)


def _constant(value: SSAValue) -> int | None:
    op = value.owner
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr):
        return op.value.value.data
    return None


def _argument(value: SSAValue, block: Block) -> int | None:
    """The number of the argument that a value is, if need be bitcast; else None."""
    if isinstance(value.owner, arith.BitcastOp):
        value = value.owner.input
    return block.args.index(value) if value in block.args else None
