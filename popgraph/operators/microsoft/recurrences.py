"""Layers of onnxruntime that carry a state from token to token: convolutions and attention."""

from __future__ import annotations

from collections.abc import Sequence

from popgraph.operators.microsoft.body import LAST, Body, Value
from popgraph.operators.microsoft.call import Call, defines
from popgraph.operators.microsoft.normalizations import wide


def silu(call: Call, value: Value) -> Value:
    kind = call.one_of("activation", "none", "silu", "swish")
    return value if kind == "none" else value * value.Sigmoid()


@defines("CausalConvWithState", "input weight bias past_state")
def causal_convolution(call: Call) -> Sequence[Value]:
    """A convolution of each channel by itself, with the elements of before in front."""
    if call.integer("ndim", 1) != 1:
        raise call.refuse(f"ndim = {call.integer('ndim')}", "1 is")
    turned, rank = call.integer("channels_last"), call.rank("input")
    spread = call.integer("dilation", 1)
    state = (call.size("weight", 2) - 1) * spread
    x, past = call["input"], call.get("past_state")
    channels = call.size("weight", 0)
    if turned:
        x = x.reshaped(0, 0, channels).permuted(0, 2, 1)
        past = past and past.reshaped(0, 0, channels).permuted(0, 2, 1)
    every = x
    if state:
        every = x.Pad([0, 0, state, 0, 0, 0]) if past is None else past.Concat(x, axis=2)
    given = {"group": channels, "dilations": [spread]}
    made = silu(call, every.Conv(call["weight"], call.get("bias"), **given))
    kept = every.part(-state, LAST, 2) if state else every.part(0, 0, 2)
    if turned:
        made = made.permuted(0, 2, 1).Reshape(call["input"].Shape())
        kept = kept.permuted(0, 2, 1)
        if rank > 3:
            tail = call["input"].Shape(start=2)
            kept = kept.Reshape(kept.Shape(end=2).Concat(tail, axis=0))
    return made, kept


@defines("LinearAttention", "query key value past_state decay beta",
         ignored="chunk_size")  # fmt: skip
def linear_attention(call: Call) -> Sequence[Value]:
    """A matrix of each head is what has been seen; a token changes it, and asks it."""
    rule = call.one_of("update_rule", "gated_delta", "linear", "gated", "delta")
    heads, asking = call.needs("kv_num_heads"), call.needs("q_num_heads")
    size = call.size("query", 2) // asking
    q, k, v = (wide(call, call[name], name) for name in ("query", "key", "value"))
    queries = _asked(q.reshaped(0, 0, asking, size), heads, asking)
    keys = spread(k.reshaped(0, 0, -1, size), heads, call.size("key", 2) // size)
    values = v.reshaped(0, 0, heads, -1)
    rows = [queries, keys.Unsqueeze([4]), values.Unsqueeze([3])]
    if "gated" in rule:
        decay = wide(call, call["decay"], "decay").reshaped(0, 0, heads, -1, 1)
        rows.append(decay.Exp())
    if "delta" in rule:
        rows.append(wide(call, call["beta"], "beta").reshaped(0, 0, -1, 1, 1))
    start = call.get("past_state")
    if start is None:
        start = (rows[1] @ rows[2]).part(0, 1, 1).Squeeze([1]) * 0
    else:
        start = wide(call, start, "past_state")

    def turn(_: Body, state: Value, *now: Value) -> tuple[Value, Value]:
        state, _added = changed(rule, state, *now[1:])
        return state, now[0] @ state

    state, found = call.body.scanned([start], [_by_token(one) for one in rows], turn)
    scale = call.real("scale") or size**-0.5
    made = found.permuted(1, 0, 2, 3, 4).reshaped(0, 0, -1).scaled(scale)
    return made.CastLike(call["query"]), state.CastLike(call.get("past_state") or call["query"])


def _asked(queries: Value, heads: int, asking: int) -> Value:
    """Queries of each head of the state: [batch, tokens, heads, queries, size]."""
    if asking >= heads:
        return queries.reshaped(0, 0, heads, asking // heads, -1)
    return spread(queries, heads, asking).Unsqueeze([3])


def spread(values: Value, heads: int, given: int) -> Value:
    """What several heads share, for each of them."""
    if given == heads:
        return values
    return values.Gather([at * given // heads for at in range(heads)], axis=2)


def _by_token(value: Value) -> Value:
    return value.permuted(1, 0, 2, 3, 4)


def changed(rule: str, state: Value, key: Value, value: Value, *more: Value) -> tuple[Value, Value]:
    """What is left of the state with what the token adds to it, and that by itself."""
    if "gated" in rule:
        state = state * more[0]
    if "delta" in rule:
        known = (state * key).ReduceSum([2])
        value = more[-1] * (value - known)
    return state + key * value, value
