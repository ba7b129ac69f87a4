"""Fuses elementwise work on sums (bias, activation, residual) into reduction epilogues."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import offset, reads_whole, row_major, simplified, with_dims
from popgraph.dialects.tile.attributes import layout_of
from popgraph.dialects.tile.structured.ops import element
from popgraph.passes.analysis.replace import insert_made_for, located, replace_op
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.properties import UNCUT, UNSCHEDULED
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.operand_maps import (
    MappedOperands,
    erase_unused,
    is_plain,
    mapped_epilogue_inputs,
    moved,
    with_operands,
)
from popgraph.passes.structured.analysis.permute_results import permute_results, read_in_order
from popgraph.support import index_laws
from popgraph.support.laws import Proof, Rewrite
from popgraph.support.shapes import Shape, prod

Reducer = tile.ReduceOp
FUSE = Rewrite(
    "fuse into an epilogue",
    "y = contract(...); z = map g(y, e)  ->  z = contract(...) epilogue g(..., e)",
    Proof(construction="g is applied to each finished sum, which nothing else reads"),
)
CHANGE_DOMAIN = Rewrite(
    "read operands over another domain",
    "e[map(i)] over one shape  ->  e[map'(j)] over another, at the same position",
    Proof(index_laws.ROW_MAJOR),
)
MAP_PIECES = Rewrite(
    "map pieces before they are assembled",
    "z = map g(assemble(y...), e)  ->  z = assemble(map g(y, e)...)",
    Proof(construction="each element of z is in one piece, and e does not depend on its position"),
)
REWRITES = (FUSE, CHANGE_DOMAIN, MAP_PIECES)


@dataclass(frozen=True)
class FuseEpilogue(Pass):
    """
    Fuses bias, activation and residual into the epilogue of the reduction before them.

    y = contract(...); z = map g(y, e)  ->  z = contract(...) epilogue g(..., e)

    A bias or an activation of assembled sums, such as the phases of a transposed convolution, goes
    into the epilogue of each piece.
    """

    name = "fuse-epilogue"
    NEEDS = (UNSCHEDULED, UNCUT)
    AFTER = ("fuse-elementwise",)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for op in list(module.walk()):
            if isinstance(op, tile.MapOp) and op.parent is not None:
                for piece in _on_pieces(op) or [op]:
                    fuse_into_epilogue(piece)


def _on_pieces(op: tile.MapOp) -> list[tile.MapOp]:
    """
    z = map g(assemble(y...), e)  ->  z = assemble(map g(y, e)...)

    Only when all pieces are sums that nothing else reads, and e is the same for all pieces.
    """
    if op.mapped_tables or len(op.outputs) != 1 or _uses_index(op):
        return []
    for number, value in enumerate(op.mapped_inputs):
        whole = value.owner
        if isinstance(whole, tile.AssembleOp) and _may_map_pieces(op, number, whole):
            MAP_PIECES.fires()
            return _map_pieces(op, number, whole)
    return []


def _may_map_pieces(op: tile.MapOp, number: int, whole: tile.AssembleOp) -> bool:
    shape = tensor(whole.output).get_shape()
    covered = sum(prod(tensor(piece).get_shape()) for piece in whole.pieces)
    if op.sizes != shape or not 0 < covered == prod(shape) or not _in_order(op, number):
        return False
    if element(op.outputs[0]) != element(whole.output) or not whole.output.has_one_use():
        return False
    cut = {
        dim
        for piece, *placement in whole.placements()
        for dim, at in enumerate(zip(tensor(piece).get_shape(), shape, *placement, strict=True))
        if at != (shape[dim], shape[dim], 0, 1)
    }
    others = [map_ for at, map_ in enumerate(op.input_maps) if at != number]
    return all(_is_sum(piece) for piece in whole.pieces) and not any(
        map_.used_dims() & cut for map_ in others
    )


def _is_sum(piece: SSAValue) -> bool:
    source = piece.owner.source if isinstance(piece.owner, tile.ViewOp) else piece
    return isinstance(source.owner, Reducer) and piece.has_one_use() and source.has_one_use()


def _map_pieces(op: tile.MapOp, number: int, whole: tile.AssembleOp) -> list[tile.MapOp]:
    made = []
    for piece in whole.pieces:
        inputs, shape = list(op.mapped_inputs), tensor(piece).get_shape()
        inputs[number] = piece
        kinds = [element(op.outputs[0])]
        made.append(tile.MapOp(inputs, op.input_maps, shape, op.body.clone(), kinds))
    _, offsets, steps = zip(*whole.placements(), strict=True)
    values = [one.outputs[0] for one in made]
    insert_made_for(op, *made)
    replace_op(op, tile.AssembleOp(values, offsets, steps, whole.fill, tensor(op.outputs[0])))
    erase_unused(whole)
    return made


def fuse_into_epilogue(op: tile.MapOp) -> None:
    """
    Moves a map into the epilogue of the reduction that computes one of its operands.

    Only when that operand is used once, and the map reads each of its elements once. A view between
    them is applied to the other operands and to the result instead. If the map reads a contraction
    with permuted axes, the loops of the contraction are permuted.
    """
    if op.mapped_tables or len(op.outputs) != 1 or _uses_index(op):
        return
    for number, value in enumerate(op.mapped_inputs):
        view = value.owner if isinstance(value.owner, tile.ViewOp) else None
        source = view.source if view else value
        reducer = source.owner
        # y + transpose(y) needs two elements of y at once: an epilogue has one.
        if not isinstance(reducer, Reducer) or list(op.mapped_inputs).count(value) != 1:
            continue
        if not value.has_one_use() or not source.has_one_use() or len(reducer.outputs) != 1:
            continue
        if prod(op.sizes) != prod(tensor(value).get_shape()) or 0 in op.sizes:
            continue  # y[:4] is read in order, but not whole
        if not _in_order(op, number):
            # A transposed gradient: its weight is then updated while the sums are in registers.
            order = read_in_order(op.input_maps[number], op.sizes)
            if view or order is None or not tile.is_contraction(reducer):
                continue
            reducer = permute_results(op, number, reducer, order)
        shape = tensor(reducer.outputs[0]).get_shape()
        others = _others(op, number, shape if shape != op.sizes else None)
        if others is not None:
            _join(op, number, reducer, *others)
            return


def _in_order(op: tile.MapOp, number: int) -> bool:
    """Whether a map reads a dense operand from its first element to its last, in order."""
    type_ = tensor(op.mapped_inputs[number])
    whole = offset(tensor(op.outputs[0]), AffineMap.identity(len(op.sizes)), op.sizes)
    return layout_of(type_) is None and offset(type_, op.input_maps[number], op.sizes) == whole


def _uses_index(op: tile.MapOp) -> bool:
    return any(isinstance(inner, tile.IndexOp) for inner in op.body.block.ops)


Others = tuple[list[SSAValue], list[AffineMap], list[tile.ViewOp]]


def _others(op: tile.MapOp, number: int, shape: Shape | None) -> Others | None:
    """
    The other operands, read over the domain `shape`; None means the domain of the map itself.

    An operand that the map reads whole gets a view, so that it is still read in order.
    """
    values: list[SSAValue] = []
    maps: list[AffineMap] = []
    views: list[tile.ViewOp] = []
    for at, (value, map_) in enumerate(zip(op.mapped_inputs, op.input_maps, strict=True)):
        if at == number:
            continue
        if shape is None:
            values.append(value)
            maps.append(map_)
        elif reads_whole(tensor(value), map_, op.sizes) and layout_of(tensor(value)) is None:
            views.append(tile.ViewOp(value, shape))
            values.append(views[-1].output)
            maps.append(AffineMap.identity(len(shape)))
        else:
            # Over [c, h, w] instead of [c, h * w], a bias [c, 1] is still read without division.
            found = _over(map_, op.sizes, shape)
            if not is_plain(found, shape):
                for view in views:
                    view.erase()
                return None
            values.append(value)
            maps.append(found)
    return values, maps, views


def _over(map_: AffineMap, old: Shape, new: Shape) -> AffineMap:
    """Rewrites a map over the domain `old` for the domain `new` with as many elements."""
    CHANGE_DOMAIN.fires()
    flat: AffineExpr = AffineExpr.constant(0)
    for dim, stride in enumerate(row_major(new)):
        flat = flat + AffineExpr.dimension(dim) * stride
    indices = [
        (flat // max(1, stride)) % max(1, size)
        for stride, size in zip(row_major(old), old, strict=True)
    ]
    return simplified(with_dims(map_, indices, len(new)), new)


def _join(
    op: tile.MapOp,
    number: int,
    reducer: Reducer,
    values: list[SSAValue],
    maps: list[AffineMap],
    views: list[tile.ViewOp],
) -> None:
    FUSE.fires()
    old = mapped_epilogue_inputs(reducer)
    epilogue = _compose_epilogue(old, op, number)
    epilogue_inputs = MappedOperands(
        old.sizes, (*old.values, *values), (*old.maps, *maps), epilogue, old.before
    )
    kind = element(op.outputs[0])
    joined = with_operands(reducer, epilogue_inputs=epilogue_inputs, elements=[kind])
    located(joined, reducer, op)
    insert_made_for(op, *views)
    shape = tensor(op.outputs[0]).get_shape()
    result = joined.results[0]
    sources = [owner for value in op.mapped_inputs if isinstance(owner := value.owner, tile.ViewOp)]
    if tensor(result).get_shape() == shape:
        replace_op(op, joined)
    else:
        Rewriter.insert_op(joined, InsertPoint.before(op))
        replace_op(op, tile.ViewOp(result, shape))
    for source in sources:
        if source.parent is not None:
            erase_unused(source)
    if reducer.parent is not None:
        erase_unused(reducer)


def _compose_epilogue(old: MappedOperands, op: tile.MapOp, number: int) -> Block:
    """The epilogue followed by the body of the map; the other operands of the map come last."""
    assert old.body is not None
    body = op.body.block
    others = [argument.type for at, argument in enumerate(body.args) if at != number]
    block = Block(arg_types=[*[argument.type for argument in old.body.args], *others])
    own, fresh = block.args[: len(old.body.args)], block.args[len(old.body.args) :]
    total = moved(block, old.body, own)[0]
    block.add_op(tile.YieldOp(*moved(block, body, [*fresh[:number], total, *fresh[number:]])))
    return block
