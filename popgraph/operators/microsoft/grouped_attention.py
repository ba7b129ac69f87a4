"""Attention in which a head of keys serves several heads of queries, and rotations by place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from popgraph.operators.microsoft.attention import (
    attended,
    causal,
    heads_of,
    hidden_unless,
    scores_of,
)
from popgraph.operators.microsoft.body import LAST, Value, total
from popgraph.operators.microsoft.call import Call, defines


@defines("RotaryEmbedding", "input position_ids cos_cache sin_cache",
         ignored="scale is_packed_batching")  # fmt: skip
def rotary_embedding(call: Call) -> Value:
    """The scale, and whether a batch is packed, change nothing in onnxruntime either."""
    value, places, rank = call["input"], call["position_ids"], call.rank("input")
    given = call.copied("interleaved rotary_embedding_dim num_heads")
    if rank == 3 and not given.get("num_heads"):
        given["num_heads"] = call.size("input", 2) // (2 * call.size("cos_cache", 1))
    if rank != 3:
        given.pop("num_heads", None)
    if call.rank("position_ids") != 2:
        length = value.Shape(start=rank - 2, end=rank - 1)
        grid = value.Shape(start=0, end=1).Concat(length, axis=0)
        places = (call.body.counted(length.Squeeze()) + places).Expand(grid)
    return value.RotaryEmbedding(call["cos_cache"], call["sin_cache"], places, **given)


@defines("MRotaryEmbedding", "input position_ids cos_cache sin_cache",
         ignored="scale is_packed_batching")  # fmt: skip
def multimodal_rotary_embedding(call: Call) -> Value:
    """Each angle has a place of its own: in time, in a column or in a row."""
    value, places = call["input"], call["position_ids"]
    given = call.copied("interleaved rotary_embedding_dim num_heads")
    if call.rank("input") != 3:
        given.pop("num_heads", None)
    elif not given.get("num_heads"):
        given["num_heads"] = call.size("input", 2) // (2 * call.size("cos_cache", 1))
    streams = _streams(call, call.size("cos_cache", 1))
    tables = []
    for table in (call["cos_cache"], call["sin_cache"]):
        every = table.Gather(places)
        tables.append(
            total(*(every.part(at, at + 1, 0).Squeeze([0]) * _ones(every, streams, at)
                    for at in range(3)))
        )  # fmt: skip
    return value.RotaryEmbedding(*tables, **given)


def _streams(call: Call, width: int) -> list[int]:
    """Which of the three places each angle has."""
    sections, layout = call.listed("mrope_section"), call.integer("mrope_layout")
    if len(sections) != 3 or sum(sections) != width:
        raise call.refuse(f"mrope_section = {sections} for {width} angles", "three parts are")
    if not layout:
        return [at for at, count in enumerate(sections) for _ in range(count)]
    found = [0] * width
    for stream in (1, 2):
        for at in range(stream, 3 * sections[stream], 3):
            found[at] = stream
    return found


def _ones(like: Value, streams: Sequence[int], stream: int) -> Value:
    """1 for the angles of one of the places."""
    return like.body.constant(np.array(streams) == stream).CastLike(like)


@dataclass(frozen=True)
class Heads:
    """Queries, keys and values by heads; the places of the queries, and the first of them."""

    queries: Value
    keys: Value
    values: Value
    places: Value
    begins: Value


@defines("GroupQueryAttention",
         "query key value past_key past_value seqlens_k total_sequence_length "
         "cos_cache sin_cache position_ids attention_bias head_sink k_scale v_scale",
         ignored="total_sequence_length cos_cache sin_cache position_ids "
                 "rotary_interleaved")  # fmt: skip
def group_query_attention(call: Call) -> Sequence[Value]:
    """
    A head of keys and values serves several heads of queries.

    Entry b of the batch has `seqlens_k[b] + 1` keys; the new ones are the last of these. The
    state is as long as before, or as `total_sequence_length` says.
    """
    heads, kept = call.needs("num_heads"), call.needs("kv_num_heads")
    new = _placed(call["seqlens_k"].typed("i64") + 1, *_grouped(call, heads, kept))
    if call.integer("do_rotary"):
        new = _rotated(call, new)
    state = _kept_state(call, new)
    groups = [place * kept // heads for place in range(heads)]
    keys, values = (one.Gather(groups, axis=1) for one in state)
    scores = _capped(call, scores_of(call, new.queries, keys))
    rows = new.places.reshaped(0, 1, -1, 1)
    window = call.integer("local_window_size", -1)
    masks = [causal(call, "query", keys, rows, scores, window), call.get("attention_bias")]
    return attended(scores, values, masks, _sink(call, scores)), *state


def _grouped(call: Call, heads: int, kept: int) -> tuple[Value, Value, Value]:
    """Queries, keys and values by heads; without keys, the queries hold all three."""
    query, every = call["query"], heads + 2 * kept
    if call.has("key"):
        return heads_of(query, heads), heads_of(call["key"], kept), heads_of(call["value"], kept)
    split = heads_of(query, every)
    queries, keys = split.part(0, heads, 1), split.part(heads, heads + kept, 1)
    return queries, keys, split.part(heads + kept, every, 1)


def _placed(ends: Value, queries: Value, keys: Value, values: Value) -> Heads:
    """The new keys end where those of each entry do."""
    length = queries.length(2)
    begins = (ends - length).Max(0).reshaped(-1, 1)
    return Heads(queries, keys, values, begins + queries.body.counted(length), begins)


def _rotated(call: Call, new: Heads) -> Heads:
    """Queries and keys are turned by their places."""
    places = call.get("position_ids") or new.places
    given = {
        "interleaved": call.integer("rotary_interleaved"),
        "rotary_embedding_dim": 2 * call.size("cos_cache", 1),
    }
    queries, keys = (
        one.RotaryEmbedding(call["cos_cache"], call["sin_cache"], places, **given)
        for one in (new.queries, new.keys)
    )
    return Heads(queries, keys, new.values, new.places, new.begins)


def _kept_state(call: Call, new: Heads) -> tuple[Value, Value]:
    """The state, with the new keys and values where they belong."""
    if not call.has("past_key"):
        return new.keys, new.values
    wanted = call["total_sequence_length"].typed("i64").Squeeze()
    return _filled(call, new, call["past_key"].length(2).Max(wanted))


def _filled(call: Call, new: Heads, size: Value) -> tuple[Value, Value]:
    """Buffers of so many rows."""
    past, length = call["past_key"], new.queries.length(2)
    before, slots = past.length(2), call.body.counted(size)
    ahead = slots - new.begins
    untouched = (ahead < 0) | (ahead >= length)
    as_it_was = slots.Min(before + length - 1)
    rows = untouched.Where(as_it_was, ahead + before).Unsqueeze([-1])
    return _taken(past, new.keys, rows), _taken(call["past_value"], new.values, rows)


def _taken(past: Value, new: Value, rows: Value) -> Value:
    """Of what was before and what is new, each entry of the batch takes other rows."""
    both = past.Concat(new, axis=2).permuted(0, 2, 1, 3)
    return both.GatherND(rows, batch_dims=1).permuted(0, 2, 1, 3)


def _capped(call: Call, scores: Value) -> Value:
    cap = call.real("softcap")
    return (scores / cap).Tanh() * cap if cap > 0 else scores


def _sink(call: Call, scores: Value) -> Value | None:
    """A score for each row, of a key without a value."""
    sinks = call.get("head_sink")
    if sinks is None and not call.integer("smooth_softmax"):
        return None
    highest = scores.ReduceMax([3])
    none = highest - highest
    return none if sinks is None else none + sinks.reshaped(1, -1, 1, 1)


@defines("SparseAttention",
         "query key value past_key past_value block_row_indices block_col_indices "
         "total_sequence_length key_total_sequence_lengths cos_cache sin_cache",
         ignored="total_sequence_length cos_cache sin_cache rotary_interleaved")  # fmt: skip
def sparse_attention(call: Call) -> Sequence[Value]:
    """As attention of groups; blocks of queries see the blocks of keys that a table lists."""
    heads, kept = call.needs("num_heads"), call.needs("kv_num_heads")
    ends = call["key_total_sequence_lengths"].typed("i64")
    new = _placed(ends, *_grouped(call, heads, kept))
    if call.integer("do_rotary"):
        new = _rotated(call, new)
    state = _filled(call, new, call["past_key"].length(2))
    groups = [place * kept // heads for place in range(heads)]
    keys, values = (one.Gather(groups, axis=1) for one in state)
    scores = scores_of(call, new.queries, keys)
    listed = _listed(call, new.places, keys.length(2), heads)
    masks = [
        causal(call, "query", keys, new.places.reshaped(0, 1, -1, 1), scores),
        hidden_unless(listed, -float("inf"), scores),
    ]
    return attended(scores, values, masks), *state


def _listed(call: Call, places: Value, keys: Value, heads: int) -> Value:
    """Whether a query's block sees a key's: [batch, heads, queries, keys]."""
    block, layouts = call.needs("sparse_block_size"), call.size("block_row_indices", 0)
    count, pairs = call.size("block_row_indices", 1) - 1, call.size("block_col_indices", 1)
    ends, columns = call["block_row_indices"].typed("i64"), call["block_col_indices"].typed("i64")
    at = call.body.counted(pairs).Unsqueeze([1])
    inside = (at >= ends.part(0, -1, 1).Unsqueeze([1])) & (
        at < ends.part(1, LAST, 1).Unsqueeze([1])
    )
    here = columns.Unsqueeze([2]).same(call.body.counted(count))
    table = inside.typed("f32").permuted(0, 2, 1) @ here.typed("f32")
    rows = table.Gather((places.Div(block)).Min(count - 1), axis=1)
    blocks = (call.body.counted(keys).Div(block)).Min(count - 1)
    seen = rows.Gather(blocks, axis=3) > 0
    return seen.permuted(1, 0, 2, 3).Gather([head % layouts for head in range(heads)], axis=1)
