"""Fusion of elementwise maps into the operations that read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain

from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.tile.affine import composed, linear, reads_whole
from popgraph.dialects.tile.scalars import is_costly
from popgraph.dialects.tile.structured.ops import yielded
from popgraph.dialects.tile.structured.product import copied
from popgraph.passes.analysis.replace import located, replace_op
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options
from popgraph.passes.properties import UNCUT, UNSCHEDULED
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
    read_factor,
    through_view,
    viewed_again,
    views_above,
    with_operands,
    without_repeats,
)
from popgraph.support import index_laws
from popgraph.support.laws import Proof, Rewrite
from popgraph.support.shapes import prod
from popgraph.support.tuning import Tuning

Consumer = tile.MapOp | tile.ReduceOp | tile.ScatterOp


LOOK_THROUGH_VIEW = Rewrite(
    "look through a view", "z = f(view x)  ->  z = f(x)", Proof(index_laws.ROW_MAJOR)
)
INLINE_PRODUCER = Rewrite(
    "inline a producer",
    "y = map f(x); z = g(y)  ->  z = g(f(x))",
    Proof(
        index_laws.COMPOSITION,
        construction="f is applied to the same elements: those that its map yields at g's index",
    ),
)
MOVE_EPILOGUE_INPUT = Rewrite(
    "read an epilogue operand through a movement",
    "epilogue g(move x)  ->  epilogue g(x)",
    Proof((*index_laws.COMPOSITION, *index_laws.ROW_MAJOR)),
)
DROP_REPEATS = Rewrite(
    "drop a repeated operand",
    "z = map g(x, x)  ->  z = map g'(x)",
    Proof(construction="both arguments are the same element"),
)
REWRITES = (LOOK_THROUGH_VIEW, INLINE_PRODUCER, MOVE_EPILOGUE_INPUT, DROP_REPEATS)


@dataclass(frozen=True)
class FuseElementwise(Pass):
    """
    Inlines elementwise maps into the operations that read them.

    y = map f(x); z = g(y)  ->  z = g(f(x))

    Movements (transposes, slices, broadcasts) are composed into index maps, also of contractions.
    On a machine without vectors (`is_scalar`), contractions widen integers as they read them.
    """

    name = "fuse-elementwise"
    NEEDS = (UNSCHEDULED, UNCUT)
    tuning: Tuning = Tuning()
    is_scalar: bool = False

    @classmethod
    def of(cls, options: Options) -> FuseElementwise:
        return cls(options.tuning, options.target.machine.is_scalar)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        found = [op for op in module.walk() if isinstance(op, Consumer)]
        # Contractions first: they accept only movements, and a map may absorb the movement before.
        for op in sorted(found, key=lambda op: not tile.is_contraction(op)):
            if op.parent is not None:
                if self.is_scalar and tile.is_contraction(op):
                    _read_integers(op)
                _fuse_into(op, self)


def _read_integers(op: tile.ReduceOp) -> None:
    """
    z = contract (extend x), y  ->  z = contract x, y ... body: extend x

    A load extends an integer at no cost, and words of 32 bits would take four times the memory.
    """
    for number, value in enumerate([op.lhs, op.rhs]):
        views, producer = views_above(value)
        if not isinstance(producer, tile.MapOp) or not _extends(producer):
            continue
        stored = producer.inputs[0]
        if not reads_whole(tensor(stored), producer.input_maps[0], producer.sizes):
            continue
        stored = viewed_again(stored, views)
        read_factor(op, number, stored, partial(_extended, producer.body.block))
        for unread in (*views, producer):
            erase_unused(unread)


def _extends(producer: tile.MapOp) -> bool:
    """Whether a map only converts integers to wider ones."""
    block = producer.body.block
    kinds = (arith.ExtSIOp, arith.ExtUIOp, arith.BitcastOp, tile.YieldOp)
    if len(producer.inputs) != 1 or not all(isinstance(op, kinds) for op in block.ops):
        return False
    return any(isinstance(one.owner, arith.ExtSIOp | arith.ExtUIOp) for one in yielded(block))


def _extended(found: Block, body: Block, stored: SSAValue) -> SSAValue:
    """Writes the conversion that `found` computes."""
    (end,) = yielded(found)
    return copied(body, end, {found.args[0]: stored}, lambda dim: dim)


def _fuse_into(consumer: Consumer, fusion: FuseElementwise) -> None:
    """Fuses producers into `consumer` until a fixed point is reached."""
    changed: Consumer | None = consumer
    while changed is not None:
        consumer = changed
        reading = mapped_inputs(consumer)
        steps = chain(
            repeats_dropped(consumer, reading),
            view_looked_through(consumer, reading),
            producer_inlined(consumer, reading, fusion.tuning, narrow=fusion.is_scalar),
            epilogue_input_moved(consumer),
        )
        changed = next(steps, None)


def view_looked_through(consumer: Consumer, reading: MappedOperands) -> Iterator[Consumer]:
    """
    z = f(view x)  ->  z = f(x)

    Only when the index map into x needs no division. A factor of a contraction also needs a map
    as simple as before, or a source that is a movement read only here. That movement can be inlined
    next, and loops of sums and groups may then be divided.
    """
    for number, value in enumerate(reading.values):
        view = value.owner
        if not isinstance(view, tile.ViewOp):
            continue
        # ShuffleNet's channel shuffle is read in place this way: 0.88 of the time of the network.
        divided = _divisible_loops(consumer) if _is_shuffled(view) else ()
        map_ = through_view(view, reading.maps[number], reading.sizes, divided)
        if map_ is None:
            continue
        if tile.is_contraction(consumer) and not _keeps_index_simple(
            view, reading.maps[number], map_
        ):
            continue
        LOOK_THROUGH_VIEW.fires()
        yield _replace(consumer, reading.replace(number, view.source, map_), [view])


def _keeps_index_simple(view: tile.ViewOp, old: AffineMap, new: AffineMap) -> bool:
    return _is_shuffled(view) or is_selection(new) or not is_selection(old)


def _is_shuffled(view: tile.ViewOp) -> bool:
    """Whether the source of a view with one reader only moves elements, as a transpose does."""
    source = view.source.owner
    return isinstance(source, tile.MapOp) and is_movement(source) and view.output.has_one_use()


def _divisible_loops(consumer: Consumer) -> set[int]:
    """The loops of a contraction that are neither rows nor vectors: reductions and groups."""
    if not tile.is_contraction(consumer):
        return set()
    sums = set(range(consumer.parallel_rank, len(consumer.sizes)))
    lhs, rhs = (map_.used_dims() for map_ in consumer.input_maps)
    return sums | (lhs & rhs)


def producer_inlined(
    consumer: Consumer, reading: MappedOperands, tuning: Tuning, *, narrow: bool = False
) -> Iterator[Consumer]:
    """
    y = map f(x); z = g(y)  ->  z = g(f(x))

    Only when f runs no more often than before, or costs nothing. With `narrow`, not when f makes
    small elements, and y takes less memory than z or x.
    """
    for number, value in enumerate(reading.values):
        producer = value.owner
        if not isinstance(producer, tile.MapOp) or not may_inline(
            consumer, reading, number, tuning
        ):
            continue
        if narrow and _stores_less(producer, consumer):
            continue
        INLINE_PRODUCER.fires()
        if tile.is_contraction(consumer):
            moved = body_map(producer, reading, number)
            yield _replace(consumer, moved, [producer])
        else:
            tables, taken = list(producer.mapped_tables), value.has_one_use()
            inlined = inline_producer(reading, number, producer, tables, taken=taken)
            yield _replace(consumer, inlined, [producer], tables)


def body_map(producer: tile.MapOp, reading: MappedOperands, number: int) -> MappedOperands:
    """The operands of a reader after a movement is composed into its index map."""
    map_ = composed(producer.input_maps[0], reading.maps[number], reading.sizes)
    return reading.replace(number, producer.operands[0], map_)


def epilogue_input_moved(consumer: Consumer) -> Iterator[Consumer]:
    """Epilogue operands, such as a bias, are read through movements and views."""
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
        MOVE_EPILOGUE_INPUT.fires()
        made = with_operands(consumer, epilogue_inputs=changed)
        assert isinstance(made, Consumer)
        replace_op(consumer, made)
        erase_unused(producer)
        yield made


def repeats_dropped(consumer: Consumer, reading: MappedOperands) -> Iterator[Consumer]:
    """z = map g(x, x)  ->  z = map g'(x)"""
    once = without_repeats(reading)
    if once is not reading:
        DROP_REPEATS.fires()
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
    """Whether a producer may be inlined into its reader."""
    value = reading.values[number]
    producer = value.owner
    assert isinstance(producer, tile.MapOp)
    if len(producer.outputs) != 1 or 0 in reading.sizes:
        return False
    if len(reading.values) + len(producer.maps) - 1 > tuning.most_inputs:
        return False
    # A factor is read once for each result that it contributes to: arithmetic would be repeated.
    if tile.is_contraction(consumer):
        return is_movement(producer)
    if producer.mapped_tables and not isinstance(consumer, tile.MapOp):
        return False
    if _uses_index(producer) and not is_plain(reading.maps[number], reading.sizes):
        return False
    # A constant or an iota has nothing to load.
    if not producer.operands and not _is_costly(producer):
        return True
    # A slice costs its readers nothing; a transpose would be repeated by each of them.
    if is_movement(producer):
        return value.has_one_use() or _keeps_order(producer)
    # Each fusion copies the body: one map for a chain of n maps would take O(n^2) time.
    if len(consumer.body.block.ops) + len(producer.body.block.ops) > tuning.longest_body:
        return False
    if _belongs_in_epilogue(producer) and not _may_follow_into_epilogue(consumer, reading, number):
        return False
    if _is_costly(producer) and _repeats_in_epilogue(consumer, reading, number):
        return False
    if value.has_one_use():
        return _repeats_no_work(producer, reading, number, tuning)
    return _widens(producer) and _reads_slices_once(value, consumer, reading)


