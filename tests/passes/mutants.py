"""Planted bugs: at least one per pass, each found by the fuzz."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir.affine import AffineExpr, AffineMap

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import shape_of
from popgraph.dialects.graphcore.logic import PREDICATES
from popgraph.dialects.program import ReturnOp, UpdateOp, graphs_of
from popgraph.dialects.tile.affine import with_dims
from popgraph.dialects.tile.attributes import layout_of
from popgraph.passes.program.pack_intervals import Interval
from popgraph.passes.structured.analysis.panels import Column
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.support.laws import GREATEST, LEAST
from popgraph.support.shapes import prod
from popgraph.testing import (
    Constant,
    Network,
    Node,
    attentions,
    block_products,
    clamps,
    controlled,
    half_products,
    learning_convolutions,
    quantized_products,
    roundings,
    separable_convolutions,
    training_networks,
)

PASSES = "popgraph.passes"


@dataclass(frozen=True)
class Mutant:
    """A bug: `target` is replaced by the result of `wrong`."""

    pass_name: str
    bug: str
    target: str
    """`module:name` or `module:class.name`."""
    wrong: Callable[[Any], Any]
    training: bool = False
    """Whether the bug shows in training only."""
    needs: frozenset[str] = frozenset()
    """ONNX operators that the bug needs; networks without them are skipped."""
    shows_in: Callable[..., SearchStrategy[Network]] | None = None
    """A strategy by element type that replaces the networks of the fuzz."""
    inner: bool = False
    """Whether the bug shows only in gradients at inner values."""

    def __str__(self) -> str:
        return f"{self.pass_name}: {self.bug}"

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Plants the bug inside of a `with` statement."""
        module, _, path = self.target.partition(":")
        *owners, name = path.split(".")
        owner = resolve_name(":".join([module, ".".join(owners)]) if owners else module)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, self.wrong(getattr(owner, name)))
            yield


def nothing(original: Any) -> Any:
    """The step is left out."""
    return lambda *_: None


def with_a_composite(original: Any) -> Any:
    """Leaves an unused composite in each graph: the meaning stays, a property does not."""

    def wrong(self: Any, compilation: Any, module: ModuleOp) -> None:
        original(self, compilation, module)
        for graph in graphs_of(module):
            value = next(iter(graph.outputs.values()))
            made = gc.DetachOp(value)
            graph.block.insert_op_before(made, graph.return_op)

    return wrong


def a_section_further(original: Any) -> Any:
    """Skips a section."""

    def wrong(inserter: Any, inner: Any, here: Index, recipe: Any) -> Any:
        return original(inserter, inner, here, recipe) + recipe["elements"]

    return wrong


def at_once(original: Any) -> Any:
    """The prefetch distance is zero."""
    return lambda inserter, loop, _: original(inserter, loop, 0)


def first_only(original: Any) -> Any:
    """Only the first item of a list is returned."""
    return lambda block: list(original(block))[:1]


def as_it_is(original: Any) -> Any:
    """The value is returned unchanged."""
    return lambda _, value, *__: value


def none_of_them(original: Any) -> Any:
    """The result is an empty set."""
    return lambda *_: set()


def always(original: Any) -> Any:
    """A check always succeeds."""
    return lambda *_: True


# infer-shapes


def by_type(original: Any) -> Any:
    """Cached results are keyed by the types of constants instead of their values."""
    return lambda array: original(array)[:2]


# normalize


def attributes_lost(original: Any) -> Any:
    def body_of_call(function: Any, call: Any) -> Any:
        bare = call.clone()
        bare.properties.pop("alpha", None)
        return original(function, bare)

    return body_of_call


# onnx-to-graphcore


def unscaled(original: Any) -> Any:
    return lambda node, value, factor: value


def pads_turned(original: Any) -> Any:
    return lambda self, low, high: original(self, high, low)


def one_name_per_value(original: Any) -> Any:
    """Outputs are keyed by their value, so a value that is returned twice has one name."""

    def returned(values: Any, names: Any) -> Any:
        kept = dict(zip(reversed(values), reversed(names), strict=True))
        return original(list(kept), list(kept.values()))

    return returned


# autodiff, add-optimizer, fuse-softmax-loss


def replaced(original: Any) -> Any:
    """A second gradient replaces the first instead of being added."""

    def add(self: Any, value: Any, gradient: Any) -> None:
        self.gradients[value] = gradient

    return add


def unscaled_loss(original: Any) -> Any:
    return lambda self, *rest: original(replace(self, loss_scale=1.0), *rest)


def from_zero(original: Any) -> Any:
    return lambda self, first, of_weight, kept: original(self, 0.0, of_weight, kept)


def old_weight_decays(original: Any) -> Any:
    """The velocity uses the weight decay of the old weight instead of the updated one."""

    def finish(self: Any, entered: Any) -> Any:
        context = self.context
        weight = context.weight - entered * context.scalar("scaledLearningRate1")
        velocity = entered * context.scalar("scaledMomentum1")
        context.keep("Accl___", velocity + context.weight * context.scalar("scaledWeightDecay1"))
        return weight

    return finish


def gradients_kept(original: Any) -> Any:
    return lambda names: {f"Gradient___c{node}_1" for node in range(9)}


def from_nowhere(original: Any) -> Any:
    return lambda numbers, dtype: original(np.multiply(numbers, 0), dtype)


def all_rows_count(original: Any) -> Any:
    """Ignored labels count, too."""

    def counts(self: Any, loss: Any) -> Any:
        ignored, loss.counted = loss.counted, lambda: None
        try:
            return original(self, loss)
        finally:
            loss.counted = ignored

    return counts


def any_axis(original: Any) -> Any:
    """A softmax along any axis is fused."""

    def integer(attribute: Any) -> int:
        return -1 if original(attribute) == 0 else original(attribute)

    return integer


def no_mean(original: Any) -> Any:
    def share(self: Any, loss: Any) -> Any:
        column = shape_of(loss.labels)
        return gc.ReshapeOp(gc.BroadcastOp(loss.dloss, shape=column), shape=(*column, 1))

    return share


# fold-constants, canonicalize, expand


def types_for_values(original: Any) -> Any:
    """Constants of equal shape and element type share their elements."""
    known: dict[Any, Any] = {}

    def evaluate(value: Any, weights: Any) -> Any:
        array = original(value, weights)
        if array is None:
            return None
        return known.setdefault((id(weights), array.shape, str(array.dtype)), array)

    return evaluate


def composed_backwards(original: Any) -> Any:
    def rewrite(self: Any, op: Any) -> Any:
        inner = op.x.owner
        if not isinstance(inner, gc.TransposeOp):
            return None
        return gc.TransposeOp(inner.x, perm=[op.perm.data[axis] for axis in inner.perm])

    return rewrite


