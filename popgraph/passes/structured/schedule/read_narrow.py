"""Contractions that read narrow operands as stored, and widen them at each read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from xdsl.dialects import arith
from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntegerAttr, ModuleOp, f32
from xdsl.ir import Block, Operation, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineExpr, AffineMap
from xdsl.rewriter import Rewriter

from popgraph.dialects import tile
from popgraph.dialects.program import IntsAttr
from popgraph.dialects.tile.affine import reads_whole, selection
from popgraph.dialects.tile.attributes import layout_of
from popgraph.dialects.tile.scalars import lane_bytes, widening, widens
from popgraph.dialects.tile.structured.ops import element, indexed_dims, maps_attribute, yielded
from popgraph.dialects.tile.structured.product import copied
from popgraph.passes.analysis.replace import insert_made_for
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.properties import UNCUT
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.operand_maps import (
    erase_unused,
    read_factor,
    viewed_again,
    views_above,
)
from popgraph.passes.structured.analysis.panels import split_map, split_sizes
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target, Tuning
from popgraph.support.words import NIBBLE


@dataclass(frozen=True)
class ReadNarrow(Pass):
    """
    y = contract x, (widen w)  ->  y = contract x, w

    Only when few results share an element of w (`most_narrow_uses`). Loading w then takes longer
    than its products, and half the bytes take half the time; else w is widened once.

    An operation that computes w and widens it last stores it narrow as well. Packed sub-byte
    elements are unpacked at each read, however often, so that they stay packed in memory.
    """

    name = "read-narrow"
    NEEDS = (UNCUT,)
    BEFORE = ("schedule-contractions",)
    target: Target = Target()

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for op in list(module.walk()):
            if not tile.is_contraction(op) or op.schedule is not None:
                continue
            # Packed elements are unpacked at each read: 16 nibbles are 8 bytes, as floats 64.
            if not op.looks_up_factors and not read_packed(op, self.target):
                self._read_narrow(op)

    def _read_narrow(self, op: tile.ReduceOp) -> None:
        if _uses(op) > self.target.tuning.most_narrow_uses:
            return
        views, wide = views_above(op.rhs)
        narrow = _stored(wide) if isinstance(wide, tile.MapOp) else None
        if narrow is None or isinstance(wide, Block):
            return
        read_factor(op, 1, viewed_again(narrow, views), _widened)
        for unread in (*views, wide):
            erase_unused(unread)


def read_packed(op: tile.ReduceOp, target: Target) -> bool:
    """
    y = contract x, (f(w, i) at index i)  ->  y = contract x, w ... body: f(w, i)

    Only when f extracts bits of an element of w, at one index i that does not address w. The loop
    over numbers is split in two: over elements of w, and over the numbers packed in each. A code of
    as many values as a vector has lanes is looked up, another one is converted.
    """
    value, first = _integer_codes(op.rhs)
    view = value.owner
    source = view.source if isinstance(view, tile.ViewOp) else value
    found = source.owner
    if not isinstance(found, tile.MapOp) or len(found.outputs) != 1 or len(found.operands) != 1:
        return False
    (end,) = yielded(found.body.block)
    indexed = indexed_dims(found.body.block)
    if len(indexed) != 1 or not all(isinstance(one, _BITS) for one in found.body.block.ops):
        return False
    if layout_of(tensor(op.rhs)) or layout_of(tensor(source)):
        return False
    lanes = target.machine.lanes(lane_bytes(f32))
    if first is not None and not _reads_codes(op, _codes(end), lanes, target.tuning):
        return False
    (dim,) = indexed
    axis, count = dim - 1, found.sizes[dim]
    rest = [other for other in range(len(found.sizes)) if other != dim]
    shape = tensor(found.inputs[0]).get_shape()
    numbers = (*shape[:axis], shape[axis] * count, *shape[axis + 1 :])
    result = op.input_maps[1].results[axis] if tensor(op.rhs).get_shape() == numbers else None
    if not isinstance(result, AffineDimExpr) or found.input_maps[0] != _kept(rest, len(rest) + 1):
        return False
    loop = result.position
    others = [map_ for at, map_ in enumerate(op.input_maps[1].results) if at != axis]
    # Only a loop over terms can be split, and only if no other index of w uses it.
    if loop < op.blocked_rank or any(loop in other.used_dims() for other in others):
        return False
    _split_loop(op, loop, axis, count)
    last = op.rhs.owner
    read_factor(op, 1, found.inputs[0], partial(_part, found.body.block, loop + 1, first, lanes))
    assert isinstance(last, Operation)
    erase_unused(last)
    return True


def _reads_codes(
    op: tile.ReduceOp, codes: tuple[SSAValue, int] | None, lanes: int, tuning: Tuning
) -> bool:
    """Whether reads take codes, not floats: unless many reads would convert the same ones."""
    return codes is not None and (codes[1] == lanes or _uses(op) <= tuning.most_narrow_uses)


def _integer_codes(value: SSAValue) -> tuple[SSAValue, float | None]:
    """The integers that a map converts to f32 and the float of code 0; else `value` and None."""
    made = value.owner
    if not isinstance(made, tile.MapOp) or len(made.outputs) != 1 or not _reads_in_place(made):
        return value, None
    (end,), first = yielded(made.body.block), 0.0
    if isinstance(end.owner, arith.AddfOp):
        added = end.owner.rhs.owner
        if not isinstance(added, arith.ConstantOp) or not isinstance(added.value, FloatAttr):
            return value, None
        end, first = end.owner.lhs, added.value.value.data
    if not isinstance(end.owner, arith.SIToFPOp) or end.type != f32:
        return value, None
    return (made.inputs[0], first) if end.owner.input in made.body.block.args else (value, None)


_BITS = (
    *(tile.IndexOp, tile.YieldOp, arith.IndexCastOp, arith.ConstantOp),
    *(arith.MuliOp, arith.ShRSIOp, arith.AndIOp),
)
"""Operations that extract bits of an element."""


def _codes(part: SSAValue) -> tuple[SSAValue, int] | None:
    """(v, count) for a part v & (count - 1), if `count` is small enough for a lookup table."""
    op = part.owner
    if isinstance(op, arith.AndIOp) and isinstance(op.rhs.owner, arith.ConstantOp):
        mask = op.rhs.owner.value
        if isinstance(mask, IntegerAttr) and mask.value.data in _MASKS:
            return op.lhs, mask.value.data + 1
    return None


# Up to 16 floats are one register of AVX-512, from which `vpermps` selects a vector at once.
_MASKS = frozenset((1 << bits) - 1 for bits in range(1, NIBBLE + 1))


def _widened(body: Block, value: SSAValue) -> SSAValue:
    wide = widening(value, f32)
    body.add_op(wide)
    return wide.results[0]


def _part(
    found: Block, loop: int, first: float | None, lanes: int, body: Block, stored: SSAValue
) -> SSAValue:
    """
    Writes the extraction that `found` computes, at the index along a loop.

    With `first`, the part is a code: it stands for one of the floats `first`, `first` + 1, ...
    """
    values: dict[SSAValue, SSAValue] = {found.args[0]: stored}
    (end,) = yielded(found)
    codes = _codes(end) if first is not None else None
    if codes is None or first is None:
        return copied(body, end, values, lambda _: loop)
    index, count = codes
    if count != lanes:
        code = _widened(body, copied(body, end, values, lambda _: loop))
        start = arith.ConstantOp(FloatAttr(first, f32))
        added = arith.AddfOp(code, start)
        body.add_ops([start, added])
        return added.result
    numbers = ArrayAttr([FloatAttr(first + code, f32) for code in range(count)])
    pick = tile.PickOp(numbers, copied(body, index, values, lambda _: loop))
    body.add_op(pick)
    return pick.result


def _kept(dims: Sequence[int], rank: int) -> AffineMap:
    """The map to these dimensions of a domain."""
    return AffineMap(rank, 0, selection(dims).results)


def _split_loop(op: tile.ReduceOp, loop: int, axis: int, count: int) -> None:
    """Splits a reduction loop: over elements of the right operand, and over their parts."""
    lhs, rhs = (split_map(map_, loop, count) for map_ in op.input_maps)
    results = list(rhs.results)
    results[axis] = AffineExpr.dimension(loop)
    op.properties["maps"] = maps_attribute([lhs, AffineMap(rhs.num_dims, 0, tuple(results))])
    op.properties["domain"] = IntsAttr.of(split_sizes(op.sizes, loop, count))


def _uses(op: tile.ReduceOp) -> int:
    """Results that share an element of the right operand."""
    used = op.input_maps[1].used_dims()
    outer = op.sizes[: op.parallel_rank]
    return prod(size for dim, size in enumerate(outer) if dim not in used)


def _stored(wide: tile.MapOp) -> SSAValue | None:
    """The narrow elements that a map widens; None if it does not end with a widening."""
    block = wide.body.block
    if len(wide.outputs) != 1 or layout_of(tensor(wide.outputs[0])) is not None:
        return None
    maker = yielded(block)[0].owner
    if not isinstance(maker, arith.ExtFOp | arith.SIToFPOp):
        return None
    if not widens(maker.operands[0].type, element(wide.outputs[0])):
        return None
    if maker.operands[0] in block.args and _reads_in_place(wide):
        return wide.inputs[0]
    # Another reader of the wide result would compute the map twice.
    return _before_last(wide) if wide.outputs[0].has_one_use() else None


def _reads_in_place(wide: tile.MapOp) -> bool:
    """Whether a map reads its one operand with the identity map and without a layout."""
    if len(wide.inputs) != 1 or wide.tables:
        return False
    stored = tensor(wide.inputs[0])
    return layout_of(stored) is None and reads_whole(stored, wide.input_maps[0], wide.sizes)


def _before_last(wide: tile.MapOp) -> SSAValue:
    """Clones a map without the last operation of its body."""
    region = wide.body.clone()
    (end,) = yielded(region.block)
    last, old = end.owner, region.block.last_op
    assert isinstance(last, Operation) and old is not None
    number = last.operands[0]
    Rewriter.erase_op(old)
    Rewriter.erase_op(last)
    region.block.add_op(tile.YieldOp(number))
    made = tile.MapOp(wide.inputs, wide.input_maps, wide.sizes, region, [number.type], wide.tables)
    insert_made_for(wide, made)
    return made.outputs[0]
