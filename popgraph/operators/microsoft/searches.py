"""Search operators: greedy decoding, CTC beam search, dynamic time warping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import TensorType

from popgraph.dialects.onnx.op import Graph
from popgraph.dialects.onnx.types import dims
from popgraph.operators.microsoft.body import Body, Value
from popgraph.operators.microsoft.call import Call, defines
from popgraph.operators.microsoft.tokens import would_repeat
from popgraph.operators.record import HOSTED

LOWEST = float(np.finfo(np.float32).min)
"""The score of a forbidden token."""


@defines("GreedySearch",
         "input_ids max_length min_length repetition_penalty vocab_mask prefix_vocab_mask "
         "attention_mask",
         ignored="vocab_size decoder_start_token_id", without_gradient=HOSTED)  # fmt: skip
def greedy_search(call: Call) -> Value:
    """
    Appends the likeliest token until all sequences have ended or have the maximal length.

    Ended sequences are padded with `pad_token_id`, up to `max_length`.
    """
    decoder, states = _decoder(call)
    ids, pad = call["input_ids"], call.integer("pad_token_id")
    mask, places, following = _places(call, ids, pad)
    most = call["max_length"].typed("i64").reshaped()
    running = call.body.constant(np.array(True)).Expand(ids.Shape(end=1))
    start = [ids, ids, places, mask, following, running, *_empty(call, decoder, states)]

    one = call.body.constant(np.array(1, np.int32))

    def step(body: Body, at: Value, *now: Value) -> tuple[Value, Sequence[Value]]:
        sequences, new, places, mask, following, running, *past = now
        logits, *present = body.called(decoder, [new, places, mask, *past], 1 + states)
        last = logits.Gather(-1, axis=1)
        chosen = _allowed(call, last, sequences, at).ArgMax(axis=1, keepdims=0).typed("i32")
        running = running & chosen.same(call.integer("eos_token_id")).Not()
        token = running.Where(chosen, chosen.number(pad)).Unsqueeze([1])
        longer = sequences.Concat(token, axis=1)
        seen = mask.Concat(one.Expand(token.Shape()), axis=1)
        kept = [longer, token, following, seen, following + 1, running, *present]
        return running.typed("i32").ReduceMax(keepdims=0) > 0, kept

    found, *_ = call.body.looped(most - ids.length(1), start, step)
    missing = (most - found.length(1)).Max(0).reshaped(1)
    pads = call.body.constant([0, 0, 0]).Concat(missing, axis=0)
    return found.Pad(pads, found.number(pad))


def _decoder(call: Call) -> tuple[Graph, int]:
    """The decoder graph, and its number of states."""
    if call.integer("model_type"):
        raise call.refuse(f"model_type = {call.integer('model_type')}", "use 0 (GPT-2)")
    decoder = call.graph("decoder")
    states = len(decoder.outputs) - 1
    if len(decoder.inputs) != 3 + states or states < 1:
        raise call.refuse(
            f"a decoder of {len(decoder.inputs)} inputs and {len(decoder.outputs)} outputs",
            "use inputs input_ids, position_ids, attention_mask and states, and outputs logits "
            "and states",
        )
    return decoder, states


def _empty(call: Call, decoder: Graph, states: int) -> list[Value]:
    """Empty states: [2, batch, heads, 0, size]."""
    found = []
    for argument in list(decoder.block.args)[3 : 3 + states]:
        sizes = dims(argument.type) if isinstance(argument.type, TensorType) else None
        if sizes is None or len(sizes) != 5:
            raise call.unfit("a decoder whose states are not [2, batch, heads, tokens, size]")
        heads, size = sizes[2], sizes[4]
        if not isinstance(heads, int) or not isinstance(size, int):
            raise call.unfit("a decoder whose states have an unknown number of heads or size")
        before = call.body.constant([2]).Concat(call["input_ids"].Shape(end=1), axis=0)
        shape = before.Concat([heads, 0, size], axis=0)
        found.append(call.body.constant(0.0).Expand(shape))
    return found


def _places(call: Call, ids: Value, pad: int) -> tuple[Value, Value, Value]:
    """The attention mask, the position of each token, and the position of the next one."""
    is_token = ids.same(pad).Not().typed("i32")
    places = (is_token.CumSum(1) - 1) * is_token
    return call.get("attention_mask") or is_token, places, is_token.ReduceSum([1])


def _allowed(call: Call, scores: Value, sequences: Value, at: Value) -> Value:
    """Scores of the next token, after penalties and masks."""
    tokens = scores.body.counted(scores.length(1)).typed("i32")
    never = scores.number(LOWEST)
    if call.has("repetition_penalty"):
        penalty = call["repetition_penalty"]
        there = sequences.Unsqueeze([2]).same(tokens).typed("i32").ReduceMax([1], keepdims=0) > 0
        less = (scores < 0).Where(scores * penalty, scores / penalty)
        scores = there.Where(less, scores)
    size = call.integer("no_repeat_ngram_size")
    if size > 0:
        repeats = would_repeat(sequences.typed("i64"), size, scores.length(1))
        scores = repeats.Where(never, scores)
    if call.has("vocab_mask"):
        scores = call["vocab_mask"].same(0).Where(never, scores)
    if call.has("prefix_vocab_mask"):
        scores = (call["prefix_vocab_mask"].same(0) & at.same(0)).Where(never, scores)
    if call.has("min_length"):
        early = sequences.length(1) < call["min_length"].typed("i64")
        ends = tokens.same(call.integer("eos_token_id"))
        scores = (ends & early).Where(never, scores)
    return scores


NOTHING = float("-inf")
"""log 0, of impossible prefixes."""


@dataclass(frozen=True)
class _Sizes:
    """The sizes of a search: steps, batch, labels, beam width; and the index of the blank."""

    time: int
    batch: int
    labels: int
    width: int
    blank: int


@dataclass(frozen=True)
class _Beam:
    """
    The most likely prefixes, [batch, width], each with two log probabilities.

    They sum over all alignments that end in a blank (`blanks`), and over all others (`labels`).
    An impossible prefix has length -1. Prefixes are padded with labels -1.
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
    """The likeliest label sequences: their log probabilities, lengths and labels."""
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
            "use top_paths from 1 to beam_width, and one of the labels as blank",
        )
    ends = call["data_lengths"].typed("i64").reshaped(batch, 1)
    chances = call.wide("log_probs")

    def step(body: Body, *now: Value) -> Sequence[Value]:
        *held, chances, at = now
        old, runs = _Beam(*held), at < ends
        new = _advanced(body, sizes, old, chances)
        return [
            runs.Unsqueeze([2]).Where(new.prefixes, old.prefixes),
            runs.Where(new.lengths, old.lengths),
            runs.Where(new.blanks, old.blanks),
            runs.Where(new.labels, old.labels),
        ]

    first = _first(call.body, sizes, chances)
    found = _Beam(*call.body.scanned(first.values(), [chances, call.body.counted(time)], step)[:4])
    kept = _Beam(*(one.part(0, paths, 1) for one in found.values()))
    least = call.body.constant(0)
    return [
        kept.all.CastLike(call["log_probs"]),
        kept.lengths.Max(least).typed("u32"),
        kept.prefixes.Max(least.typed("i32")).typed("u32"),
    ]


