"""Attention of onnxruntime: multi-head, decoding with a cache, grouped-query, sparse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from xdsl.dialects.builtin import Float16Type

from popgraph.operators.microsoft.body import LAST, Value, total
from popgraph.operators.microsoft.call import Call, defines


def heads_of(value: Value, heads: int) -> Value:
    """[batch, length, heads * size]  ->  [batch, heads, length, size]"""
    return value.reshaped(0, 0, heads, -1).permuted(0, 2, 1, 3)


def scores_of(call: Call, queries: Value, keys: Value) -> Value:
    """queries @ keys^T * scale; the default scale is 1 / sqrt(head size)."""
    products, given = queries @ keys.permuted(0, 1, 3, 2), call.real("scale")
    if given:
        return products.scaled(given)
    return products / queries.Shape(start=3, end=4).CastLike(products).Sqrt()


def attended(
    scores: Value, values: Value, masks: Sequence[Value | None], sink: Value | None = None
) -> Value:
    """softmax(scores + masks) @ values, heads merged; `sink` is a score without a value."""
    scores = total(scores, *masks)
    if sink is None:
        shares = scores.Softmax(axis=-1)
    else:
        shares = scores.Concat(sink, axis=-1).Softmax(axis=-1).part(0, -1, 3)
    return (shares @ values).permuted(0, 2, 1, 3).reshaped(0, 0, -1)


def hidden_unless(seen: Value, hidden: float, scores: Value) -> Value:
    """An additive mask: 0 where `seen`, else `hidden`."""
    nothing, little = (np.array(one, np.float32) for one in (0, hidden))
    return seen.Where(nothing, little).CastLike(scores)


def causal(
    call: Call, like: str, keys: Value, places: Value, scores: Value, window: int = -1
) -> Value:
    """
    The additive causal mask, with the lowest value of the element type of input `like`.

    With a window, keys at a distance of `window` or more before the query are hidden, too.
    """
    at = call.body.counted(keys.length(2))
    seen = at <= places
    if window > 0:
        seen = seen & (at > places - window)
    half = call.element(like) == Float16Type()
    return hidden_unless(seen, -65504.0 if half else -3.4028234663852886e38, scores)


def _padding(call: Call, mask: str, batched: str, keys: Value, scores: Value) -> Value | None:
    """The additive mask of padding: keys beyond a length, outside a range, or masked by 0."""
    hidden = call.real("mask_filter_value", -10000.0)
    if not call.has(mask):
        return None
    rank = call.rank(mask)
    if rank > 3:
        raise call.refuse(
            f"a mask of {rank} dimensions", "use up to three dimensions, or attention_bias"
        )
    if rank == 1:
        seen = _within(call, mask, batched, keys)
    else:
        seen = call[mask].typed("bool").Unsqueeze([1, 2][: 4 - rank])
    return hidden_unless(seen, hidden, scores)


def _within(call: Call, mask: str, batched: str, keys: Value) -> Value:
    """
    The mask of keys before the end of each batch entry.

    The input holds all ends, then optionally all starts; or ends followed by cumulative lengths
    of packed batches, which are not needed here.
    """
    entries, given = call.size(batched, 0), call.size(mask, 0)
    if given not in (entries, 2 * entries, 3 * entries + 2):
        raise call.refuse(f"a mask of {given} elements for {entries} entries")
    at, limits = call.body.counted(keys.length(2)), call[mask].typed("i64")
    ahead = at < limits.part(0, entries, 0).reshaped(-1, 1, 1, 1)
    if given != 2 * entries:
        return ahead
    return ahead & (at >= limits.part(entries, LAST, 0).reshaped(-1, 1, 1, 1))


@dataclass(frozen=True)
class State:
    """Keys and values, old and new; for a longer buffer, the number of rows in `used`."""

    keys: Value
    values: Value
    used: Value | None = None


def _masked(call: Call, mask: str, batched: str, queries: Value, state: State) -> Value:
    """Attention under all masks of the node."""
    return attended(masked_scores(call, mask, batched, queries, state), state.values, [])


def masked_scores(call: Call, mask: str, batched: str, queries: Value, state: State) -> Value:
    """Scores plus all additive masks of the node."""
    keys = state.keys
    scores = scores_of(call, queries, keys)
    padding = _padding(call, mask, batched, keys, scores)
    masks = [padding, call.get("attention_bias")]
    if state.used is not None:  # Unused rows of a buffer are hidden.
        is_used = keys.body.counted(keys.length(2)) < state.used
        lowest = hidden_unless(is_used, -float("inf"), scores)
        masks = [*(one and _widened(one, keys) for one in masks), lowest]
    directed = _directed(call, batched, queries, state, scores)
    return total(scores, directed, *masks)


def _widened(mask: Value, keys: Value) -> Value:
    """A mask of the used keys, padded with zeros to the length of the buffer."""
    missing = keys.Shape(start=2, end=3) - mask.Shape(start=3, end=4)
    pads = mask.body.constant([0, 0, 0, 0, 0, 0, 0]).Concat(missing, axis=0)
    return mask.Pad(pads)


def _directed(call: Call, like: str, queries: Value, state: State, scores: Value) -> Value | None:
    """The causal mask, if `unidirectional`; the queries are at the last positions of the keys."""
    if not call.integer("unidirectional"):
        return None
    own = queries.length(2)
    ahead = (state.keys.length(2) if state.used is None else state.used) - own
    places = call.body.counted(own) + ahead
    return causal(call, like, state.keys, places.Unsqueeze([1]), scores)


def appended(past: Value | None, new: Value) -> Value:
    """The past state with new rows appended."""
    return new if past is None else past.Concat(new, axis=2)


@defines("Attention",
         "input weights bias mask_index past attention_bias past_sequence_length")  # fmt: skip
def attention(call: Call) -> Sequence[Value]:
    sizes = call.integers("qkv_hidden_sizes") or [call.size("weights", 1) // 3] * 3
    return attended_together(call, total(call["input"] @ call["weights"], call.get("bias")), sizes)


def attended_together(call: Call, together: Value, sizes: Sequence[int]) -> Sequence[Value]:
    """Attention of concatenated queries, keys and values; returns the result and the state."""
    heads, past = call.needs("num_heads"), call.get("past")
    split = together.several("Split", 3, sizes, axis=2)
    queries, *new = (heads_of(one, heads) for one in split)
    before = [past and past.part(at, at + 1, 0).Squeeze([0]) for at in (0, 1)]
    keys, values = (appended(one, other) for one, other in zip(before, new, strict=True))
    present = keys.Unsqueeze([0]).Concat(values.Unsqueeze([0]), axis=0)
    return _masked(call, "mask_index", "input", queries, State(keys, values)), present


@defines("MultiHeadAttention",
         "query key value bias key_padding_mask attention_bias past_key past_value "
         "past_sequence_length cache_indirection")  # fmt: skip
def multi_head_attention(call: Call) -> Sequence[Value]:
    """Attention of separate or packed queries, keys and values, or of keys split into heads."""
    queries, *new = separate(call, call.needs("num_heads"))
    state = state_of(call, new[0], new[1])
    made = _masked(call, "key_padding_mask", "query", queries, state)
    return made, state.keys, state.values


def state_of(call: Call, keys: Value, values: Value) -> State:
    """The past with new rows appended, or stored in a buffer at `past_sequence_length`."""
    past, other = call.get("past_key"), call.get("past_value")
    if past is None or other is None or not call.has("past_sequence_length"):
        return State(appended(past, keys), appended(other, values))
    begins = call["past_sequence_length"].typed("i64").reshaped()
    return State(
        _stored(past, keys, begins), _stored(other, values, begins), begins + keys.length(2)
    )


def _stored(buffer: Value, new: Value, begins: Value) -> Value:
    """A buffer with new rows stored from index `begins` on."""
    ahead = buffer.body.counted(buffer.length(2)) - begins
    places = ahead.Max(0).Min(new.length(2) - 1)
    is_new = ((ahead >= 0) & (ahead < new.length(2))).Unsqueeze([1])
    return is_new.Where(new.Gather(places, axis=2), buffer)


def separate(call: Call, heads: int) -> list[Value]:
    """Queries, keys and values plus biases, split into heads."""
    query = call["query"]
    if call.rank("query") == 5:
        rows, width = [_of_packed(query, at) for at in range(3)], call.size("query", 2)
        width *= call.size("query", 4)
    else:
        rows, width = [query], call.size("query", 2)
        if call.rank("key") == 5:
            rows += [_of_packed(call["key"], at) for at in range(2)]
        elif call.rank("key") == 3:
            rows += [call["key"], call["value"]]
    if call.has("bias"):
        ends = [width, 2 * width, LAST]
        rows = [
            row + call["bias"].part(at * width, end, 0)
            for at, (row, end) in enumerate(zip(rows, ends, strict=False))
        ]
    split = [heads_of(row, heads) for row in rows]
    return split if len(split) == 3 else [*split, call["key"], call["value"]]


def _of_packed(value: Value, at: int) -> Value:
    """[batch, length, heads, 3, size]  ->  [batch, length, heads * size], one of the three."""
    return value.part(at, at + 1, 3).reshaped(0, 0, -1)


@defines("DecoderMaskedMultiHeadAttention",
         "query key value mask_index attention_bias past_key past_value past_sequence_length "
         "beam_width cache_indirection bias",
         ignored="past_present_share_buffer output_qk beam_width")  # fmt: skip
def decoding_attention(call: Call) -> Sequence[Value]:
    """Attention of one query to past keys and its own, or to an encoder's keys."""
    _check(call)
    queries, *new = separate(call, call.needs("num_heads"))
    if call.rank("key") == 4:
        if call.has("past_key"):
            raise call.unfit("an encoder's keys together with past keys")
        state = State(*new)
    else:
        state = state_of(call, new[0], new[1])
    seen = _of_beams(call, state, new[0])
    scores = masked_scores(call, "mask_index", "query", queries, seen)
    shown = scores if seen.used is None else scores.Slice([0], seen.used.reshaped(1), [3])
    return attended(scores, seen.values, []), state.keys, state.values, shown


