"""onnxruntime's operators on tokens: hashes, unique values, n-grams, character embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from xdsl.dialects.builtin import IntegerType

from popgraph.operators.microsoft.body import LAST, Value, total
from popgraph.operators.microsoft.call import Call, defines
from popgraph.operators.microsoft.states import Requests, capacity_of

HASHES = "it hashes integers"


@defines("Unique", "x")
def unique(call: Call) -> Sequence[Value]:
    """The unique values in order of first occurrence, with inverse indices and counts."""
    values, _, places, counts = call["x"].several("Unique", 4, sorted=0)
    return values, places, counts


def _rotated(value: Value, by: int) -> Value:
    """Rotates 32 bits to the left."""
    up = value.BitShift(np.uint32(by), direction="LEFT")
    return up.BitwiseOr(value.BitShift(np.uint32(32 - by), direction="RIGHT"))


def _mixed(value: Value, by: int) -> Value:
    return value.BitwiseXor(value.BitShift(np.uint32(by), direction="RIGHT"))


@defines("MurmurHash3", "X", without_gradient=HASHES)
def murmur_hash(call: Call) -> Value:
    """MurmurHash3_x86_32 of integers, by words of 32 bits, low ones first."""
    kind, x = call.element("X"), call["X"]
    if not isinstance(kind, IntegerType) or kind.width.data not in (32, 64):
        raise call.refuse(
            "an input other than integers of 32 or 64 bits", "hash it outside of the model"
        )
    length = kind.width.data // 8
    words = [x.typed("u32")]
    if length == 8:
        words.append(x.typed("u64").BitShift(np.uint64(32), direction="RIGHT").typed("u32"))
    seed = call.integer("seed") % 2**32
    state = words[0].BitwiseXor(words[0]).BitwiseXor(np.uint32(seed))
    for word in words:
        word = _rotated(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        state = _rotated(state.BitwiseXor(word), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    state = _mixed(state.BitwiseXor(np.uint32(length)), 16)
    state = _mixed(state * np.uint32(0x85EBCA6B), 13)
    state = _mixed(state * np.uint32(0xC2B2AE35), 16)
    return state if call.integer("positive", 1) else state.typed("i32")


@defines("NGramHashMapping",
         "input_ids multipliers vocab_sizes past_ids head_offsets eos_token_id segment_ids",
         without_gradient=HASHES)  # fmt: skip
def ngram_hashes(call: Call) -> Sequence[Value]:
    """Hashes of the n-grams that end at each token, for n from 2 on and every head."""
    ids, before, filler = call["input_ids"], call.needs("max_ngram_size") - 1, filler_of(call)
    past = call.get("past_ids")
    if past is None:
        rows = ids.Shape(start=0, end=1).Concat([before], axis=0)
        past = filler.Expand(rows)
    every, length = past.Concat(ids, axis=1), ids.Shape(start=1, end=2)
    breaks = _breaks(call, before)

    def shifted(value: Value, by: int) -> Value:
        return value.Slice([before - by], length + (before - by), [1])

    values = [shifted(every, by) for by in range(before + 1)]
    over = [breaks and shifted(breaks, by - 1) for by in range(1, before + 1)]
    return hashes_of(call, values, over, filler), every.part(-before, LAST, 1)


def filler_of(call: Call) -> Value:
    """The token that pads sequences at the front: `eos_token_id`, else `pad_id`, a scalar."""
    call.ignore("pad_id reset_on_eos")  # Each applies only with or without `eos_token_id`.
    found = call.get("eos_token_id")
    if found is None:
        found = call.body.constant(call.integer("pad_id")).CastLike(call["input_ids"])
    return found.reshaped()


def hashes_of(
    call: Call, values: Sequence[Value], breaks: Sequence[Value | None], filler: Value
) -> Value:
    """
    Hashes of n-grams; `values` are the tokens 0, 1, 2, ... positions before each token.

    `breaks` mask the earlier tokens that are followed by the begin of another segment.
    """
    heads, made, mixed = call.needs("n_head_per_ngram"), [], None
    resets = call.integer("reset_on_eos") and call.has("eos_token_id")
    is_over: Value | None = None
    for by, value in enumerate(values):
        over = [breaks[by - 1], value.same(filler) if resets else None] if by else []
        for one in (is_over, *over):
            if one is not None:
                is_over = one if is_over is None else is_over | one
        if is_over is not None:
            value = is_over.Where(filler, value)
        product = value * call["multipliers"].part(by, by + 1, 0)
        mixed = product if mixed is None else mixed.BitwiseXor(product)
        if by:
            sizes = call["vocab_sizes"].part((by - 1) * heads, by * heads, 0)
            made.append(mixed.Unsqueeze([-1]).Mod(sizes))
    return total(made[0].Concat(*made[1:], axis=-1), call.get("head_offsets"))


def _breaks(call: Call, before: int) -> Value | None:
    """The mask of tokens that begin another segment, padded with False for past tokens."""
    kinds = call.get("segment_ids")
    if kinds is None:
        return None
    later, earlier = kinds.part(1, LAST, 1), kinds.part(0, -1, 1)
    differ = later.same(earlier).Not().typed("i32")
    return differ.Pad([0, before + 1, 0, 1]).typed("bool")


@defines("VarlenNGramHashMapping",
         "input_ids multipliers vocab_sizes cumulative_sequence_length past_ids head_offsets "
         "eos_token_id segment_ids past_segment_ids capture_count",
         without_gradient=HASHES)  # fmt: skip
def packed_hashes(call: Call) -> Sequence[Value | None]:
    """NGramHashMapping of packed sequences."""
    before, capacity = call.needs("max_ngram_size") - 1, capacity_of(call)
    requests, filler = Requests.of(call["cumulative_sequence_length"]), filler_of(call)
    tokens = call.body.counted(call["input_ids"].length(0))
    owners, count = requests.owners(tokens), requests.begins.length(0)
    places = tokens - requests.begins.Gather(owners)
    rows = count.reshaped(1).Concat([before], axis=0)
    ids = _with_past(call, "input_ids", "past_ids", filler.Expand(rows))
    reached = [requests.reached(owners, places - by, before) for by in range(before + 1)]
    parts = _segments(call, requests, rows)
    kinds = [parts and parts.Gather(one) for one in reached]
    breaks = [one and other and one.same(other).Not() for one, other in pairwise(kinds)]
    made = hashes_of(call, [ids.Gather(one) for one in reached], breaks, filler)
    sequences = call.body.counted(count).Unsqueeze([1])
    kept = requests.reached(sequences, requests.last(before), before)
    shown = None
    if capacity:
        captured = requests.captured(call, capacity).Unsqueeze([2])
        first = call.body.counted(capacity).Unsqueeze([1]) + 1 - before
        back = captured.Where(first + call.body.counted(before), call.body.constant(-before))
        states = ids.Gather(requests.reached(sequences.Unsqueeze([2]), back, before))
        shown = captured.Where(states, states.number(call.integer("pad_id")))
    return made, ids.Gather(kept), parts and parts.Gather(kept), shown


def _with_past(call: Call, now: str, past: str, otherwise: Value) -> Value:
    """The past rows of all sequences, followed by the sequences."""
    return (call.get(past) or otherwise).reshaped(-1).Concat(call[now], axis=0)


def _segments(call: Call, requests: Requests, rows: Value) -> Value | None:
    """The segments of past and current tokens; unknown past ones equal the sequence's first."""
    if not call.has("segment_ids"):
        return None
    first = call["segment_ids"].Gather(requests.begins).Unsqueeze([1])
    return _with_past(call, "segment_ids", "past_segment_ids", first.Expand(rows))