def _belongs_in_epilogue(producer: tile.MapOp) -> bool:
    """Whether a map should stay whole for fuse-epilogue, which adds it to a contraction."""
    for value, map_ in zip(producer.mapped_inputs, producer.input_maps, strict=True):
        source = value.owner.source if isinstance(value.owner, tile.ViewOp) else value
        made_of_sums = tile.is_contraction(source.owner)
        if made_of_sums and reads_whole(tensor(value), map_, producer.sizes):
            return source.has_one_use()
    return False


def _may_follow_into_epilogue(consumer: Consumer, reading: MappedOperands, number: int) -> bool:
    """Whether the epilogue of that contraction can compute the reader as well."""
    type_, map_ = tensor(reading.values[number]), reading.maps[number]
    return isinstance(consumer, tile.MapOp) and reads_whole(type_, map_, reading.sizes)


def _repeats_in_epilogue(consumer: Consumer, reading: MappedOperands, number: int) -> bool:
    """Whether the reader becomes an epilogue, which would compute a value for each vector of it."""
    read_again = prod(reading.sizes) > prod(tensor(reading.values[number]).get_shape())
    return read_again and isinstance(consumer, tile.MapOp) and _belongs_in_epilogue(consumer)


def _keeps_order(producer: tile.MapOp) -> bool:
    """Whether a movement keeps the order of axes: a broadcast or a slice, not a transpose."""
    dims = [
        sorted(result.used_dims())
        for result in producer.input_maps[0].results
        if result.used_dims()
    ]
    return all(len(used) == 1 for used in dims) and dims == sorted(dims)