def _check(call: Call) -> None:
    if call.rank("query") != 3 or call.size("query", 1) != 1:
        raise call.unfit("several queries of a sequence", "use MultiHeadAttention")
    if call.has("mask_index") and call.rank("mask_index") != 2:
        raise call.unfit(f"a mask of rank {call.rank('mask_index')}", "use [batch, keys]")


def _of_beams(call: Call, state: State, new: Value) -> State:
    """
    The state of each beam: token t comes from beam `cache_indirection[beam, t]`.

    New tokens come from the beam itself.
    """
    table = call.get("cache_indirection")
    if table is None:
        return state
    if state.used is None:
        raise call.refuse("cache_indirection without past_sequence_length")
    if call.has("attention_bias") and call.size("attention_bias", 0) != 1:
        raise call.refuse("attention_bias of each beam", "use one that all entries share")
    count, width = call.size("query", 0), call.size("cache_indirection", 1)
    beams = call.body.counted(count).Unsqueeze([1])
    is_old = call.body.counted(table.length(2)) < (state.used - new.length(2))
    named = table.typed("i64").reshaped(count, -1) + beams.Div(width) * width
    rows = is_old.Where(named, beams)
    return State(_picked(state.keys, rows), _picked(state.values, rows), state.used)


def _picked(held: Value, rows: Value) -> Value:
    """Token t of each beam, from beam `rows[beam, t]`."""
    by_token = held.permuted(2, 0, 1, 3)
    picked = by_token.GatherND(rows.permuted(1, 0).Unsqueeze([2]), batch_dims=1)
    return picked.permuted(1, 2, 0, 3)