def bias_unscaled(original: Any) -> Any:
    return lambda rule, layer, scale, shift: original(rule, layer, scale, shift / scale)


def scale_of_one(original: Any) -> Any:
    return lambda rule, scale, like: original(rule, 1.0, like)


def neutral_on_both_sides(original: Any) -> Any:
    """Folds 0 - x to x, like x - 0."""

    def rewrite(self: Any, op: Any) -> Any:
        lhs, rhs = op.operands
        if isinstance(op, gc.SubOp) and self.is_all(lhs, 0.0):
            return rhs if shape_of(rhs) == shape_of(op.result) else None
        return original(self, op)

    return rewrite


def by_value(original: Any) -> Any:
    """Operands that are the same value get one replacement: the last one."""
    return lambda op, operands: op.clone(dict(zip(op.operands, operands, strict=True)))


def undone(original: Any) -> Any:
    """One rule merges transposes, and another splits them again."""

    def rewrite(self: Any, op: Any) -> Any:
        turned = original(self, op)
        if turned is not None or isinstance(op.x.owner, gc.TransposeOp):
            return turned
        order = list(range(len(op.perm)))
        return gc.TransposeOp(gc.TransposeOp(op.x, perm=list(op.perm)), perm=order)

    return rewrite


def whole_count(original: Any) -> Any:
    """A mean over some axes divides by the number of all elements."""
    return property(lambda self: int(np.prod(shape_of(self.x))))


def last_axis_only(original: Any) -> Any:
    def total(self: Any, value: Any) -> Any:
        rank = len(shape_of(value))
        return gc.ReduceSumOp(value, axes=[rank - 1], keepdims=True)

    return total


# cse, dce


def without_properties(original: Any) -> Any:
    def meaning(self: Any, op: Any) -> Any:
        key = original(self, op)
        return key and (*key[:2], *key[4:])

    return meaning


def updates_die(original: Any) -> Any:
    return lambda op: isinstance(op, UpdateOp) or original(op)


def first_output_only(original: Any) -> Any:
    def propagate(self: Any, op: Any) -> None:
        uses = [use for result in op.results for use in result.uses]
        if not uses or any(not isinstance(u.operation, ReturnOp) or not u.index for u in uses):
            original(self, op)

    return propagate


def gradient_for_pooled(original: Any) -> Any:
    """A gradient's sign replaces the sign of the pooled value as the mask."""
    return lambda gradient, before: gradient.dy


# contract-in-floats


def one_inside(original: Any) -> Any:
    def ends_of(value: Any) -> Any:
        ends = original(value)
        if ends is None:
            return None
        return {LEAST: ends[LEAST] + 1, GREATEST: ends[GREATEST] - 1}

    return ends_of


def operands_turned(original: Any) -> Any:
    turned = {
        name: lambda lhs, rhs, compare=compare: compare(rhs, lhs)
        for name, compare in PREDICATES.items()
    }
    return original | turned


def far_more(original: Any) -> Any:
    return 64 * original


def from_the_start(original: Any) -> Any:
    """Every chunk of a sum begins at the first term."""
    return lambda value, axis, begin, end: original(value, axis, 0, end - begin)


# view-words


def wherever_they_fit(original: Any) -> Any:
    """Four bytes count as a word wherever the sizes agree."""

    def ready(op: Any) -> bool:
        source, word = (value.type for value in (op.inputs[0], op.outputs[0]))
        plain = layout_of(source) is None and layout_of(word) is None
        fits = prod(source.get_shape()) == len(op.inputs) * prod(word.get_shape())
        return original(op) or (plain and fits)

    return ready


# round-cheaply


def in_another_order(original: Any) -> Any:
    """Swaps a factor and the addend."""
    return lambda lhs, rhs, addend: original(addend, rhs, lhs)


def too_small(original: Any) -> Any:
    """A reciprocal is 1 % too small."""

    def of(divisor: Any, first: Any, last: Any) -> Any:
        found = original(divisor, first, last)
        return found and replace(found, high=found.high * 0.99)

    return of


# skip-padding


def one_tap_less(original: Any) -> Any:
    """Drops the last tap of a window."""

    def piece(self: Any, start: int, stop: int) -> Any:
        found = original(self, start, stop)
        return replace(found, last=found.last - 1) if found.taps > 1 else found

    return piece


def other_way_round(original: Any) -> Any:
    """Pieces of equal type are joined in reverse order."""

    def joined(made: Any, pieces: Any) -> Any:
        values = list(made.values())
        same = all(value.type == values[0].type for value in values)
        return original(dict(zip(made, reversed(values), strict=True)) if same else made, pieces)

    return joined


# fold-depth


def first_tap_only(original: Any) -> Any:
    """Every tap of the depth reads what the first tap reads."""

    def met(self: Any, op: Any, taps: int, depth: int) -> Any:
        return [original(self, op, taps, depth)[0]] * taps

    return met


# read-narrow


def as_they_came(original: Any) -> Any:
    return lambda wide: wide.inputs[0]


def a_part_by_the_element(original: Any) -> Any:
    return lambda found, loop, *others: original(found, loop - 1, *others)


# sum-in-blocks


def of_the_first_block(original: Any) -> Any:
    """Every block's epilogue reads the operands of the first block."""

    def blocks(*args: Any) -> Any:
        made = original(*args)
        maps = []
        for map_ in made.maps:
            dims = [AffineExpr.dimension(dim) for dim in range(map_.num_dims - made.loops)]
            maps.append(
                with_dims(map_, [*dims, *[AffineExpr.constant(0)] * made.loops], map_.num_dims)
            )
        return replace(made, maps=maps)

    return blocks


# contract-in-words, contract-quantized


def whatever_comes(original: Any) -> Any:
    return lambda *_: True


def whatever_fails(original: Any) -> Any:
    return lambda *_: False


def nothing_contributed(original: Any) -> Any:
    """The contribution of the zero point to the sums is not subtracted."""
    return lambda *args: gc.SubOp(original(*args), original(*args))


def another_zero(original: Any) -> Any:
    return lambda rule, op, value, factor, words: original(
        rule, op, value, replace(factor, by=factor.by + 1), words
    )


def squared(original: Any) -> Any:
    """Rounded values are squared."""

    def half(rounding: Any, value: Any) -> Any:
        return gc.MulOp(made := original(rounding, value), made).result

    return half


def without_scale(original: Any) -> Any:
    """Sums of rounded activations stay as they are."""

    def rounded(x: Any) -> Any:
        whole, scale = original(x)
        return whole, gc.DivOp(scale, scale)

    return rounded