def _first(body: Body, sizes: _Sizes, chances: Value) -> _Beam:
    """The beam with only the empty prefix, in the type of the probabilities."""
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
    """log(e^one + e^other), without overflow or NaN."""
    largest = one.Max(other)
    can_be = largest > NOTHING
    base = can_be.Where(largest, largest.number(0.0))
    total = (one - base).Exp() + (other - base).Exp()
    return can_be.Where(base + can_be.Where(total, total.number(1.0)).Log(), largest)


def _advanced(body: Body, sizes: _Sizes, beam: _Beam, chances: Value) -> _Beam:
    """The beam after one more time step with these log probabilities of labels."""
    last = _last(body, sizes, beam)
    is_last = last.Unsqueeze([2]).same(body.counted(sizes.labels))
    never = chances.number(NOTHING)
    longer = is_last.Where(beam.blanks.Unsqueeze([2]), beam.all.Unsqueeze([2]))
    longer = longer + chances.Unsqueeze([1])
    longer = body.counted(sizes.labels).same(sizes.blank).Where(never, longer)
    is_child = _children(body, sizes, beam)
    place = last.Max(body.constant(0))
    # A prefix extended to another prefix of the beam (its child) adds to the child's probability.
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
    """The last label of each prefix; -1 for empty ones."""
    at = (beam.lengths - 1).Max(body.constant(0)).Unsqueeze([2])
    found = beam.prefixes.GatherElements(at, axis=2).Squeeze([2]).typed("i64")
    return (beam.lengths > 0).Where(found, body.constant(-1))