@defines("NGramRepeatBlock", "input_ids scores")
def ngram_repeat_block(call: Call) -> Value:
    """Sets the scores of tokens that would repeat an n-gram to -inf."""
    scores, size = call["scores"], call.needs("ngram_size")
    repeats = would_repeat(call["input_ids"], size, scores.length(1))
    return repeats.Where(scores.number(float("-inf")), scores)


def would_repeat(ids: Value, size: int, tokens: Value) -> Value:
    """The mask of tokens that would repeat an earlier n-gram, [batch, tokens]."""
    body, length = ids.body, ids.length(1)
    inside = body.constant(np.arange(size - 1))
    starts = body.counted((length - (size - 1)).Max(0))
    before = ids.Gather(starts.Unsqueeze([1]) + inside, axis=1)
    last = ids.Gather((inside + (length - (size - 1))).Max(0), axis=1).Unsqueeze([1])
    differ = before.same(last).Not().typed("i64").ReduceSum([2], keepdims=0)
    ends = ids.Gather(starts + (size - 1), axis=1).Unsqueeze([2])
    found = ends.same(body.counted(tokens)) & differ.same(0).Unsqueeze([2])
    return found.typed("i64").ReduceSum([1], keepdims=0) > 0


@defines(
    "BifurcationDetector",
    "src_tokens cur_tokens prev_suffix_match_idx pred_tokens",
    without_gradient="it takes integers",
)
def bifurcation(call: Call) -> Sequence[Value]:
    """
    Speculative decoding: appends predicted tokens up to the first that differs from the source.

    The other result is the index in the source after the only match of the last tokens, or -1.
    """
    source, tokens = call["src_tokens"], call["cur_tokens"]
    if call.has("pred_tokens"):
        tokens = tokens.Concat(_accepted(call), axis=0)
    least, most = call.integer("min_ngram_size", 1), call.integer("max_ngram_size", 3)
    if not 0 < least <= most:
        raise call.unfit(f"min_ngram_size = {least}, max_ngram_size = {most}")
    count = source.length(0)
    ends, lengths = call.body.counted(count) + 1, _matches(source, tokens, most)
    found, searches = call.body.constant(-1), None
    for size in range(least, most + 1):
        match = lengths >= size
        matches = match.typed("i64").ReduceSum(keepdims=0)
        first = match.Where(ends, count + 1).ReduceMin(keepdims=0)
        known = (matches > 0) if searches is None else searches & (matches > 0)
        found = known.Where((matches > 1).Where(call.body.constant(-1), first), found)
        searches = known & (first < count)
    return tokens, found.Reshape(call["prev_suffix_match_idx"].Shape())