@defines("RotaryEmbedding", "input position_ids cos_cache sin_cache",
         ignored="scale is_packed_batching")  # fmt: skip
def rotary_embedding(call: Call) -> Value:
    """ONNX's RotaryEmbedding. onnxruntime ignores `scale` and `is_packed_batching`, too."""
    value, places, rank = call["input"], call["position_ids"], call.rank("input")
    given = _rotation(call)
    if call.rank("position_ids") != 2:
        length = value.Shape(start=rank - 2, end=rank - 1)
        grid = value.Shape(start=0, end=1).Concat(length, axis=0)
        places = (call.body.counted(length.Squeeze()) + places).Expand(grid)
    return value.RotaryEmbedding(call["cos_cache"], call["sin_cache"], places, **given)


def _rotation(call: Call) -> dict[str, Any]:
    """The attributes of a rotation; the number of heads is inferred if it is absent."""
    given = call.copied("interleaved rotary_embedding_dim num_heads")
    if call.rank("input") != 3:
        given.pop("num_heads", None)
    elif not given.get("num_heads"):
        given["num_heads"] = call.size("input", 2) // (2 * call.size("cos_cache", 1))
    return given


@defines("MRotaryEmbedding", "input position_ids cos_cache sin_cache",
         ignored="scale is_packed_batching")  # fmt: skip