def tables_reversed(original: Any) -> Any:
    """The scales of the last rows are those of the first ones."""

    def tables(rule: Any, found: Any) -> Any:
        scale, *others = original(rule, found)
        return (scale[::-1], *others)

    return tables


def not_moved(original: Any) -> Any:
    """A matrix is reshaped instead of transposed."""
    return lambda value, movements: gc.ReshapeOp(value, shape=shape_of(movements[0].result)).result


def last_first(original: Any) -> Any:
    def turned(*given: Any) -> Any:
        found = original(*given)
        return None if found is None else found[::-1]

    return turned


def far_around(original: Any) -> Any:
    return type(original)(4 * original.low, 4 * original.high)


def without_zero(original: Any) -> Any:
    return lambda numbers: original(replace(numbers, zero=np.zeros((), np.float32)))


def always_zero(original: Any) -> Any:
    return lambda value, dtype: original(value, dtype) * 0


def of_the_first(original: Any) -> Any:
    """One scale is used for all channels."""

    def moved(op: Any, value: Any) -> Any:
        made = original(op, value)
        none = [0] * len(shape_of(made))
        ones = [1] * len(none)
        return gc.SliceOp(made, starts=none, sizes=ones, steps=ones)

    return moved


def scale_of_the_input(original: Any) -> Any:
    """Weights count as if their scale were 1."""

    def product(op: Any, scales: Any) -> Any:
        return original(op, [scales[0], np.ones_like(scales[1])])

    return product


# graphcore-to-structured


def one_window_less(original: Any) -> Any:
    """Drops the first of overlapping windows."""

    def covering(*arguments: Any) -> Any:
        covers = original(*arguments)
        return [replace(cover, count=max(1, cover.count - 1)) for cover in covers]

    return covering


def extremes_from_zero(original: Any) -> Any:
    return original | {"max": lambda element: 0, "min": lambda element: 0}


def undilated(original: Any) -> Any:
    def read_at(windows: Any, inside: Any, geometry: Any) -> Any:
        rows = zip(windows, inside, geometry.strides, strict=True)
        return [window * stride + at for window, at, stride in rows]

    return read_at


def axes_as_given(original: Any) -> Any:
    """An operand's map follows the order of the loops instead of its axes."""

    def axes_last(shape: Any, axes: Any) -> Any:
        domain, parallel, map_ = original(shape, axes)
        order = [axis for axis in range(len(shape)) if axis not in axes] + sorted(axes)
        turned = tuple(shape[axis] for axis in order) == tuple(shape)
        return domain, parallel, AffineMap.identity(len(shape)) if turned else map_

    return axes_last


# tile


def window_turned(original: Any) -> Any:
    """Swaps rows and columns of the window."""
    return _seen_through(original, AffineMap.from_callable(lambda r, s, c, k: (s, r, c, k)))


def window_backwards(original: Any) -> Any:
    """Reverses the window."""
    return _seen_through(original, AffineMap.from_callable(lambda r, s, c, k: (2 - r, 2 - s, c, k)))


def rows_for_columns(original: Any) -> Any:
    """Swaps rows and columns of the window of a weight gradient."""

    def weight_gradient(op: Any, image: int) -> Any:
        found = original(op, image)
        if found is None:
            return None
        row, column, *channels = found.dims
        return replace(found, dims=(column, row, *channels))

    return weight_gradient


def _seen_through(original: Any, turn: AffineMap) -> Any:
    def convolution(op: Any, weights: int) -> Any:
        found = original(op, weights)
        if found is None:
            return None
        return replace(found, weights_map=found.weights_map.compose(turn))

    return convolution


def first_result_only(original: Any) -> Any:
    return lambda operations: original(operations)[:1]


def unturned(original: Any) -> Any:
    return lambda op, order: op


def without_last_part(original: Any) -> Any:
    def parts(*args: Any) -> Any:
        return tuple(replace(part, count=max(2, part.count - 1)) for part in original(*args))

    return parts


