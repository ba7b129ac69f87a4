"""Attention of one new token per sequence, over keys of before that beams may share."""

from __future__ import annotations

from collections.abc import Sequence

from popgraph.operators.microsoft.attention import (
    State,
    attended,
    masked_scores,
    separate,
    state_of,
)
from popgraph.operators.microsoft.body import Value
from popgraph.operators.microsoft.call import Call, defines


@defines("DecoderMaskedMultiHeadAttention",
         "query key value mask_index attention_bias past_key past_value past_sequence_length "
         "beam_width cache_indirection bias",
         ignored="past_present_share_buffer output_qk beam_width")  # fmt: skip
def decoding_attention(call: Call) -> Sequence[Value]:
    """A query sees the keys of before and its own, or those of an encoder by heads."""
    _check(call)
    queries, *new = separate(call, call.needs("num_heads"))
    if call.rank("key") == 4:
        if call.has("past_key"):
            raise call.unfit("keys of an encoder together with past keys")
        state = State(*new)
    else:
        state = state_of(call, new[0], new[1])
    seen = _of_beams(call, state, new[0])
    scores = masked_scores(call, "mask_index", "query", queries, seen)
    shown = scores if seen.used is None else scores.Slice([0], seen.used.reshaped(1), [3])
    return attended(scores, seen.values, []), state.keys, state.values, shown


def _check(call: Call) -> None:
    if call.rank("query") != 3 or call.size("query", 1) != 1:
        raise call.unfit("several queries of a sequence", "MultiHeadAttention does")
    if call.has("mask_index") and call.rank("mask_index") != 2:
        raise call.unfit(f"a mask of rank {call.rank('mask_index')}", "[batch, keys] is one")


def _of_beams(call: Call, state: State, new: Value) -> State:
    """
    The state as every beam sees it: token t of a beam is that of the beam which a table names.

    New tokens are those of the beam itself.
    """
    table = call.get("cache_indirection")
    if table is None:
        return state
    if state.used is None:
        raise call.refuse("cache_indirection without past_sequence_length")
    if call.has("attention_bias") and call.size("attention_bias", 0) != 1:
        raise call.refuse("attention_bias of each beam", "one that all entries share is")
    count, width = call.size("query", 0), call.size("cache_indirection", 1)
    beams = call.body.counted(count).Unsqueeze([1])
    is_old = call.body.counted(table.length(2)) < (state.used - new.length(2))
    named = table.typed("i64").reshaped(count, -1) + beams.Div(width) * width
    rows = is_old.Where(named, beams)
    return State(_picked(state.keys, rows), _picked(state.values, rows), state.used)


def _picked(held: Value, rows: Value) -> Value:
    """Token t of each beam, from the beam that a row names for it."""
    by_token = held.permuted(2, 0, 1, 3)
    picked = by_token.GatherND(rows.permuted(1, 0).Unsqueeze([2]), batch_dims=1)
    return picked.permuted(1, 2, 0, 3)