def multimodal_rotary_embedding(call: Call) -> Value:
    """Rotates each angle by one of three positions: time, column or row."""
    value, places = call["input"], call["position_ids"]
    given, streams = _rotation(call), _streams(call, call.size("cos_cache", 1))
    tables = []
    for table in (call["cos_cache"], call["sin_cache"]):
        every = table.Gather(places)
        tables.append(
            total(*(every.part(at, at + 1, 0).Squeeze([0]) * _ones(every, streams, at)
                    for at in range(3)))
        )  # fmt: skip
    return value.RotaryEmbedding(*tables, **given)


def _streams(call: Call, width: int) -> list[int]:
    """The index of each angle's position: 0, 1 or 2."""
    sections, layout = call.listed("mrope_section"), call.integer("mrope_layout")
    if len(sections) != 3 or sum(sections) != width:
        raise call.refuse(
            f"mrope_section = {sections} for {width} angles",
            "use three sizes that add up to the number of angles",
        )
    if not layout:
        return [at for at, count in enumerate(sections) for _ in range(count)]
    found = [0] * width
    for stream in (1, 2):
        for at in range(stream, 3 * sections[stream], 3):
            found[at] = stream
    return found


def _ones(like: Value, streams: Sequence[int], stream: int) -> Value:
    """The 0/1 mask of the angles of one position."""
    return like.body.constant(np.array(streams) == stream).CastLike(like)


@dataclass(frozen=True)
class Heads:
    """Queries, keys and values split into heads; the queries' positions and first position."""

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
    Attention in which several query heads share one head of keys and values.

    Batch entry b has `seqlens_k[b] + 1` keys; the new ones are the last of these. The state has
    max(past length, `total_sequence_length`) rows.
    """
    heads, kept = call.needs("num_heads"), call.needs("kv_num_heads")
    new = _placed(call["seqlens_k"].typed("i64") + 1, *_grouped(call, heads, kept))
    if call.integer("do_rotary"):
        new = _rotated(call, new)
    state = _kept_state(call, new)
    keys, values = _of_every_head(state, heads, kept)
    scores, cap = scores_of(call, new.queries, keys), call.real("softcap")
    if cap > 0:
        scores = (scores / cap).Tanh() * cap
    rows = new.places.reshaped(0, 1, -1, 1)
    window = call.integer("local_window_size", -1)
    masks = [causal(call, "query", keys, rows, scores, window), call.get("attention_bias")]
    return attended(scores, values, masks, _sink(call, scores)), *state


def _of_every_head(state: Sequence[Value], heads: int, kept: int) -> list[Value]:
    groups = [place * kept // heads for place in range(heads)]
    return [one.Gather(groups, axis=1) for one in state]


def _grouped(call: Call, heads: int, kept: int) -> tuple[Value, Value, Value]:
    """Queries, keys and values split into heads; without `key`, `query` packs all three."""
    query, every = call["query"], heads + 2 * kept
    if call.has("key"):
        return heads_of(query, heads), heads_of(call["key"], kept), heads_of(call["value"], kept)
    split = heads_of(query, every)
    queries, keys = split.part(0, heads, 1), split.part(heads, heads + kept, 1)
    return queries, keys, split.part(heads + kept, every, 1)


def _placed(ends: Value, queries: Value, keys: Value, values: Value) -> Heads:
    """The heads with positions: new keys are the last before each batch entry's end."""
    length = queries.length(2)
    begins = (ends - length).Max(0).reshaped(-1, 1)
    return Heads(queries, keys, values, begins + queries.body.counted(length), begins)


