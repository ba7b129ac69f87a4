"""Fusion of elementwise maps into the operations that read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.tile.affine import composed, linear, reads_whole
from popgraph.dialects.tile.scalars import is_costly
from popgraph.passes.analysis.replace import located, replace_op
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.operand_maps import (
    MappedOperands,
    erase_unused,
    inline_producer,
    is_movement,
    is_plain,
    is_selection,
    mapped_epilogue_inputs,
    mapped_inputs,
    through_view,
    with_operands,
    without_repeats,
)
from popgraph.support.shapes import prod
from popgraph.support.tuning import Tuning

Consumer = tile.MapOp | tile.ReduceOp | tile.ScatterOp


@dataclass(frozen=True)
class FuseElementwise(Pass):
    """
    Compute what is read once where it is read: maps become part of the bodies of their readers.

    Movements (transposes, slices, broadcasts) become part of index maps, also of contractions.
    """

    name = "fuse-elementwise"
    tuning: Tuning = Tuning()

    @classmethod
    def of(cls, options: Options) -> FuseElementwise:
        return cls(options.tuning)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        found = [op for op in module.walk() if isinstance(op, Consumer)]
        # Contractions first: they can take in movements, as long as nothing else is part of them.
        for op in sorted(found, key=lambda op: not tile.is_contraction(op)):
            if op.parent is not None:
                _fuse_into(op, self.tuning)


def _fuse_into(consumer: Consumer, tuning: Tuning) -> None:
    """Takes in everything that may be, until nothing more may."""
    changed: Consumer | None = consumer
    while changed is not None:
        consumer = changed
        reading = mapped_inputs(consumer)
        steps = chain(
            repeats_dropped(consumer, reading),
            view_looked_through(consumer, reading),
            producer_inlined(consumer, reading, tuning),
            epilogue_input_moved(consumer),
        )
        changed = next(steps, None)


def view_looked_through(consumer: Consumer, reading: MappedOperands) -> Iterator[Consumer]:
    """
    z = f(view x)  ->  z = f(x)

    Only when the map into x needs no division; for factors of a contraction, only when it stays as
    simple as it was or x is a map that may follow. Then, loops of sums and groups may be divided.
    """
    for number, value in enumerate(reading.values):
        view = value.owner
        if not isinstance(view, tile.ViewOp):
            continue
        divided = _shared(consumer) if _is_shuffled(view) else ()
        map_ = through_view(view, reading.maps[number], reading.sizes, divided)
        if map_ is None:
            continue
        if tile.is_contraction(consumer) and not _worth_it(view, reading.maps[number], map_):
            continue
        yield _replace(consumer, reading.replace(number, view.source, map_), [view])


def _worth_it(view: tile.ViewOp, old: AffineMap, new: AffineMap) -> bool:
    return _is_shuffled(view) or is_selection(new) or not is_selection(old)


def _is_shuffled(view: tile.ViewOp) -> bool:
    """Whether a view that is read once is of something that only moves elements."""
    source = view.source.owner
    return isinstance(source, tile.MapOp) and is_movement(source) and view.output.has_one_use()


def _shared(consumer: Consumer) -> set[int]:
    """The loops of a contraction that neither rows nor vectors run along: sums, and groups."""
    if not tile.is_contraction(consumer):
        return set()
    sums = set(range(consumer.parallel_rank, len(consumer.sizes)))
    lhs, rhs = (map_.used_dims() for map_ in consumer.input_maps)
    return sums | (lhs & rhs)


def producer_inlined(
    consumer: Consumer, reading: MappedOperands, tuning: Tuning
) -> Iterator[Consumer]:
    """
    y = map f(x); z = g(y)  ->  z = g(f(x))

    Only when f runs no more often than before, or costs nothing.
    """
    for number, value in enumerate(reading.values):
        producer = value.owner
        if not isinstance(producer, tile.MapOp) or not may_inline(
            consumer, reading, number, tuning
        ):
            continue
        if tile.is_contraction(consumer):
            moved = body_map(producer, reading, number)
            yield _replace(consumer, moved, [producer])
        else:
            tables, taken = list(producer.tables), value.has_one_use()
            inlined = inline_producer(reading, number, producer, tables, taken=taken)
            yield _replace(consumer, inlined, [producer], tables)


def body_map(producer: tile.MapOp, reading: MappedOperands, number: int) -> MappedOperands:
    """A movement taken into an index map."""
    map_ = composed(producer.input_maps[0], reading.maps[number], reading.sizes)
    return reading.replace(number, producer.operands[0], map_)


def epilogue_input_moved(consumer: Consumer) -> Iterator[Consumer]:
    """Extras of an epilogue are read through movements and views, too."""
    if not isinstance(consumer, tile.ReduceOp):
        return
    reading = mapped_epilogue_inputs(consumer)
    for number, value in enumerate(reading.values):
        producer = value.owner
        if isinstance(producer, tile.ViewOp):
            map_ = through_view(producer, reading.maps[number], reading.sizes)
            if map_ is None:
                continue
            changed = reading.replace(number, producer.source, map_)
        elif isinstance(producer, tile.MapOp) and is_movement(producer):
            changed = body_map(producer, reading, number)
        else:
            continue
        made = with_operands(consumer, epilogue_inputs=changed)
        assert isinstance(made, Consumer)
        replace_op(consumer, made)
        erase_unused(producer)
        yield made


def repeats_dropped(consumer: Consumer, reading: MappedOperands) -> Iterator[Consumer]:
    """z = map g(x, x)  ->  z = map g'(x)"""
    once = without_repeats(reading)
    if once is not reading:
        yield _replace(consumer, once, [])


