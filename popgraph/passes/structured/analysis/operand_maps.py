"""Operands with their index maps: composing maps, inlining producers, rebuilding operations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, IntegerAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr, AffineExpr, AffineMap

from popgraph.dialects import tile
from popgraph.dialects.program.interned import tensor_type
from popgraph.dialects.tile.affine import composed, linear, row_major, simplified
from popgraph.dialects.tile.attributes import layout_of
from popgraph.dialects.tile.structured.ops import element, is_identity
from popgraph.dialects.value_types import set_type
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.support.shapes import Shape


@dataclass(frozen=True)
class MappedOperands:
    """
    Values read through maps, and the body that takes their elements.

    `before` arguments of the body come before those of the values (accumulators of a fold); what
    comes behind them (tables, accumulators of a reduction) stays as it is.
    """

    sizes: Shape
    values: tuple[SSAValue, ...]
    maps: tuple[AffineMap, ...]
    body: Block | None
    before: int = 0

    def replace(self, number: int, value: SSAValue, map_: AffineMap) -> MappedOperands:
        """The same, with one value read from elsewhere."""
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
    The producer of one value computed in the body, which moves, instead of read.

    Its operands are read through composed maps, its tables follow all other arguments. If nothing
    else needs its own body, that is `taken`, and moves too: copies of copies would take longer the
    more is fused.
    """
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
    """Moves a body to the end of `block`, where it takes `arguments`; gives what it yields."""
    for old, new in zip(source.args, arguments, strict=True):
        old.replace_all_uses_with(new)
    for op in list(source.ops):
        if isinstance(op, tile.YieldOp):
            return list(op.values)
        op.detach()
        block.add_op(op)
    raise AssertionError("a body ends with tile.yield")


def _moved_over(
    block: Block, source: Block, arguments: Sequence[SSAValue], map_: AffineMap, sizes: Shape
) -> list[SSAValue]:
    """Moves a body to the end of `block`; indices become those of `map_`'s results."""
    for op in list(source.ops):
        if isinstance(op, tile.IndexOp):
            op.result.replace_all_uses_with(_index(block, map_, op.dim.value.data, sizes))
            op.detach()
            op.erase()
    return moved(block, source, arguments)


def _copied_over(
    block: Block, source: Block, arguments: Sequence[SSAValue], map_: AffineMap, sizes: Shape
) -> list[SSAValue]:
    """Copies a body to the end of `block`; indices are those of `map_`'s results."""
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
    """One result of a map as a number that a body computes; `has_plain_indices` holds."""
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
    """Whether a map has no division left."""
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
    """Whether a map only reads from elsewhere: its body yields its one argument."""
    return len(op.operands) == len(op.maps) == 1 and is_identity(op.body.block)


def movement(value: SSAValue, map_: AffineMap, shape: Sequence[int]) -> tile.MapOp:
    """A map that only reads from elsewhere."""
    kind = element(value)
    body = Block(arg_types=[kind])
    body.add_op(tile.YieldOp(body.args[0]))
    return tile.MapOp([value], [map_], shape, Region(body), [kind])


def through_view(
    view: tile.ViewOp, map_: AffineMap, sizes: Shape, divided: Iterable[int] = ()
) -> AffineMap | None:
    """What `map_` into a view is into its source; None if it divides loops but `divided`."""
    if layout_of(tensor(view.source)) or layout_of(tensor(view.output)):
        return None
    viewed, source = tensor(view.output).get_shape(), tensor(view.source).get_shape()
    flat = linear(_flat(map_, viewed), sizes).expression()
    strides = row_major(source)
    results = tuple(
        (flat // max(1, stride)) % max(1, size)
        for stride, size in zip(strides, source, strict=True)
    )
    found = simplified(AffineMap(map_.num_dims, 0, results), sizes)
    return found if divided_loops(found, sizes) <= set(divided) else None


def _flat(map_: AffineMap, shape: Shape) -> AffineExpr:
    total: AffineExpr = AffineConstantExpr(0)
    for result, stride in zip(map_.results, row_major(shape), strict=True):
        total = total + result * stride
    return total


def without_repeats(reading: MappedOperands) -> MappedOperands:
    """Each (value, map) read once; where one was read again, the body moves."""
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
    """What an operation reads over its whole domain."""
    match op:
        case tile.MapOp() | tile.ReduceOp() | tile.ScatterOp():
            # Products stay as they are: a contraction takes in movements only.
            body = None if tile.is_contraction(op) else op.body.block
            return MappedOperands(op.sizes, op.mapped_inputs, op.input_maps, body)
    raise AssertionError(f"{op.name} reads nothing through maps")


def mapped_epilogue_inputs(op: tile.ReduceOp) -> MappedOperands:
    """What the epilogue of an operation reads besides its accumulators."""
    maps = op.epilogue_input_maps
    block = op.epilogue.block
    sizes = op.sizes[: op.parallel_rank]
    return MappedOperands(
        sizes, tuple(op.epilogue_inputs), maps, block, len(block.args) - len(op.epilogue_inputs)
    )


def with_operands(
    op: tile.Structured,
    *,
    inputs: MappedOperands | None = None,
    epilogue_inputs: MappedOperands | None = None,
    tables: Sequence[SSAValue] = (),
    elements: Sequence[Attribute] | None = None,
) -> tile.Structured:
    """A new operation that reads differently, for the place of `op`, whose bodies it takes."""
    inputs = mapped_inputs(op) if inputs is None else inputs
    kinds = [element(value) for value in op.results] if elements is None else elements
    new: tile.Structured
    match op:
        case tile.MapOp():
            every, body = [*op.tables, *tables], _region(inputs.body)
            new = tile.MapOp(inputs.values, inputs.maps, op.sizes, body, kinds, every)
        case tile.ScatterOp():
            # Regions are found by their number: taking the last one first leaves the other its own.
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
    """A new reduction or contraction that reads differently, before and in its epilogue."""
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
    """Gives results the layouts that they had, whatever their elements are now."""
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
    Erases an operation whose results nobody uses any more, and then what fed only it.

    Nothing happens to what is erased already: two operands may come from one place.
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
