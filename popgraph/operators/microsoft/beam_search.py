"""PopART's decoder of connectionist temporal classification, a search with a beam of prefixes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from popgraph.operators.microsoft.body import Body, Value
from popgraph.operators.microsoft.call import Call, defines
from popgraph.operators.microsoft.normalizations import wide

NOTHING = float("-inf")
"""The logarithm of the probability of what cannot be."""


@dataclass(frozen=True)
class _Sizes:
    """Of a search: how long, how wide, among how many labels, one of which is the blank."""

    time: int
    batch: int
    labels: int
    width: int
    blank: int


@dataclass(frozen=True)
class _Beam:
    """
    The most likely prefixes, [batch, width], each with two logarithms of probabilities.

    Those are of all ways to come to the prefix that end in a blank, and of those that do not.
    The length of a prefix that cannot be is -1. Behind its end a prefix has labels -1.
    """

    prefixes: Value
    lengths: Value
    blanks: Value
    labels: Value

    def values(self) -> tuple[Value, Value, Value, Value]:
        return self.prefixes, self.lengths, self.blanks, self.labels

    @property
    def all(self) -> Value:
        return _either(self.blanks, self.labels)


@defines("CtcBeamSearchDecoder", "log_probs data_lengths", domain="ai.graphcore")
def ctc_beam_search_decoder(call: Call) -> Sequence[Value]:
    """The likeliest rows of labels: logarithms of their probabilities, lengths, and labels."""
    if call.rank("log_probs") != 3 or call.rank("data_lengths") != 1:
        raise call.unfit()
    time, batch, labels = (call.size("log_probs", axis) for axis in range(3))
    if call.size("data_lengths", 0) != batch:
        raise call.unfit()
    paths, width = call.integer("top_paths", 1), call.integer("beam_width", 100)
    sizes = _Sizes(time, batch, labels, width, call.integer("blank"))
    if not 0 < paths <= width or not 0 <= sizes.blank < labels:
        raise call.unfit(
            f"top_paths {paths}, blank {sizes.blank}, beam_width {width}, {labels} labels",
            "top_paths is 1 to beam_width, blank one of the labels",
        )
    ends = call["data_lengths"].typed("i64").reshaped(batch, 1)
    chances = wide(call, call["log_probs"], "log_probs")

    def turn(body: Body, *now: Value) -> Sequence[Value]:
        *held, chances, at = now
        old, goes_on = _Beam(*held), at < ends
        new = _turned(body, sizes, old, chances)
        return [
            goes_on.Unsqueeze([2]).Where(new.prefixes, old.prefixes),
            goes_on.Where(new.lengths, old.lengths),
            goes_on.Where(new.blanks, old.blanks),
            goes_on.Where(new.labels, old.labels),
        ]

    first = _first(call.body, sizes, chances)
    found = _Beam(*call.body.scanned(first.values(), [chances, call.body.counted(time)], turn)[:4])
    kept = _Beam(*(one.part(0, paths, 1) for one in found.values()))
    least = call.body.constant(0)
    return [
        kept.all.CastLike(call["log_probs"]),
        kept.lengths.Max(least).typed("u32"),
        kept.prefixes.Max(least.typed("i32")).typed("u32"),
    ]


def _first(body: Body, sizes: _Sizes, chances: Value) -> _Beam:
    """The empty prefix, and nothing beside it, with numbers of the type of the chances."""
    shape = (sizes.batch, sizes.width)
    is_first = np.arange(sizes.width) == 0
    lengths = np.broadcast_to(np.where(is_first, 0, -1), shape)
    blanks = np.where(np.broadcast_to(is_first, shape), 0, NOTHING).astype(np.float32)
    prefixes = np.full((*shape, sizes.time), -1, np.int32)
    return _Beam(
        body.constant(prefixes),
        body.constant(np.ascontiguousarray(lengths)),
        body.constant(blanks).CastLike(chances),
        body.constant(np.full(shape, NOTHING, np.float32)).CastLike(chances),
    )


def _either(one: Value, other: Value) -> Value:
    """The logarithm of the sum of two probabilities."""
    largest = one.Max(other)
    can_be = largest > NOTHING
    base = can_be.Where(largest, largest.number(0.0))
    total = (one - base).Exp() + (other - base).Exp()
    return can_be.Where(base + can_be.Where(total, total.number(1.0)).Log(), largest)


def _turned(body: Body, sizes: _Sizes, beam: _Beam, chances: Value) -> _Beam:
    """The beam after one more step of time, in which the labels have these chances."""
    last = _last(body, sizes, beam)
    is_last = last.Unsqueeze([2]).same(body.counted(sizes.labels))
    never = chances.number(NOTHING)
    longer = is_last.Where(beam.blanks.Unsqueeze([2]), beam.all.Unsqueeze([2]))
    longer = longer + chances.Unsqueeze([1])
    longer = body.counted(sizes.labels).same(sizes.blank).Where(never, longer)
    is_child = _children(body, sizes, beam)
    place = last.Max(body.constant(0))
    # What a prefix in the beam becomes by its child's last label is the child, not another one.
    by_child = place.Unsqueeze([1]).Expand([sizes.batch, sizes.width, sizes.width])
    joined = is_child.Where(longer.GatherElements(by_child, axis=2), never)
    becomes_child = (is_child.typed("f32") @ is_last.typed("f32")) > 0.0
    longer = becomes_child.Where(never, longer)
    repeated = (last >= 0).Where(beam.labels + chances.GatherElements(place, axis=1), never)
    stays = _Beam(
        beam.prefixes,
        beam.lengths,
        beam.all + chances.part(sizes.blank, sizes.blank + 1, 1),
        _either(repeated, joined.ReduceMax([1], keepdims=0)),
    )
    return _best(body, sizes, stays, longer)


def _last(body: Body, sizes: _Sizes, beam: _Beam) -> Value:
    """The last label of each prefix; -1 if there is none."""
    at = (beam.lengths - 1).Max(body.constant(0)).Unsqueeze([2])
    found = beam.prefixes.GatherElements(at, axis=2).Squeeze([2]).typed("i64")
    return (beam.lengths > 0).Where(found, body.constant(-1))


def _children(body: Body, sizes: _Sizes, beam: _Beam) -> Value:
    """Whether a prefix with one more label is another one: [batch, width, width]."""
    ends = body.counted(sizes.time).same((beam.lengths - 1).Unsqueeze([2]))
    shorter = ends.Where(body.constant(-1).typed("i32"), beam.prefixes)
    pairs = beam.prefixes.Unsqueeze([2]).same(shorter.Unsqueeze([1]))
    alike = pairs.typed("u8").ReduceMin([3], keepdims=0).same(body.constant(1).typed("u8"))
    own, other = beam.lengths.Unsqueeze([2]), beam.lengths.Unsqueeze([1])
    return alike & (own >= 0) & (own + 1).same(other)


def _best(body: Body, sizes: _Sizes, stays: _Beam, longer: Value) -> _Beam:
    """The likeliest of the prefixes that stay and of those with a label more."""
    width, labels = sizes.width, sizes.labels
    chances = stays.all.Concat(longer.reshaped(sizes.batch, width * labels), axis=1)
    chance, place = chances.several("TopK", 2, [width], axis=1)
    grows = place >= width
    beyond = (place - width).Max(body.constant(0))
    parent = grows.Where(beyond.Div(body.constant(labels)), place)
    label = (beyond % labels).typed("i32").Unsqueeze([2])
    lengths = stays.lengths.GatherElements(parent, axis=1)
    rows = parent.Unsqueeze([2]).Expand([sizes.batch, width, sizes.time])
    prefixes = stays.prefixes.GatherElements(rows, axis=1)
    is_new = grows.Unsqueeze([2]) & body.counted(sizes.time).same(lengths.Unsqueeze([2]))
    never = chance.number(NOTHING)
    return _Beam(
        is_new.Where(label, prefixes),
        (chance > NOTHING).Where(lengths + grows.typed("i64"), body.constant(-1)),
        grows.Where(never, stays.blanks.GatherElements(parent, axis=1)),
        grows.Where(chance, stays.labels.GatherElements(parent, axis=1)),
    )