def _replace(
    consumer: Consumer,
    reading: MappedOperands,
    sources: list[tile.ViewOp | tile.MapOp],
    tables: list[SSAValue] | None = None,
) -> Consumer:
    new = with_operands(consumer, inputs=reading, tables=tables or [])
    assert isinstance(new, Consumer)
    located(new, consumer, *sources)
    replace_op(consumer, new)
    for source in sources:
        erase_unused(source)
    return new


def may_inline(consumer: Consumer, reading: MappedOperands, number: int, tuning: Tuning) -> bool:
    """Whether a producer may be computed where it is read."""
    value = reading.values[number]
    producer = value.owner
    assert isinstance(producer, tile.MapOp)
    if len(producer.outputs) != 1 or 0 in reading.sizes:
        return False
    if len(reading.values) + len(producer.maps) - 1 > tuning.most_inputs:
        return False
    if tile.is_contraction(consumer):
        return is_movement(producer)
    if producer.tables and not isinstance(consumer, tile.MapOp):
        return False
    if _asks_for_index(producer) and not is_plain(reading.maps[number], reading.sizes):
        return False
    if not producer.operands and not _is_costly(producer):
        return True
    if is_movement(producer):
        return value.has_one_use() or _keeps_order(producer)
    if len(consumer.body.block.ops) + len(producer.body.block.ops) > tuning.longest_body:
        return False
    if _finishes_a_sum(producer) and not _may_finish_it(consumer, reading, number):
        return False
    if value.has_one_use():
        return _runs_no_more(producer, reading, number, tuning)
    return _widens(producer) and _shares_out(value, consumer, reading)


def _finishes_a_sum(producer: tile.MapOp) -> bool:
    """Whether the work is better done where a contraction leaves its sums: see fuse-epilogue."""
    for value, map_ in zip(producer.mapped_inputs, producer.input_maps, strict=True):
        source = value.owner.source if isinstance(value.owner, tile.ViewOp) else value
        made_of_sums = tile.is_contraction(source.owner)
        if made_of_sums and reads_whole(tensor(value), map_, producer.sizes):
            return source.has_one_use()
    return False


def _may_finish_it(consumer: Consumer, reading: MappedOperands, number: int) -> bool:
    """Whether what is made of sums here can be made where they are left, too."""
    type_, map_ = tensor(reading.values[number]), reading.maps[number]
    return isinstance(consumer, tile.MapOp) and reads_whole(type_, map_, reading.sizes)


def _keeps_order(producer: tile.MapOp) -> bool:
    """A broadcast or a slice reads as well as what it makes; a transpose does not."""
    dims = [
        sorted(result.used_dims())
        for result in producer.input_maps[0].results
        if result.used_dims()
    ]
    return all(len(used) == 1 for used in dims) and dims == sorted(dims)


def _asks_for_index(producer: tile.MapOp) -> bool:
    return any(isinstance(op, tile.IndexOp) for op in producer.body.block.ops)


def _is_costly(producer: tile.MapOp) -> bool:
    return any(map(is_costly, producer.body.block.ops))


def _widens(producer: tile.MapOp) -> bool:
    """Whether it makes large elements of small ones, so that it is better not to store them."""
    made = element_bytes(producer.outputs[0].type)
    return all(element_bytes(value.type) < made for value in producer.operands)


def _shares_out(value: SSAValue, consumer: Consumer, reading: MappedOperands) -> bool:
    """Whether one map reads a value in several places, but no more elements than there are."""
    if any(use.operation is not consumer for use in value.uses):
        return False
    reads = reading.values.count(value) * prod(reading.sizes)
    return isinstance(consumer, tile.MapOp) and reads <= prod(tensor(value).get_shape())


def _runs_no_more(
    producer: tile.MapOp, reading: MappedOperands, number: int, tuning: Tuning
) -> bool:
    """
    Whether the producer's work stays what it is.

    It does when every element is read once. It also does, nearly, when the innermost loop goes
    over many elements that share one, as a row does with its scale.
    """
    if prod(reading.sizes) <= prod(tensor(producer.outputs[0]).get_shape()):
        return True
    inner = [dim for dim, size in enumerate(reading.sizes) if size > 1]
    forms = [linear(result, reading.sizes) for result in reading.maps[number].results]
    shared = 1
    for dim in reversed(inner):
        if any(form.uses(dim) for form in forms):
            break
        shared *= reading.sizes[dim]
    if shared >= tuning.amortized_elements:
        return True
    cheap = sum(not isinstance(op, arith.ConstantOp) for op in producer.body.block.ops) <= 2
    return cheap and not _is_costly(producer)