def first_half(original: Any) -> Any:
    return lambda writer, memory, physical, *rest: original(
        writer, memory, tuple(size // 2 for size in physical), *rest
    )


def no_distance(original: Any) -> Any:
    return lambda *_: 0


def unshifted(original: Any) -> Any:
    return lambda self, form, point: Index()


def composed_turned(original: Any) -> Any:
    def composed(outer: Any, inner: Any, sizes: Any) -> Any:
        square = len({outer.num_dims, inner.num_dims, len(outer.results), len(inner.results)}) == 1
        return original(inner, outer, sizes) if square else original(outer, inner, sizes)

    return composed


def maps_forgotten(original: Any) -> Any:
    """A value that is read through two maps is read through the first."""

    def without_repeats(reading: Any) -> Any:
        firsts: dict[Any, Any] = {}
        for value, map_ in zip(reading.values, reading.maps, strict=True):
            firsts.setdefault(value, map_)
        same = replace(reading, maps=tuple(firsts[value] for value in reading.values))
        found = original(same)
        return reading if found is same else found

    return without_repeats


def whole_by_its_map(original: Any) -> Any:
    """Compares the map only, not the operand's type."""

    def reads_whole(type_: Any, map_: AffineMap, sizes: Any) -> bool:
        like_domain = TensorType(type_.element_type, sizes)
        return len(map_.results) == len(sizes) and original(like_domain, map_, sizes)

    return reads_whole


def total_first(original: Any) -> Any:
    """The sum becomes the first operand of the map."""
    return lambda old, op, number: original(old, op, 0)


def maps_kept(original: Any) -> Any:
    """Loops are permuted without their maps."""
    return lambda maps, sequence: list(maps)


def without_offsets(original: Any) -> Any:
    def read_past(reader: Any, number: int, value: Any, map_: Any, offsets: Any) -> None:
        original(reader, number, value, map_, (0,) * len(offsets))

    return read_past


@st.composite
def averaged_convolutions(draw: DrawFn, dtype: str = "f32") -> Network:
    """
    A convolution with padding over global averages, often of one channel.

    All axes of such a picture have size 1. Hardly any other network has it.
    """
    batch, channels = draw(st.sampled_from([1, 1, 2])), draw(st.sampled_from([1, 1, 2]))
    image = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    window = draw(st.sampled_from([1, 3])), draw(st.sampled_from([1, 3]))
    pads = [draw(st.integers(0, size - 1)) for size in (*window, *window)]
    if any(pads[axis] + pads[axis + 2] < size - 1 for axis, size in enumerate(window)):
        pads = [size // 2 for size in (*window, *window)]
    weight = Constant((draw(st.integers(1, 4)), channels, *window), dtype, seed=0)
    nodes = Node("GlobalAveragePool", (0,), ()), Node("Conv", (1, weight), (("pads", pads),))
    return Network(((batch, channels, *image),), nodes, dtype, (2,))


def first_twin(original: Any) -> Any:
    """Picks the first of several dimensions that match."""
    return lambda place, shape: original(place, shape)[:1]


def nothing_around_nothing(original: Any) -> Any:
    """A tensor without elements counts as having no halo."""
    return lambda type_: () if 0 in type_.get_shape() else original(type_)


def in_any_order(original: Any) -> Any:
    """Swapped indices of an operand count as in order."""

    def pair(self: Any, dim: int, sizes: Any) -> int | None:
        found: int | None = original(self, dim, sizes)
        if found is None and not self.is_laid_out:
            swapped = [AffineExpr.dimension(dim + 1), AffineExpr.dimension(dim)]
            for at, both in enumerate(pairwise(self.results)):
                if list(both) == swapped:
                    return at
        return found

    return pair


def the_first_stream(original: Any) -> Any:
    """All streams read the addends of the first one."""

    def split(shape: Any, map_: AffineMap, dim: int, extent: int, strips: int) -> Any:
        found = original(shape, map_, dim, extent, strips)
        if found is None or len(map_.results) > 1:
            return found
        dims = [AffineExpr.dimension(at) for at in range(found[1].num_dims)]
        dims[dim] = AffineExpr.constant(0)
        return found[0], found[1].replace_dims_and_symbols(dims, (), len(dims), 0)

    return split


def lanes_of_other(original: Any) -> Any:
    """Packs a factor with the wrong number of lanes."""

    def panel_layout(digits: Any, map_: Any, order: Any, dim: int, lanes: int) -> Any:
        return original(digits, map_, order, dim, max(1, lanes // 2))

    return panel_layout


def carried_as_captured(original: Any) -> Any:
    def captured(call: Any, body: Any) -> Any:
        carried = body.block.args[1 : 1 + len(call.carried)]
        return original(call, body) | dict(zip(carried, call.carried, strict=True))

    return captured


def first_operand_decides(original: Any) -> Any:
    return lambda op: list(original(op))[:1]


def chunk_for_total(original: Any) -> Any:
    """The total becomes the last chunk of terms."""

    def sum_of_two(kind: Any) -> Any:
        block = original(kind)
        (addition,) = list(block.ops)[:1]
        addition.operands[0] = block.args[0]
        return block

    return sum_of_two


def from_anything(original: Any) -> Any:
    """Totals with K outermost are not initialized."""

    def k_outer_loops(self: Any) -> None:
        write, begun = self.nest.write, []

        def all_but_first(emit: Any) -> None:
            if begun:
                write(emit)
            begun.append(emit)

        self.nest.write = all_but_first
        original(self)

    return k_outer_loops


def the_first_rows(original: Any) -> Any:
    """All blocks are at the position of the first."""
    return lambda memory, _: original(memory)


def without_the_last(original: Any) -> Any:
    """Drops the last iteration of a loop."""

    def iterations(loop: Any) -> range | None:
        found: range | None = original(loop)
        return found[:-1] if found is not None and len(found) > 1 else found

    return iterations


def nothing_yielded(original: Any) -> Any:
    """An iterator over nothing."""
    return lambda *_: iter(())


def first_part_twice(original: Any) -> Any:
    """A sum of two indices is twice the first of them."""

    def copied(op: Any, operands: Any) -> Any:
        index = op.name == "arith.addi"
        return original(op, [operands[0], operands[0]] if index else operands)

    return copied


def one_short(original: Any) -> Any:
    """A sequence of several lacks its last element."""
    return lambda *args: original(*args)[:-1] or original(*args)


def from_the_first_row(original: Any) -> Any:
    """A block begins at the first row."""
    return lambda copy, first: original(copy, first.scaled(0))


def newest_twice(original: Any) -> Any:
    """Adds a chunk to itself instead of to the total."""
    return lambda kind, old, *new: original(kind, *new, new[-1])


def pairs_not_transposed(original: Any) -> Any:
    """The 2 x 2 step of a transpose in registers is left out."""
    return lambda lane, half, lanes: original(lane, half, lanes) if half > 1 else lane


def one_element_early(original: Any) -> Any:
    """Every piece but the first begins one element early."""
    return lambda op: [start and start - 1 for start in original(op)]


def one_lane_less(original: Any) -> Any:
    def last_panel(rest: int, width: int, padded: bool) -> list[Column]:
        *most, last = original(rest, width, padded)
        return [*most, Column(last.offset, last.lanes, last.valid - (last.valid > 1))]

    return last_panel


def rest_too_late(original: Any) -> Any:
    def after(writer: Any, part: Any, middle: Any) -> Any:
        found = original(writer, part, middle)
        return found + 1 if isinstance(found, int) and found is not part.upper else found

    return after


def no_regions(original: Any) -> Any:
    def operation(self: Any, op: Any, numbers: Any, key: Any) -> None:
        own: list[Any] = []
        original(self, op, numbers, own)
        key += own[:5]

    return operation


def small_steps(dtype: str) -> SearchStrategy[Network]:
    """Training of networks of few nodes."""
    return training_networks(max_nodes=1, dtype=dtype, nll=False)


def second_output_from_itself(original: Any) -> Any:
    """A value that is returned twice reaches its first output only."""

    def copy(value: Any, source: Any, target: Any) -> Any:
        return original(value, target if source.space == "output" else source, target)

    return copy


def variables_returned_late(original: Any) -> Any:
    """Variables that are outputs are copied after the updates."""

    def place_updates(self: Any) -> None:
        original(self)
        before = self._body.before
        self._body.after += [one for one in before if one.source.space == "variable"]
        before[:] = [one for one in before if one.source.space != "variable"]

    return place_updates


def freed_early(original: Any) -> Any:
    def intervals(self: Any) -> Any:
        return [
            (storage, Interval(piece.first, max(piece.first, piece.last - 1), piece.size))
            for storage, piece in original(self)
        ]

    return intervals


def first_reader_last(original: Any) -> Any:
    """The first reader of a value may overwrite it though there is another."""

    def read(self: Any, time: int) -> None:
        known = self.root.last
        had = bool(self.readers)
        original(self, time)
        if had:
            self.root.last = known

    return read


# split-kernels


def all_but_the_last(calls: Any) -> Any:
    return lambda call, parts: calls(call, parts)[:-1]


def columns_reversed(original: Any) -> Any:
    """Reverses the columns of evaluated constants."""

    def reversed_of(constants: Any, value: Any) -> Any:
        found = original(constants, value)
        return found if found is None else found[..., ::-1]

    return reversed_of


def selects_backwards(original: Any) -> Any:
    """Looks up the selected indices in reverse order."""
    return lambda op, places, version, store: original(op, places[::-1], version, store)


def without_operands(original: Any) -> Any:
    return lambda op: original(op)[:-1]


def without_attributes(original: Any) -> Any:
    return lambda op: (original(op)[0], *original(op)[2:])


def factor_added(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda lhs, rhs, before: right(lhs, before, rhs)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "evaluate-constants",
        "elements are reversed",
        f"{PASSES}.onnx.evaluate_constants:Constants.of",
        columns_reversed,
    ),
    Mutant(
        "select-known",
        "elements are reversed",
        f"{PASSES}.onnx.select_known:_replace",
        selects_backwards,
    ),
    Mutant(
        "share-nodes",
        "operands are not part of the key",
        f"{PASSES}.onnx.share_nodes:_meaning",
        without_operands,
    ),
    Mutant(
        "share-nodes",
        "attributes are not part of the key",
        f"{PASSES}.onnx.share_nodes:_meaning",
        without_attributes,
    ),
    Mutant(
        "infer-shapes",
        "constants of equal type are equal",
        "popgraph.dialects.onnx.schema_inference:elements",
        by_type,
    ),
    Mutant(
        "infer-shapes",
        "types of outputs are not declared",
        f"{PASSES}.onnx.infer_shapes:_declare",
        nothing,
    ),
    Mutant(
        "normalize",
        "attributes have their defaults",
        "popgraph.dialects.onnx.expansion:body_of_call",
        attributes_lost,
    ),
    Mutant(
        "onnx-to-graphcore",
        "outputs are keyed by their value",
        f"{PASSES}.onnx.to_graphcore.lowering:ReturnOp",
        one_name_per_value,
    ),
    Mutant(
        "onnx-to-graphcore",
        "Gemm ignores alpha",
        "popgraph.operators.matrices:_scaled",
        unscaled,
    ),
    Mutant(
        "onnx-to-graphcore",
        "padding at the wrong ends",
        "popgraph.operators.pooling:Windows.with_pads",
        pads_turned,
    ),
    Mutant(
        "onnx-to-graphcore",
        "two names of one value share a gradient",
        f"{PASSES}.onnx.to_graphcore.lowering:Lowering._own",
        as_it_is,
        training=True,
        inner=True,
    ),
    Mutant(
        "autodiff",
        "gradients of several readers are not added",
        f"{PASSES}.graphcore.training.autodiff:ReverseMode.add",
        replaced,
        training=True,
    ),
    Mutant(
        "autodiff",
        "the loss is not scaled",
        f"{PASSES}.graphcore.training.autodiff:Autodiff._seed",
        unscaled_loss,
        training=True,
    ),
    Mutant(
        "add-optimizer",
        "the velocity begins with zeros",
        f"{PASSES}.graphcore.training.weight_context:WeightContext._first_state",
        from_zero,
        training=True,
    ),
    Mutant(
        "add-optimizer",
        "the old weight decays",
        f"{PASSES}.graphcore.training.update_rules:CombinedSGD.finish",
        old_weight_decays,
        training=True,
    ),
    Mutant(
        "add-optimizer",
        "gradients that are not requested are outputs",
        f"{PASSES}.graphcore.training.add_optimizer:requested",
        gradients_kept,
        training=True,
    ),
    Mutant(
        "contract-in-floats",
        "floats are exact for larger integers",
        f"{PASSES}.graphcore.contract_in_floats:EXACT",
        far_more,
    ),
    Mutant(
        "contract-in-floats",
        "all parts of a sum begin at the first term",
        f"{PASSES}.graphcore.contract_in_floats:_part",
        from_the_start,
    ),
    Mutant(
        "view-words",
        "numbers are said to be neighbours wherever they stand",
        f"{PASSES}.structured.analysis.words:memory_holds_words",
        wherever_they_fit,
        shows_in=quantized_products,
    ),
    Mutant(
        "round-cheaply",
        "a factor and the addend are swapped",
        f"{PASSES}.graphcore.round_cheaply:FmaOp",
        in_another_order,
        shows_in=roundings,
    ),
    Mutant(
        "round-cheaply",
        "quotients are a hundredth too small",
        f"{PASSES}.graphcore.round_cheaply:Reciprocal.of",
        too_small,
        shows_in=roundings,
    ),
    Mutant(
        "contract-quantized",
        "every quantized value is clipped at its zero point",
        f"{PASSES}.graphcore.contract_quantized:RectifyByClipping._is_kept_from",
        whatever_comes,
    ),
    Mutant(
        "skip-padding",
        "the last tap is left out",
        f"{PASSES}.graphcore.skip_padding:Axis.piece",
        one_tap_less,
    ),
    Mutant(
        "skip-padding",
        "pieces are in reverse order",
        f"{PASSES}.graphcore.skip_padding:joined",
        other_way_round,
    ),
    Mutant(
        "fold-depth",
        "all taps of the depth read the input of the first",
        f"{PASSES}.graphcore.fold_depth:SumOverDepth._met",
        first_tap_only,
    ),
    Mutant(
        "lower-precision",
        "rounded values are squared",
        f"{PASSES}.graphcore.lower_precision:_Rounding._half",
        squared,
    ),
    Mutant(
        "lower-precision",
        "transposed values are rounded and not transposed again",
        f"{PASSES}.graphcore.lower_precision:moved",
        not_moved,
    ),
    Mutant(
        "fuse-products",
        "a factor is added instead of the sum",
        f"{PASSES}.structured.fuse_products:math.FmaOp",
        factor_added,
    ),
    Mutant(
        "contract-in-words",
        "floats are packed along the summed axis of the other factor",
        f"{PASSES}.graphcore.contract_in_words:summed_axes",
        last_first,
        shows_in=half_products,
    ),
    Mutant(
        "contract-in-words",
        "every number fits in a word",
        "popgraph.support.words:WordFormat.fit",
        whatever_comes,
    ),
    Mutant(
        "contract-in-words",
        "words hold the values of floats instead of their bits",
        f"{PASSES}.graphcore.pack_words:is_float",
        whatever_fails,
        shows_in=half_products,
    ),
    Mutant(
        "contract-in-words",
        "the sum of zero points is not subtracted",
        f"{PASSES}.graphcore.contract_in_words:_sums_of",
        nothing_contributed,
        shows_in=quantized_products,
    ),
    Mutant(
        "contract-in-words",
        "windows are padded with the zero point plus one",
        f"{PASSES}.graphcore.contract_in_words:SumInWords._padded",
        another_zero,
        needs=frozenset({"Conv"}),
        shows_in=quantized_products,
    ),
    Mutant(
        "contract-quantized",
        "moved values have the scale of their first element",
        f"{PASSES}.graphcore.canonicalize.quantized:_moved_with",
        of_the_first,
    ),
    Mutant(
        "canonicalize",
        "requantized values have the same zero point",
        f"{PASSES}.graphcore.canonicalize.quantized:DropDequantized._is_same",
        whatever_comes,
        shows_in=roundings,
    ),
    Mutant(
        "canonicalize",
        "floats that are quantized have no zero point",
        f"{PASSES}.graphcore.canonicalize.quantized:cast",
        always_zero,
        shows_in=roundings,
    ),
    Mutant(
        "contract-quantized",
        "zero points are ignored",
        f"{PASSES}.graphcore.contract_quantized:Dequantized.integers",
        without_zero,
    ),
    Mutant(
        "contract-quantized",
        "weights are not scaled",
        f"{PASSES}.graphcore.contract_quantized:_scale",
        scale_of_the_input,
    ),
    Mutant(
        "scale-sums",
        "scales of blocks are reversed",
        f"{PASSES}.graphcore.scaled_weights:Scaled.table",
        last_first,
    ),
    Mutant(
        "round-activations",
        "rounded activations have no scale",
        f"{PASSES}.graphcore.round_activations:rounded",
        without_scale,
    ),
    Mutant(
        "round-activations",
        "scales of blocks are reversed",
        f"{PASSES}.graphcore.round_activations:RoundByBlocks._tables",
        tables_reversed,
    ),
    Mutant(
        "scale-sums",
        "every value fits in a byte",
        f"{PASSES}.graphcore.scale_sums:BYTE",
        far_around,
    ),
    Mutant(
        "check-indices",
        "negative indices are out of range",
        f"{PASSES}.graphcore.check_indices:_literal",
        from_nowhere,
    ),
    Mutant(
        "fuse-softmax-loss",
        "ignored labels count",
        f"{PASSES}.graphcore.fuse_softmax_loss:SubtractLabels.counts",
        all_rows_count,
        training=True,
    ),
    Mutant(
        "fuse-softmax-loss",
        "a mean is a sum",
        f"{PASSES}.graphcore.fuse_softmax_loss:SubtractLabels._share",
        no_mean,
        training=True,
    ),
    Mutant(
        "fold-constants",
        "constants of equal type are equal",
        f"{PASSES}.graphcore.fold_constants:constant_array",
        types_for_values,
    ),
    Mutant(
        "canonicalize",
        "permutations composed in the wrong order",
        f"{PASSES}.graphcore.canonicalize.movement_rules:MergeTransposes.rewrite",
        composed_backwards,
    ),
    Mutant(
        "canonicalize",
        "a bias that moves after a scale is not scaled",
        f"{PASSES}.graphcore.canonicalize.scaling:shifted",
        bias_unscaled,
    ),
    Mutant(
        "canonicalize",
        "a scale that moves is lost",
        f"{PASSES}.graphcore.canonicalize.scaling:ScaleFewest._number",
        scale_of_one,
        shows_in=attentions,
    ),
    Mutant(
        "canonicalize",
        "masks of pooled elements compare the gradient",
        f"{PASSES}.graphcore.canonicalize.pools:_pooled",
        gradient_for_pooled,
        training=True,
        needs=frozenset({"MaxPool", "Relu"}),
    ),
    Mutant(
        "canonicalize",
        "ranges of integer types are one too small",
        f"{PASSES}.graphcore.canonicalize.by_law:ends_of",
        one_inside,
        shows_in=clamps,
    ),
    Mutant(
        "canonicalize",
        "comparisons ignore the side of the constant",
        f"{PASSES}.graphcore.canonicalize.by_law:KNOWN",
        operands_turned,
        shows_in=clamps,
    ),
    Mutant(
        "canonicalize",
        "0 - x is x",
        f"{PASSES}.graphcore.canonicalize.arithmetic:DropNeutral.rewrite",
        neutral_on_both_sides,
    ),
    Mutant(
        "canonicalize",
        "an operand that is read twice is replaced twice or never, in an infinite loop",
        f"{PASSES}.graphcore.canonicalize.arithmetic:with_operands",
        by_value,
        needs=frozenset({"Expand"}),
    ),
    Mutant(
        "canonicalize",
        "two rules are inverse, in an infinite loop",
        f"{PASSES}.graphcore.canonicalize.movement_rules:MergeTransposes.rewrite",
        undone,
        needs=frozenset({"Transpose"}),
    ),
    Mutant(
        "expand",
        "softmax along the last axis, always",
        "popgraph.dialects.graphcore.softmax:_Normalised.total",
        last_axis_only,
    ),
    Mutant(
        "cse",
        "properties are not part of the key",
        f"{PASSES}.analysis.equal_operations:PureMeaning.__call__",
        without_properties,
    ),
    Mutant(
        "cse",
        "leaves a composite, which it does not declare",
        f"{PASSES}.graphcore.cse:EliminateCommonSubexpressions.run",
        with_a_composite,
    ),
    Mutant(
        "dce",
        "updates have no effect",
        "xdsl.transforms.dead_code_elimination:would_be_trivially_dead",
        updates_die,
        training=True,
    ),
    Mutant(
        "dce",
        "only the first output lives",
        "xdsl.transforms.dead_code_elimination:LiveSet.propagate_op_liveness",
        first_output_only,
    ),
    Mutant(
        "graphcore-to-structured",
        "maxima and minima begin with zero",
        f"{PASSES}.graphcore.to_structured.lower_reductions:INITIAL",
        extremes_from_zero,
    ),
    Mutant(
        "graphcore-to-structured",
        "windows without dilation",
        f"{PASSES}.graphcore.to_structured.contractions:read_at",
        undilated,
    ),
    Mutant(
        "graphcore-to-structured",
        "elements read one window too few",
        f"{PASSES}.graphcore.to_structured.windows:covering",
        one_window_less,
        training=True,
        needs=frozenset({"MaxPool"}),
    ),
    Mutant(
        "graphcore-to-structured",
        "a reduction of equal axes takes the last ones",
        f"{PASSES}.graphcore.to_structured.lower_reductions:axes_last",
        axes_as_given,
    ),
    Mutant(
        "fuse-elementwise",
        "maps composed in the wrong order",
        f"{PASSES}.structured.analysis.operand_maps:composed",
        composed_turned,
    ),
    Mutant(
        "fuse-elementwise",
        "a value read through two maps is one operand",
        f"{PASSES}.structured.fusion.fuse_elementwise:without_repeats",
        maps_forgotten,
    ),
    Mutant(
        "fuse-epilogue",
        "the sum is the first operand",
        f"{PASSES}.structured.fusion.fuse_epilogue:_compose_epilogue",
        total_first,
    ),
    Mutant(
        "fuse-epilogue",
        "a square tensor is read transposed",
        f"{PASSES}.structured.fusion.fuse_epilogue:_in_order",
        always,
    ),
    Mutant(
        "fuse-epilogue",
        "an operand of another type is read as a whole",
        f"{PASSES}.structured.fusion.fuse_epilogue:reads_whole",
        whole_by_its_map,
    ),
    Mutant(
        "fuse-epilogue",
        "loops are permuted, maps are not",
        f"{PASSES}.structured.analysis.permute_results:renumbered",
        maps_kept,
        training=True,
        needs=frozenset({"Gemm"}),
    ),
    Mutant(
        "fuse-attention",
        "loops of a matmul are in the order of its result",
        f"{PASSES}.structured.fusion.fuse_attention:_of_rows",
        unturned,
    ),
    Mutant(
        "parallelize-loops",
        "the last part of a loop is missing",
        f"{PASSES}.structured.parallel.parallelize_loops:best_parts",
        without_last_part,
    ),
    Mutant(
        "structured-to-loops",
        "chunks zero the first part of a halo only",
        f"{PASSES}.structured.to_loops.emit.zero_padding:_part_of",
        first_half,
    ),
    Mutant(
        "fuse-channels",
        "grouped convolutions are taken for depthwise ones",
        f"{PASSES}.structured.fusion.fuse_channels:follows",
        always,
    ),
    Mutant(
        "merge-maps",
        "a map that reads other elements is merged",
        f"{PASSES}.structured.fusion.merge_maps:reads_whole",
        always,
        training=True,
    ),
    Mutant(
        "fuse-rows",
        "only the first result leaves the fused operation",
        f"{PASSES}.structured.fusion.join:read_elsewhere",
        first_result_only,
    ),
    Mutant(
        "assign-layouts",
        "a view of permuted axes is still a view",
        f"{PASSES}.structured.layout.assign_layouts:_same",
        always,
    ),
    Mutant(
        "assign-halos",
        "readers begin with the first row, not before it",
        f"{PASSES}.structured.layout.assign_halos:_read_past",
        without_offsets,
    ),
    Mutant(
        "assign-halos",
        "readers begin with the first row, not before it, in training",
        f"{PASSES}.structured.layout.assign_halos:_read_past",
        without_offsets,
        training=True,
    ),
    Mutant(
        "assign-halos",
        "a concatenation has no halos for its operands",
        f"{PASSES}.structured.layout.assign_halos:_make_room",
        nothing,
        needs=frozenset({"Conv", "Concat"}),
    ),
    Mutant(
        "assign-halos",
        "operands of a concatenation are read past their ends",
        f"{PASSES}.structured.layout.assign_halos:_ends_with",
        always,
        needs=frozenset({"Concat"}),
    ),
    Mutant(
        "assign-halos",
        "halos of one pixel all go to the same dimension",
        f"{PASSES}.structured.layout.assign_halos:_counterparts",
        first_twin,
        shows_in=averaged_convolutions,
    ),
    Mutant(
        "assign-halos",
        "a maximum with any epilogue is never negative",
        f"{PASSES}.structured.layout.assign_halos:is_identity",
        always,
        needs=frozenset({"Relu", "MaxPool"}),
    ),
    Mutant(
        "structured-to-loops",
        "the halo of a tensor without elements is not cleared",
        f"{PASSES}.structured.to_loops.emit.zero_padding:halo_boxes",
        nothing_around_nothing,
        needs=frozenset({"CumSum"}),
    ),
    Mutant(
        "use-winograd",
        "the window is transposed",
        f"{PASSES}.structured.winograd.use_winograd:convolution",
        window_turned,
    ),
    Mutant(
        "use-winograd",
        "the window is reversed",
        f"{PASSES}.structured.winograd.use_winograd:convolution",
        window_backwards,
        training=True,
    ),
    Mutant(
        "use-winograd",
        "the window of a gradient is transposed",
        f"{PASSES}.structured.winograd.use_winograd:weight_gradient",
        rows_for_columns,
        training=True,
        needs=frozenset({"Conv"}),
    ),
    Mutant(
        "settle-loops",
        "loops are joined that a transposed operand walks in another order",
        f"{PASSES}.structured.schedule.settle_loops:Operand.pair",
        in_any_order,
    ),
    Mutant(
        "settle-loops",
        "all streams take the addends of the first",
        f"{PASSES}.structured.schedule.settle_loops:_split",
        the_first_stream,
        needs=frozenset({"Gemm"}),
    ),
    Mutant(
        "schedule-contractions",
        "panels have half the lanes of the schedule",
        f"{PASSES}.structured.schedule.schedule_contractions:panel_layout",
        lanes_of_other,
    ),
    Mutant(
        "hoist-constants",
        "operations with a constant first operand are constant",
        f"{PASSES}.analysis.invariants:_read_by",
        first_operand_decides,
    ),
    Mutant(
        "hoist-invariants",
        "carried values count as captured",
        f"{PASSES}.structured.hoist_invariants:_captured",
        carried_as_captured,
        shows_in=controlled,
    ),
    Mutant(
        "move-updates",
        "updates do not wait for their operands",
        f"{PASSES}.structured.move_updates:_read_by",
        none_of_them,
        training=True,
    ),
    Mutant(
        "structured-to-loops",
        "local memory is not shifted by its first row",
        f"{PASSES}.structured.to_loops.fused:FusedLoops._start",
        unshifted,
    ),
    Mutant(
        "structured-to-loops",
        "all iterations compute the first channels",
        f"{PASSES}.structured.to_loops.fused:part_stride",
        no_distance,
        shows_in=separable_convolutions,
    ),
    Mutant(
        "structured-to-loops",
        "the halo of a local image is not cleared",
        f"{PASSES}.structured.to_loops.fused:halo_boxes",
        none_of_them,
        shows_in=separable_convolutions,
    ),
    Mutant(
        "structured-to-loops",
        "line buffers do not keep common rows of steps",
        f"{PASSES}.structured.to_loops.contraction.line_buffer:LineBufferLoops._shift_overlap",
        nothing,
        shows_in=separable_convolutions,
    ),
    Mutant(
        "structured-to-loops",
        "a split of a line buffer is not refilled",
        f"{PASSES}.structured.to_loops.contraction.line_buffer:LineBufferLoops._refill",
        nothing,
        shows_in=separable_convolutions,
    ),
    Mutant(
        "structured-to-loops",
        "line buffers are not cleared after the image",
        f"{PASSES}.structured.to_loops.contraction.line_buffer:LineBufferLoops._clear",
        nothing,
        shows_in=separable_convolutions,
    ),
    Mutant(
        "structured-to-loops",
        "the last panel is one lane short",
        f"{PASSES}.structured.to_loops.contraction.tile_nest:last_panel",
        one_lane_less,
    ),
    Mutant(
        "structured-to-loops",
        "totals with K outermost keep the last chunk only",
        f"{PASSES}.structured.to_loops.contraction.k_outer:sum_of_two",
        chunk_for_total,
    ),
    Mutant(
        "structured-to-loops",
        "totals with K outermost are not initialized",
        f"{PASSES}.structured.to_loops.contraction.contract:ContractLoops._k_outer_loops",
        from_anything,
    ),
    Mutant(
        "structured-to-loops",
        "long sums drop chunks of chunks",
        f"{PASSES}.structured.to_loops.contraction.microkernel:TileTotals.carry",
        nothing,
    ),
    Mutant(
        "structured-to-loops",
        "long sums keep their last chunk only",
        f"{PASSES}.structured.to_loops.contraction.tiles:create_same_type",
        newest_twice,
    ),
    Mutant(
        "structured-to-loops",
        "blocks of rows with a common panel share the sums of the first",
        f"{PASSES}.structured.to_loops.contraction.contract:TileSums",
        the_first_rows,
    ),
    Mutant(
        "split-loops",
        "the last blocks are left out",
        f"{PASSES}.loops.splitting:balanced",
        one_short,
    ),
    Mutant(
        "split-loops",
        "all blocks begin at the first row",
        f"{PASSES}.loops.splitting:BlockCopy.write",
        from_the_first_row,
    ),
    Mutant(
        "interchange-loops",
        "an index is twice its first part",
        f"{PASSES}.loops.interchanging:copy_of",
        first_part_twice,
    ),
    Mutant(
        "interchange-loops",
        "inner loops are left out",
        f"{PASSES}.loops.interchanging:Distribution._loop",
        nothing_yielded,
    ),
    Mutant(
        "vectorize-loops",
        "the last vector is left out",
        f"{PASSES}.loops.vectorizing:widths_of",
        one_short,
    ),
    Mutant(
        "vectorize-loops",
        "products are added to a factor instead of the sum",
        f"{PASSES}.loops.vectorizing:create_same_type",
        newest_twice,
    ),
    Mutant(
        "unroll-loops",
        "the last iteration is left out",
        f"{PASSES}.loops.marked:iterations",
        without_the_last,
    ),
    Mutant(
        "unroll-loops",
        "all iterations compute with the values of the first",
        f"{PASSES}.loops.unrolling:Unrolling._key",
        as_it_is,
    ),
    Mutant(
        "unroll-loops",
        "deferred index arithmetic is not emitted",
        f"{PASSES}.loops.editor:Editor.need",
        nothing,
    ),
    Mutant(
        "structured-to-loops",
        "2x2 tiles are not transposed",
        f"{PASSES}.structured.to_loops.emit.transpose_in_registers:_from",
        pairs_not_transposed,
        needs=frozenset({"Gemm"}),
    ),
    Mutant(
        "map-to-tiles",
        "a view has the mapping of its source, whatever its shape",
        "popgraph.ipu.map_to_tiles:reshaped",
        as_it_is,
    ),
    Mutant(
        "map-to-tiles",
        "an operand of another type is read as a whole",
        "popgraph.ipu.map_to_tiles:reads_whole",
        whole_by_its_map,
    ),
    Mutant(
        "read-narrow",
        "operations before a conversion are left out",
        f"{PASSES}.structured.schedule.read_narrow:_before_last",
        as_they_came,
    ),
    Mutant(
        "read-narrow",
        "the part of a word is the index of the loop before",
        f"{PASSES}.structured.schedule.read_narrow:_part",
        a_part_by_the_element,
        shows_in=block_products,
    ),
    Mutant(
        "sum-in-blocks",
        "all blocks have the epilogue of the first",
        f"{PASSES}.structured.fusion.sum_in_blocks:_blocks",
        of_the_first_block,
        shows_in=block_products,
    ),
    Mutant(
        "structured-to-loops",
        "the remainder begins one element late",
        f"{PASSES}.structured.to_loops.emit.vectors:_after",
        rest_too_late,
    ),
    Mutant(
        "structured-to-loops",
        "in place despite another reader",
        f"{PASSES}.structured.to_loops.emit.access:reads_whole",
        always,
    ),
    Mutant(
        "structured-to-loops",
        "common elements of two gradient tiles count twice",
        f"{PASSES}.structured.to_loops.winograd.tile_transforms:ImageTile.is_own",
        nothing,
        training=True,
        shows_in=learning_convolutions,
    ),
    Mutant(
        "structured-to-loops",
        "bodies are not part of the structure of an operation",
        f"{PASSES}.analysis.structural_hash:StructuralHasher._operation",
        no_regions,
    ),
    Mutant(
        "prefetch-panels",
        "the section after the next one is prefetched",
        f"{PASSES}.loops.prefetching:Inserter._in_next",
        a_section_further,
    ),
    Mutant(
        "prefetch-panels",
        "lines are prefetched when they are read",
        f"{PASSES}.loops.prefetching:Inserter.ahead",
        at_once,
    ),
    Mutant(
        "prefetch-panels",
        "only the first loop of a kernel has prefetches",
        f"{PASSES}.loops.prefetching:loops_in",
        first_only,
    ),
    Mutant(
        "plan-memory",
        "memory is free one launch early",
        f"{PASSES}.program.section:Section.intervals",
        freed_early,
    ),
    Mutant(
        "plan-memory",
        "operands of a concatenation begin one element early",
        f"{PASSES}.program.plan_memory:places",
        one_element_early,
        needs=frozenset({"Concat"}),
    ),
    Mutant(
        "plan-memory",
        "memory is free after the first reader",
        f"{PASSES}.program.storage:Storage.read",
        first_reader_last,
    ),
    Mutant(
        "plan-memory",
        "a variable changes before all have read it",
        f"{PASSES}.program.plan_memory:InPlace.may_replace",
        always,
        training=True,
    ),
    Mutant(
        "plan-memory",
        "a value that is returned twice reaches one output",
        f"{PASSES}.program.plan_memory:Copy",
        second_output_from_itself,
    ),
    Mutant(
        "plan-memory",
        "an initializer that is returned has its next value",
        f"{PASSES}.program.plan_memory:_Planner._place_updates",
        variables_returned_late,
        training=True,
        shows_in=small_steps,
    ),
    Mutant(
        "split-kernels",
        "the last part of a kernel is not called",
        f"{PASSES}.program.split_kernels:calls",
        all_but_the_last,
    ),
)
