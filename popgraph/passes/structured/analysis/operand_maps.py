"""Operands with their index maps: composing maps, inlining producers, rebuilding operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, IntegerAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr, AffineExpr, AffineMap

from popgraph.dialects import tile
from popgraph.dialects.program.interned import tensor_type
from popgraph.dialects.tile.affine import composed, linear, remembered, row_major, simplified
from popgraph.dialects.tile.attributes import layout_of
from popgraph.dialects.tile.scalars import is_exact
from popgraph.dialects.tile.structured.ops import element, is_identity
from popgraph.dialects.unchecked import move_operations
from popgraph.dialects.value_types import set_type
from popgraph.passes.analysis.replace import insert_made_for
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.support.laws import Proof, Rewrite
from popgraph.support.shapes import Shape

DROP_ROUNDING = Rewrite(
    "drop a rounding",
    "extf (truncf x)  ->  x",
    Proof(
        construction="x is a number of the narrow type: it was widened from it, or computed from "
        "such numbers by functions that are exact in every float type"
    ),
)


@dataclass(frozen=True)
class MappedOperands:
    """
    Values with their index maps, and the body that takes their elements.

    Arguments of the body: `before` accumulators of an epilogue, one per value, then tables or
    accumulators of a reduction, which stay unchanged.
    """

    sizes: Shape
    values: tuple[SSAValue, ...]
    maps: tuple[AffineMap, ...]
    body: Block | None
    before: int = 0

    def replace(self, number: int, value: SSAValue, map_: AffineMap) -> MappedOperands:
        """A copy that reads another value, through another map, as number `number`."""
        values, maps = list(self.values), list(self.maps)
        values[number], maps[number] = value, map_
        return replace(self, values=tuple(values), maps=tuple(maps))


def inline_producer(
    reading: MappedOperands,
    number: int,
    producer: tile.MapOp,
    tables: Sequence[SSAValue] = (),
    *,
    taken: bool = False,
) -> MappedOperands:
    """
    Computes the producer of one value in the body, which moves to a new block.

    x = map g(a); body(x)  ->  body(g(a))

    Operands of the producer are read through composed maps; its tables follow all other arguments.
    With `taken`, nothing else needs the body of the producer, so that it moves, too.
    """
    # Copying instead of moving costs the square of the length of a chain of fusions.
    old, made = reading.body, producer.body.block
    assert old is not None
    at = reading.before + number
    count, inputs = len(reading.values), len(producer.maps)
    kinds = [argument.type for argument in old.args]
    first = reading.before + count
    new = Block(
        arg_types=[
            *kinds[:at],
            *kinds[at + 1 : first],
            *map(element, producer.mapped_inputs),
            *kinds[first:],
            *[table.type for table in tables],
        ]
    )
    kept: list[SSAValue] = list(new.args)
    start = first - 1
    fresh = kept[start : start + inputs]
    end = len(kept) - len(tables)
    map_ = reading.maps[number]
    write = _moved_over if taken else _copied_over
    (result,) = write(new, made, [*fresh, *kept[end:]], map_, reading.sizes)
    others = [*kept[:at], result, *kept[at:start], *kept[start + inputs : end]]
    new.add_op(tile.YieldOp(*moved(new, old, others)))
    maps = [composed(inner, map_, reading.sizes) for inner in producer.input_maps]
    return replace(
        reading,
        values=(*reading.values[:number], *reading.values[number + 1 :], *producer.mapped_inputs),
        maps=(*reading.maps[:number], *reading.maps[number + 1 :], *maps),
        body=new,
    )


def moved(block: Block, source: Block, arguments: Sequence[SSAValue]) -> list[SSAValue]:
    """
    Moves a body to the end of `block` with new arguments; returns the yielded values.

    Roundings that change nothing are left out.
    """
    for old, new in zip(source.args, arguments, strict=True):
        old.replace_all_uses_with(new)
    end = source.last_op
    assert isinstance(end, tile.YieldOp), "a body ends with tile.yield"
    for op in [op for op in source.ops if type(op) is arith.ExtFOp]:
        if _rounds_nothing(op):
            op.detach()
            _drop_rounding(op)
    results = list(end.values)
    end.detach()
    end.operands = []  # The terminator is no longer a use of moved values.
    move_operations(source, block)
    return results


def _rounds_nothing(op: arith.ExtFOp) -> bool:
    """Whether a value that the type of the operand has was rounded to it, to be widened again."""
    rounded = op.input.owner
    return (
        isinstance(rounded, arith.TruncFOp)
        and rounded.input.type == op.result.type
        and is_exact(rounded.input, op.input.type)
    )


def _drop_rounding(op: arith.ExtFOp) -> None:
    DROP_ROUNDING.fires()
    rounded = op.input.owner
    assert isinstance(rounded, arith.TruncFOp)
    op.result.replace_all_uses_with(rounded.input)
    op.erase()
    if not rounded.result.uses:
        rounded.detach()
        rounded.erase()


def read_factor(
    op: tile.ReduceOp, number: int, stored: SSAValue, write: Callable[[Block, SSAValue], SSAValue]
) -> None:
    """Replaces a factor of a contraction by its stored form, which `write` converts in the body."""
    old = op.body.block
    kinds = [argument.type for argument in old.args]
    kinds[number] = element(stored)
    body = Block(arg_types=kinds)
    values: list[SSAValue] = list(body.args)
    values[number] = write(body, values[number])
    body.add_op(tile.YieldOp(*moved(body, old, values)))
    op.body.detach_block(old)
    old.erase()
    op.body.add_block(body)
    op.operands[number] = stored


def views_above(value: SSAValue) -> tuple[list[tile.ViewOp], Operation | Block]:
    """The views through which a value is seen, the last one first, and the owner of the memory."""
    views, owner = list[tile.ViewOp](), value.owner
    while isinstance(owner, tile.ViewOp):
        views.append(owner)
        owner = owner.source.owner
    return views, owner


def viewed_again(value: SSAValue, views: Sequence[tile.ViewOp]) -> SSAValue:
    """Another value through copies of these views, the last one first."""
    for view in reversed(views):
        seen = tile.ViewOp(value, tensor(view.output).get_shape())
        insert_made_for(view, seen)
        value = seen.output
    return value


def _moved_over(
    block: Block, source: Block, arguments: Sequence[SSAValue], map_: AffineMap, sizes: Shape
) -> list[SSAValue]:
    """Moves a body to the end of `block`; indices become the results of `map_`."""
    for op in list(source.ops):
        if isinstance(op, tile.IndexOp):
            op.result.replace_all_uses_with(_index(block, map_, op.dim.value.data, sizes))
            op.detach()
            op.erase()
    return moved(block, source, arguments)


def _copied_over(
    block: Block, source: Block, arguments: Sequence[SSAValue], map_: AffineMap, sizes: Shape
) -> list[SSAValue]:
    """Copies a body to the end of `block`; indices become the results of `map_`."""
    values: dict[SSAValue, SSAValue] = dict(zip(source.args, arguments, strict=True))
    for op in source.ops:
        if isinstance(op, tile.YieldOp):
            return [values[value] for value in op.values]
        if isinstance(op, tile.IndexOp):
            values[op.result] = _index(block, map_, op.dim.value.data, sizes)
        else:
            block.add_op(op.clone(value_mapper=values))
    raise AssertionError("a body ends with tile.yield")


def _index(block: Block, map_: AffineMap, dim: int, sizes: Shape) -> SSAValue:
    """Computes one result of a map without divisions in a body."""
    form = linear(map_.results[dim], sizes)
    total: SSAValue | None = None
    for atom, factor in form.terms.items():
        assert isinstance(atom, AffineDimExpr)
        value = _added(block, tile.IndexOp(atom.position))
        if factor != 1:
            value = _added(block, arith.MuliOp(value, _number(block, factor)))
        total = value if total is None else _added(block, arith.AddiOp(total, value))
    if total is None:
        return _number(block, form.constant)
    if form.constant:
        total = _added(block, arith.AddiOp(total, _number(block, form.constant)))
    return total


def _number(block: Block, value: int) -> SSAValue:
    return _added(block, arith.ConstantOp(IntegerAttr(value, IndexType())))


def _added(block: Block, op: Operation) -> SSAValue:
    block.add_op(op)
    return op.results[0]


def is_plain(map_: AffineMap, sizes: Sequence[int]) -> bool:
    """Whether a map has no divisions after simplification."""
    return not divided_loops(map_, sizes)


def divided_loops(map_: AffineMap, sizes: Sequence[int]) -> set[int]:
    """The loops whose index a map divides."""
    atoms = [atom for result in map_.results for atom in linear(result, sizes).terms]
    return {
        dim for atom in atoms if not isinstance(atom, AffineDimExpr) for dim in atom.used_dims()
    }


def is_selection(map_: AffineMap) -> bool:
    """Whether every result is a dimension or a constant."""
    return all(isinstance(result, AffineDimExpr | AffineConstantExpr) for result in map_.results)


def is_movement(op: tile.MapOp) -> bool:
    """Whether a map only moves elements: its body yields its one argument."""
    return len(op.operands) == len(op.maps) == 1 and is_identity(op.body.block)


def movement(value: SSAValue, map_: AffineMap, shape: Sequence[int]) -> tile.MapOp:
    """A map that only moves elements: y[i] = value[map_(i)]."""
    kind = element(value)
    body = Block(arg_types=[kind])
    body.add_op(tile.YieldOp(body.args[0]))
    return tile.MapOp([value], [map_], shape, Region(body), [kind])


def through_view(
    view: tile.ViewOp, map_: AffineMap, sizes: Shape, divided: Iterable[int] = ()
) -> AffineMap | None:
    """Composes `map_` with a view; None if the result divides loops other than `divided`."""
    if layout_of(tensor(view.source)) or layout_of(tensor(view.output)):
        return None
    viewed, source = tensor(view.output).get_shape(), tensor(view.source).get_shape()
    found, divides = _through_reshape(viewed, source, map_, sizes)
    return found if divides <= set(divided) else None


@remembered
def _through_reshape(
    viewed: Shape, source: Shape, map_: AffineMap, sizes: Shape
) -> tuple[AffineMap, set[int]]:
    """Composes a map into one shape with a row-major view of another; and the divided loops."""
    flat = linear(_flat(map_, viewed), sizes).expression()
    strides = row_major(source)
    results = tuple(
        (flat // max(1, stride)) % max(1, size)
        for stride, size in zip(strides, source, strict=True)
    )
    found = simplified(AffineMap(map_.num_dims, 0, results), sizes)
    return found, divided_loops(found, sizes)


def _flat(map_: AffineMap, shape: Shape) -> AffineExpr:
    total: AffineExpr = AffineConstantExpr(0)
    for result, stride in zip(map_.results, row_major(shape), strict=True):
        total = total + result * stride
    return total


def without_repeats(reading: MappedOperands) -> MappedOperands:
    """Merges equal (value, map) pairs into one argument; the body moves if there are any."""
    if reading.body is None or len(set(reading.values)) == len(reading.values):
        return reading
    maps = [simplified(map_, reading.sizes) for map_ in reading.maps]
    seen: dict[tuple[SSAValue, AffineMap], int] = {}
    keep: list[int] = []
    places: list[int] = []
    for number, key in enumerate(zip(reading.values, maps, strict=True)):
        if key not in seen:
            seen[key] = len(keep)
            keep.append(number)
        places.append(seen[key])
    if len(keep) == len(places):
        return reading
    old, before = reading.body, reading.before
    kinds = [argument.type for argument in old.args]
    behind = kinds[before + len(places) :]
    new = Block(arg_types=[*kinds[:before], *[kinds[before + at] for at in keep], *behind])
    rest = list(new.args)[before + len(keep) :]
    others = [*new.args[:before], *[new.args[before + at] for at in places], *rest]
    new.add_op(tile.YieldOp(*moved(new, old, others)))
    return replace(
        reading,
        values=tuple(reading.values[at] for at in keep),
        maps=tuple(maps[at] for at in keep),
        body=new,
    )


# MappedOperands and rebuilding operations


def mapped_inputs(op: tile.Structured) -> MappedOperands:
    """The operands that an operation reads over its whole domain."""
    match op:
        case tile.MapOp() | tile.ReduceOp() | tile.ScatterOp():
            # The body of a contraction stays: only movements are fused into it.
            body = None if tile.is_contraction(op) else op.body.block
            return MappedOperands(op.sizes, op.mapped_inputs, op.input_maps, body)
    raise AssertionError(f"{op.name} reads nothing through maps")


def mapped_epilogue_inputs(op: tile.ReduceOp) -> MappedOperands:
    """The operands that an epilogue reads besides its accumulators."""
    maps = op.epilogue_input_maps
    block = op.epilogue.block
    sizes = op.sizes[: op.parallel_rank]
    inputs = op.mapped_epilogue_inputs
    return MappedOperands(sizes, inputs, maps, block, len(block.args) - len(inputs))


def with_operands(
    op: tile.Structured,
    *,
    inputs: MappedOperands | None = None,
    epilogue_inputs: MappedOperands | None = None,
    tables: Sequence[SSAValue] = (),
    elements: Sequence[Attribute] | None = None,
) -> tile.Structured:
    """A new operation with other operands that takes over the bodies of `op`."""
    inputs = mapped_inputs(op) if inputs is None else inputs
    kinds = [element(value) for value in op.results] if elements is None else elements
    new: tile.Structured
    match op:
        case tile.MapOp():
            every, body = [*op.mapped_tables, *tables], _region(inputs.body)
            new = tile.MapOp(inputs.values, inputs.maps, op.sizes, body, kinds, every)
        case tile.ScatterOp():
            # Detaching a region renumbers later ones, so the last one is taken first.
            combine = None if op.combine is None else _region(op.combine.block)
            sizes, rank, body = op.sizes, op.parallel_rank, _region(inputs.body)
            new = tile.ScatterOp(
                inputs.values,
                inputs.maps,
                sizes,
                rank,
                body,
                tensor(op.output),
                op.initial,
                combine,
            )
        case tile.ReduceOp():
            epilogue = mapped_epilogue_inputs(op) if epilogue_inputs is None else epilogue_inputs
            new = _with_epilogue(op, inputs, epilogue, kinds)
        case _:
            raise AssertionError(f"{op.name} reads nothing through maps")
    new.location = op.location
    _keep_layouts(op, new)
    return new


def _with_epilogue(
    op: tile.ReduceOp,
    inputs: MappedOperands,
    epilogue: MappedOperands,
    kinds: Sequence[Attribute],
) -> tile.ReduceOp:
    """A new reduction or contraction with other operands of its body and its epilogue."""
    schedule, blocks = op.schedule, op.blocks
    return tile.ReduceOp(
        inputs.values,
        inputs.maps,
        op.sizes,
        op.parallel_rank,
        list(op.initial),
        _region(inputs.body or op.body.block),
        _region(epilogue.body),
        kinds,
        epilogue.values,
        epilogue.maps,
        tile.is_contraction(op),
        schedule,
        blocks,
    )


def _keep_layouts(old: tile.Structured, new: tile.Structured) -> None:
    """Copies layouts of results, whose element types may differ."""
    for before, result in zip(old.results, new.results, strict=True):
        if layout_of(tensor(before)):
            type_, encoding = tensor(result), tensor(before).encoding
            laid_out = tensor_type(type_.element_type, type_.get_shape(), encoding)
            set_type(result, laid_out)


def _region(body: Block | None) -> Region:
    assert body is not None
    region = body.parent
    if region is None:
        return Region(body)
    if region.parent is not None:
        region.parent.detach_region(region)
    return region


def erase_unused(op: Operation) -> None:
    """
    Erases an operation without uses, and then its producers that lose their last use.

    An operation that is already erased is skipped, as two operands may share a producer.
    """
    waiting = [op]
    while waiting:
        op = waiting.pop()
        if op.parent is None or any(result.first_use is not None for result in op.results):
            continue
        owners = [operand.owner for operand in dict.fromkeys(op.operands)]
        op.detach()
        op.erase()
        waiting += [
            owner
            for owner in owners
            if isinstance(owner, Operation) and owner.name.startswith("tile.")
        ]
