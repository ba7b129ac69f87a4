"""What the attentions of onnxruntime share, and those in which every head has keys of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import Float16Type

from popgraph.operators.microsoft.body import LAST, Value, total
from popgraph.operators.microsoft.call import Call, defines


def heads_of(value: Value, heads: int) -> Value:
    """[batch, length, heads * size]  ->  [batch, heads, length, size]"""
    return value.reshaped(0, 0, heads, -1).permuted(0, 2, 1, 3)


def scores_of(call: Call, queries: Value, keys: Value) -> Value:
    """Products of queries and keys, scaled."""
    products, given = queries @ keys.permuted(0, 1, 3, 2), call.real("scale")
    if given:
        return products.scaled(given)
    return products / queries.Shape(start=3, end=4).CastLike(products).Sqrt()


def attended(
    scores: Value, values: Value, masks: Sequence[Value | None], sink: Value | None = None
) -> Value:
    """What is added to the scores decides, too; a `sink` is a score without a value."""
    shares = _shares(total(scores, *masks), sink)
    return (shares @ values).permuted(0, 2, 1, 3).reshaped(0, 0, -1)


def _shares(scores: Value, sink: Value | None) -> Value:
    if sink is None:
        return scores.Softmax(axis=-1)
    return scores.Concat(sink, axis=-1).Softmax(axis=-1).part(0, -1, 3)


def hidden_unless(seen: Value, hidden: float, scores: Value) -> Value:
    """What is added to scores: nothing where a pair is seen."""
    nothing, little = (np.array(one, np.float32) for one in (0, hidden))
    return seen.Where(nothing, little).CastLike(scores)


def causal(
    call: Call, like: str, keys: Value, places: Value, scores: Value, window: int = -1
) -> Value:
    """
    Hides what comes behind a query, as far as the element type of an input can.

    With a window, it also hides keys that are so many places or more before the query.
    """
    at = call.body.counted(keys.length(2))
    seen = at <= places
    if window > 0:
        seen = seen & (at > places - window)
    half = call.element(like) == Float16Type()
    return hidden_unless(seen, -65504.0 if half else -3.4028234663852886e38, scores)


def _padding(call: Call, mask: str, batched: str, keys: Value, scores: Value) -> Value | None:
    """Hides keys: from a length on, outside of a range, or where a mask has zeros."""
    hidden = call.real("mask_filter_value", -10000.0)
    if not call.has(mask):
        return None
    rank = call.rank(mask)
    if rank > 3:
        raise call.refuse(
            f"a mask of {rank} dimensions", "one of up to three is, or attention_bias"
        )
    if rank == 1:
        seen = _within(call, mask, batched, keys)
    else:
        seen = call[mask].typed("bool").Unsqueeze([1, 2][: 4 - rank])
    return hidden_unless(seen, hidden, scores)


def _within(call: Call, mask: str, batched: str, keys: Value) -> Value:
    """
    The keys before an end, of each entry of the batch; starts may follow all the ends.

    So may the sums of lengths that packed batches need, which say nothing here.
    """
    entries, given = call.size(batched, 0), call.size(mask, 0)
    if given not in (entries, 2 * entries, 3 * entries + 2):
        raise call.refuse(f"a mask of {given} numbers for {entries} entries")
    at, limits = call.body.counted(keys.length(2)), call[mask].typed("i64")
    ahead = at < limits.part(0, entries, 0).reshaped(-1, 1, 1, 1)
    if given != 2 * entries:
        return ahead
    return ahead & (at >= limits.part(entries, LAST, 0).reshaped(-1, 1, 1, 1))


@dataclass(frozen=True)
class State:
    """Keys and values, old and new; with buffers that are longer, how many of them are in use."""

    keys: Value
    values: Value
    used: Value | None = None


def _masked(call: Call, mask: str, batched: str, queries: Value, state: State) -> Value:
    """Attention under whatever hides something."""
    return attended(masked_scores(call, mask, batched, queries, state), state.values, [])


def masked_scores(call: Call, mask: str, batched: str, queries: Value, state: State) -> Value:
    """Scores, with what is added to those that something hides."""
    keys = state.keys
    scores = scores_of(call, queries, keys)
    padding = _padding(call, mask, batched, keys, scores)
    masks = [padding, call.get("attention_bias")]
    if state.used is not None:
        lowest = _unused(keys, state.used, scores)
        masks = [*(one and _widened(one, keys) for one in masks), lowest]
    directed = _directed(call, batched, queries, state, scores)
    return total(scores, directed, *masks)


def _unused(keys: Value, used: Value, scores: Value) -> Value:
    """Hides what stands in a buffer behind the keys in use, whatever else hides them."""
    return hidden_unless(keys.body.counted(keys.length(2)) < used, -float("inf"), scores)


def _widened(mask: Value, keys: Value) -> Value:
    """A mask of the keys in use, with zeros for the rest of the buffer."""
    behind = keys.Shape(start=2, end=3) - mask.Shape(start=3, end=4)
    pads = mask.body.constant([0, 0, 0, 0, 0, 0, 0]).Concat(behind, axis=0)
    return mask.Pad(pads)


def _directed(call: Call, like: str, queries: Value, state: State, scores: Value) -> Value | None:
    """The queries are the last of all the places that keys have."""
    if not call.integer("unidirectional"):
        return None
    own = queries.length(2)
    ahead = (state.keys.length(2) if state.used is None else state.used) - own
    places = call.body.counted(own) + ahead
    return causal(call, like, state.keys, places.Unsqueeze([1]), scores)


def behind(past: Value | None, new: Value) -> Value:
    """The state of before with what is new."""
    return new if past is None else past.Concat(new, axis=2)


@defines("Attention",
         "input weights bias mask_index past attention_bias past_sequence_length")  # fmt: skip
def attention(call: Call) -> Sequence[Value]:
    sizes = call.integers("qkv_hidden_sizes") or [call.size("weights", 1) // 3] * 3
    return attended_together(call, total(call["input"] @ call["weights"], call.get("bias")), sizes)


def attended_together(call: Call, together: Value, sizes: Sequence[int]) -> Sequence[Value]:
    """Attention of queries, keys and values that stand side by side; and the state."""
    heads, past = call.needs("num_heads"), call.get("past")
    split = together.several("Split", 3, sizes, axis=2)
    queries, *new = (heads_of(one, heads) for one in split)
    before = [past and past.part(at, at + 1, 0).Squeeze([0]) for at in (0, 1)]
    keys, values = (behind(one, other) for one, other in zip(before, new, strict=True))
    present = keys.Unsqueeze([0]).Concat(values.Unsqueeze([0]), axis=0)
    return _masked(call, "mask_index", "input", queries, State(keys, values)), present


@defines("MultiHeadAttention",
         "query key value bias key_padding_mask attention_bias past_key past_value "
         "past_sequence_length cache_indirection")  # fmt: skip
def multi_head_attention(call: Call) -> Sequence[Value]:
    """Queries, keys and values, apart or together, or keys that have been split into heads."""
    queries, *new = separate(call, call.needs("num_heads"))
    state = state_of(call, new[0], new[1])
    made = _masked(call, "key_padding_mask", "query", queries, state)
    return made, state.keys, state.values


def state_of(call: Call, keys: Value, values: Value) -> State:
    """The past with what is new behind it, or in a buffer, at a place that an input tells."""
    past, other = call.get("past_key"), call.get("past_value")
    if past is None or other is None or not call.has("past_sequence_length"):
        return State(behind(past, keys), behind(other, values))
    begins = call["past_sequence_length"].typed("i64").reshaped()
    return State(
        _stored(past, keys, begins), _stored(other, values, begins), begins + keys.length(2)
    )


def _stored(buffer: Value, new: Value, begins: Value) -> Value:
    """A buffer in which new rows stand from a place on."""
    ahead = buffer.body.counted(buffer.length(2)) - begins
    places = ahead.Max(0).Min(new.length(2) - 1)
    is_new = ((ahead >= 0) & (ahead < new.length(2))).Unsqueeze([1])
    return is_new.Where(new.Gather(places, axis=2), buffer)


def separate(call: Call, heads: int) -> list[Value]:
    """Queries, keys and values, with their biases, by heads."""
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