def _accepted(call: Call) -> Value:
    """The predicted tokens up to and including the first that differs from the source."""
    source, predicted = call["src_tokens"], call["pred_tokens"]
    begin, at = call["prev_suffix_match_idx"].reshaped(), call.body.counted(predicted.length(0))
    place = at + begin
    count = source.length(0)
    differs = source.Gather(place.Min(count - 1)).same(predicted).Not() | (place >= count)
    return predicted.Compress(at <= differs.typed("i32").ArgMax(axis=0, keepdims=0), axis=0)


def _matches(source: Value, tokens: Value, most: int) -> Value:
    """The length of the match of the last tokens at each position of the source, up to `most`."""
    body, length = source.body, tokens.length(0)
    own = body.counted(source.length(0)).Unsqueeze([1]) - body.counted(most)
    last = length - 1 - body.counted(most)
    alike = source.Gather(own.Max(0)).same(tokens.Gather(last.Max(0))) & (own >= 0) & (last >= 0)
    still = alike.Not().typed("i64").CumSum(1).same(0)
    return still.typed("i64").ReduceSum([1], keepdims=0)


@defines("WordConvEmbedding", "Sequence W B C",
         ignored="embedding_size conv_window_size char_embedding_size")  # fmt: skip
def word_embedding(call: Call) -> Value:
    """A convolution over each word's characters (up to the first 0), tanh, and a maximum."""
    words, window = call["Sequence"], call.size("W", 2)
    if call.rank("Sequence") != 2:
        raise call.refuse(f"words of rank {call.rank('Sequence')}", "use [words, characters]")
    chars = call.size("Sequence", -1)
    letters = call["C"].Gather(words).Unsqueeze([1])
    found = letters.Conv(call["W"], call["B"]).Tanh().Squeeze([3])
    inside = words.same(0).Not().typed("i32")
    length = (inside.CumSum(1) * inside).ReduceMax([1])
    seen = (
        call.body.counted(chars - window + 1).typed("i32") <= length.Max(np.int32(window)) - window
    )
    shown = seen.Unsqueeze([1]).Where(found, found.number(-2.0)).ReduceMax([2], keepdims=0)
    return (length > 0).Where(shown, shown.number(0))