def _rotated(call: Call, new: Heads) -> Heads:
    """Rotates queries and keys by their positions."""
    places = call.get("position_ids") or new.places
    given = {
        "interleaved": call.integer("rotary_interleaved"),
        "rotary_embedding_dim": 2 * call.size("cos_cache", 1),
    }
    queries, keys = (
        one.RotaryEmbedding(call["cos_cache"], call["sin_cache"], places, **given)
        for one in (new.queries, new.keys)
    )
    return replace(new, queries=queries, keys=keys)


def _kept_state(call: Call, new: Heads) -> tuple[Value, Value]:
    """The state, with new keys and values stored at their positions."""
    if not call.has("past_key"):
        return new.keys, new.values
    wanted = call["total_sequence_length"].typed("i64").Squeeze()
    return _filled(call, new, call["past_key"].length(2).Max(wanted))


def _filled(call: Call, new: Heads, size: Value) -> tuple[Value, Value]:
    """Buffers of `size` rows: new rows at their positions, past rows elsewhere."""
    past, length = call["past_key"], new.queries.length(2)
    before, slots = past.length(2), call.body.counted(size)
    ahead = slots - new.begins
    untouched = (ahead < 0) | (ahead >= length)
    unchanged = slots.Min(before + length - 1)
    rows = untouched.Where(unchanged, ahead + before).Unsqueeze([-1])
    return _taken(past, new.keys, rows), _taken(call["past_value"], new.values, rows)


def _taken(past: Value, new: Value, rows: Value) -> Value:
    """Gathers rows from past and new ones, with separate indices per batch entry."""
    both = past.Concat(new, axis=2).permuted(0, 2, 1, 3)
    return both.GatherND(rows, batch_dims=1).permuted(0, 2, 1, 3)


def _sink(call: Call, scores: Value) -> Value | None:
    """The score of an attention sink (a key without a value) for each row; None without."""
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
    """GroupQueryAttention restricted to the pairs of query and key blocks in a CSR table."""
    heads, kept = call.needs("num_heads"), call.needs("kv_num_heads")
    ends = call["key_total_sequence_lengths"].typed("i64")
    new = _placed(ends, *_grouped(call, heads, kept))
    if call.integer("do_rotary"):
        new = _rotated(call, new)
    state = _filled(call, new, call["past_key"].length(2))
    keys, values = _of_every_head(state, heads, kept)
    scores = scores_of(call, new.queries, keys)
    listed = _listed(call, new.places, keys.length(2), heads)
    masks = [
        causal(call, "query", keys, new.places.reshaped(0, 1, -1, 1), scores),
        hidden_unless(listed, -float("inf"), scores),
    ]
    return attended(scores, values, masks), *state


def _listed(call: Call, places: Value, keys: Value, heads: int) -> Value:
    """The mask of listed block pairs, [batch, heads, queries, keys]."""
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