def _uses_index(producer: tile.MapOp) -> bool:
    return any(isinstance(op, tile.IndexOp) for op in producer.body.block.ops)


def _is_costly(producer: tile.MapOp) -> bool:
    return any(map(is_costly, producer.body.block.ops))


def _widens(producer: tile.MapOp) -> bool:
    """Whether all inputs have smaller elements than the result: reading them again is cheaper."""
    made = element_bytes(producer.outputs[0].type)
    return all(element_bytes(value.type) < made for value in producer.operands)


def _stores_less(producer: tile.MapOp, consumer: Consumer) -> bool:
    """
    Whether stored results of a producer are smaller than those of its reader, or than its operands.

    Of two layers that are added, one stores its results: bytes instead of sums.
    """
    made = _largest(producer)
    narrows = any(element_bytes(value.type) > made for value in producer.operands)
    return narrows and (made < _largest(consumer) or _belongs_in_epilogue(producer))


def _largest(op: Consumer) -> int:
    """Bytes of the largest elements among the results."""
    return max(element_bytes(value.type) for value in op.results)


def _reads_slices_once(value: SSAValue, consumer: Consumer, reading: MappedOperands) -> bool:
    """Whether one map is the only reader, and its slices read no more elements than there are."""
    if any(use.operation is not consumer for use in value.uses):
        return False
    reads = reading.values.count(value) * prod(reading.sizes)
    return isinstance(consumer, tile.MapOp) and reads <= prod(tensor(value).get_shape())


def _repeats_no_work(
    producer: tile.MapOp, reading: MappedOperands, number: int, tuning: Tuning
) -> bool:
    """
    Whether inlining repeats no work of the producer.

    Each element is read once, or the innermost loops read one for many iterations, as a row does
    with its scale. A single cheap operation may be repeated.
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