def _children(body: Body, sizes: _Sizes, beam: _Beam) -> Value:
    """Whether prefix i is prefix j plus one label, [batch, i, j]."""
    ends = body.counted(sizes.time).same((beam.lengths - 1).Unsqueeze([2]))
    shorter = ends.Where(body.constant(-1).typed("i32"), beam.prefixes)
    pairs = beam.prefixes.Unsqueeze([2]).same(shorter.Unsqueeze([1]))
    alike = pairs.typed("u8").ReduceMin([3], keepdims=0).same(body.constant(1).typed("u8"))
    own, other = beam.lengths.Unsqueeze([2]), beam.lengths.Unsqueeze([1])
    return alike & (own >= 0) & (own + 1).same(other)


def _best(body: Body, sizes: _Sizes, stays: _Beam, longer: Value) -> _Beam:
    """The likeliest prefixes among the unchanged and the extended ones."""
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


DIAGONAL, UP, LEFT = 0, 1, 2
"""The predecessors of an element on a path."""


@defines("DynamicTimeWarping", "input", without_gradient=HOSTED)
def dynamic_time_warping(call: Call) -> Value:
    """The path of least cost from the first to the last element of a matrix, [2, length]."""
    rank = call.rank("input")
    if rank not in (2, 3) or (rank == 3 and call.size("input", 0) != 1):
        raise call.unfit(f"costs of {rank} dimensions", "use [rows, columns] or [1, rows, columns]")
    costs = call["input"].Squeeze([0]) if rank == 3 else call["input"]
    rows, columns = costs.length(0), costs.length(1)
    ways = _ways(costs).reshaped(-1)

    def step(_: Body, row: Value, column: Value, _step: Value) -> Sequence[Value]:
        inside = (row >= 0) & (column >= 0)
        way, moves = ways.Gather((column * rows + row).Max(0)), inside.typed("i64")
        up, left = (way.same(one).Not().typed("i64") for one in (LEFT, UP))
        return row - up * moves, column - left * moves, row, column, inside

    steps = call.body.counted(rows + columns - 1)
    *_, row, column, inside = call.body.scanned([rows - 1, columns - 1], steps, step, True)
    path = row.Unsqueeze([0]).Concat(column.Unsqueeze([0]), axis=0)
    return path.Compress(inside, axis=1).typed("i32")


def _ways(costs: Value) -> Value:
    """The predecessor on the best path to each element, [columns, rows]."""
    body = costs.body
    none = costs.number(float("inf"))
    start = (costs.part(0, 1, 1).Squeeze([1]) * 0).number(0.0).reshaped(1)

    def down(_: Body, up: Value, diagonal: Value, left: Value, cost: Value) -> Sequence[Value]:
        is_diagonal = (diagonal < up) & (diagonal < left)
        is_up = (up < diagonal) & (up < left)
        least = is_diagonal.Where(diagonal, is_up.Where(up, left)) + cost
        way = is_diagonal.Where(
            body.constant(DIAGONAL), is_up.Where(body.constant(UP), body.constant(LEFT))
        )
        return least, least, way

    def across(inner: Body, before: Value, corner: Value, column: Value) -> Sequence[Value]:
        diagonals = corner.Concat(before.part(0, -1, 0), axis=0)
        _, made, way = inner.scanned([none], [diagonals, before, column], down)
        return made, none.reshaped(1), way

    first = none.Expand(costs.Shape(start=0, end=1))
    _, _, ways = body.scanned([first, start], costs.permuted(1, 0), across)
    return ways
