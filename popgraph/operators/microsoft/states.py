"""onnxruntime's layers with a state per token: causal convolutions, linear attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from popgraph.operators.microsoft.body import LAST, Body, Value, total
from popgraph.operators.microsoft.call import Call, defines


def silu(call: Call, value: Value) -> Value:
    kind = call.one_of("activation", "none", "silu", "swish")
    return value if kind == "none" else value * value.Sigmoid()


@defines("CausalConvWithState", "input weight bias past_state")
def causal_convolution(call: Call) -> Sequence[Value]:
    """A depthwise causal convolution, with the past state in front of the input."""
    if call.integer("ndim", 1) != 1:
        raise call.refuse(f"ndim = {call.integer('ndim')}", "use 1")
    is_last, rank = call.integer("channels_last"), call.rank("input")
    spread = call.integer("dilation", 1)
    state = (call.size("weight", 2) - 1) * spread
    x, past = call["input"], call.get("past_state")
    channels = call.size("weight", 0)
    if is_last:
        x = x.reshaped(0, 0, channels).permuted(0, 2, 1)
        past = past and past.reshaped(0, 0, channels).permuted(0, 2, 1)
    every = x
    if state:
        every = x.Pad([0, 0, state, 0, 0, 0]) if past is None else past.Concat(x, axis=2)
    given = {"group": channels, "dilations": [spread]}
    made = silu(call, every.Conv(call["weight"], call.get("bias"), **given))
    kept = every.part(-state, LAST, 2) if state else every.part(0, 0, 2)
    if is_last:
        made = made.permuted(0, 2, 1).Reshape(call["input"].Shape())
        kept = kept.permuted(0, 2, 1)
        if rank > 3:
            tail = call["input"].Shape(start=2)
            kept = kept.Reshape(kept.Shape(end=2).Concat(tail, axis=0))
    return made, kept


@defines("LinearAttention", "query key value past_state decay beta",
         ignored="chunk_size")  # fmt: skip
def linear_attention(call: Call) -> Sequence[Value]:
    """
    Linear attention: each head has a state matrix S, which every token updates and reads.

    S' = decay * S + k v^T, y = q S'; with "delta", v is replaced by beta * (v - S k).
    """
    rule = call.one_of("update_rule", "gated_delta", "linear", "gated", "delta")
    heads, asking = call.needs("kv_num_heads"), call.needs("q_num_heads")
    size = call.size("query", 2) // asking
    q, k, v = (call.wide(name) for name in ("query", "key", "value"))
    queries = q.reshaped(0, 0, asking, size)
    if asking < heads:
        queries = spread(queries, heads, asking).Unsqueeze([3])
    else:
        queries = queries.reshaped(0, 0, heads, asking // heads, -1)
    keys = spread(k.reshaped(0, 0, -1, size), heads, call.size("key", 2) // size)
    values = v.reshaped(0, 0, heads, -1)
    rows = [queries, keys.Unsqueeze([4]), values.Unsqueeze([3])]
    if "gated" in rule:
        rows.append(call.wide("decay").reshaped(0, 0, heads, -1, 1).Exp())
    if "delta" in rule:
        rows.append(call.wide("beta").reshaped(0, 0, -1, 1, 1))
    if call.has("past_state"):
        start = call.wide("past_state")
    else:
        start = (rows[1] @ rows[2]).part(0, 1, 1).Squeeze([1]) * 0

    def step(_: Body, state: Value, *now: Value) -> tuple[Value, Value]:
        state, _added = changed(rule, state, *now[1:])
        return state, now[0] @ state

    state, found = call.body.scanned([start], [_by_token(one) for one in rows], step)
    scale = call.real("scale") or size**-0.5
    made = _by_token(found).reshaped(0, 0, -1).scaled(scale)
    return made.CastLike(call["query"]), state.CastLike(call.get("past_state") or call["query"])


def spread(values: Value, heads: int, given: int) -> Value:
    """Repeats the heads of grouped values, so that each of `heads` heads has its own."""
    if given == heads:
        return values
    return values.Gather([at * given // heads for at in range(heads)], axis=2)


def _by_token(value: Value) -> Value:
    """[batch, token, ...]  <->  [token, batch, ...]"""
    return value.permuted(1, 0, 2, 3, 4)


def changed(rule: str, state: Value, key: Value, value: Value, *more: Value) -> tuple[Value, Value]:
    """The updated state, and the value that the token adds (after the delta rule)."""
    if "gated" in rule:
        state = state * more[0]
    if "delta" in rule:
        known = (state * key).ReduceSum([2])
        value = more[-1] * (value - known)
    return state + key * value, value


@dataclass(frozen=True)
class Requests:
    """The begins and ends of packed sequences of tokens; the first begins at 0."""

    begins: Value
    ends: Value

    @classmethod
    def of(cls, limits: Value) -> Requests:
        limits = limits.typed("i64")
        return cls(limits.part(0, -1, 0), limits.part(1, LAST, 0))

    def owners(self, tokens: Value) -> Value:
        """The index of the sequence that each token belongs to."""
        return (tokens.Unsqueeze([1]) >= self.ends).typed("i64").ReduceSum([1], keepdims=0)

    def reached(self, sequence: Value, place: Value, before: int) -> Value:
        """
        The row of each token in a table [past rows of all sequences, tokens].

        Each sequence has `before` past rows. `place` counts from the begin of the sequence; past
        rows have negative places.
        """
        inside = self.begins.Gather(sequence) + self.begins.length(0) * before + place
        ahead = sequence * before + before + place
        return (place >= 0).Where(inside, ahead)

    def last(self, count: int) -> Value:
        """The positions of the last tokens of each sequence, [sequences, count]."""
        lengths = self.ends - self.begins
        return lengths.Unsqueeze([1]) + (lengths.body.counted(count) - count)

    def captured(self, call: Call, capacity: int) -> Value:
        """The mask of each sequence's first tokens to return, [sequences, capacity]."""
        at = self.ends.body.counted(capacity)
        counts = call["capture_count"].typed("i64").Min(self.ends - self.begins)
        return at < counts.Unsqueeze([1])


def capacity_of(call: Call) -> int:
    """The largest number of first tokens per sequence whose states are returned."""
    capacity = call.integer("state_update_capacity")
    if bool(capacity) != call.has("capture_count") or not 0 <= capacity <= 8:
        raise call.unfit(
            f"state_update_capacity = {capacity} and {'a' if call.has('capture_count') else 'no'} "
            "capture_count",
            "give both, with a capacity of at most 8, or neither",
        )
    return capacity


@defines("VarlenCausalConvWithState",
         "input weight cumulative_sequence_length bias initial_state capture_count "
         "kernel_delta previous_mask",
         ignored="group_size delta_offset")  # fmt: skip
def packed_convolution(call: Call) -> Sequence[Value | None]:
    """A depthwise causal convolution of packed sequences, each with its own past state."""
    taps, spread_ = call.size("weight", 2), call.integer("dilation", 1)
    before, capacity = (taps - 1) * spread_, capacity_of(call)
    requests = Requests.of(call["cumulative_sequence_length"])
    x, states = call.wide("input"), call.wide("initial_state")
    table = states.permuted(0, 2, 1).reshaped(-1, call.size("weight", 0)).Concat(x, axis=0)
    tokens = call.body.counted(x.length(0))
    owners = requests.owners(tokens)
    places = (tokens - requests.begins.Gather(owners)).Unsqueeze([1])
    back = call.body.constant([at * spread_ - before for at in range(taps)])
    seen = table.Gather(requests.reached(owners.Unsqueeze([1]), places + back, before))
    weights = call.wide("weight").Squeeze([1]).permuted(1, 0)
    made = (seen * weights).ReduceSum([1], keepdims=0)
    made = total(made, call.wide("bias") if call.has("bias") else None)
    sequences = call.body.counted(requests.begins.length(0)).Unsqueeze([1])
    kept = table.Gather(requests.reached(sequences, requests.last(before), before))
    shown = None
    if capacity:
        captured = requests.captured(call, capacity)
        first = captured.Where(call.body.counted(capacity), call.body.constant(0))
        rows = table.Gather(requests.reached(sequences, first, before))
        shown = captured.Unsqueeze([2]).Where(rows, rows.number(0.0)).CastLike(call["input"])
    made = silu(call, made).CastLike(call["input"])
    return made, kept.permuted(0, 2, 1).CastLike(call["input"]), shown


@dataclass(frozen=True)
class _Sizes:
    """Numbers of sequences, query heads and value heads, and the sizes of keys and values."""

    sequences: int
    asking: int
    heads: int
    keys: int
    values: int

    @property
    def state(self) -> tuple[int, ...]:
        return self.sequences, self.heads, self.keys, self.values


@defines("GatedDeltaNet",
         "query key value cu_seqlens decay beta initial_state a_log dt_bias capture_count "
         "state_update_active",
         ignored="chunk_size gate_lower_bound gate_activation beta_activation")  # fmt: skip
def gated_delta_net(call: Call) -> Sequence[Value | None]:
    """LinearAttention with other layouts: [tokens, heads, size], and a transposed state."""
    rule = call.one_of("update_rule", "gated_delta", "linear", "gated", "delta")
    for name, word in (("decay", "gated"), ("beta", "delta")):
        if call.has(name) != (word in rule):
            with_it = "with" if call.has(name) else "without"
            raise call.unfit(f"update_rule = {rule!r} {with_it} {name}")
    sizes = _sizes(call)
    count = 1 if call.has("cu_seqlens") else sizes.sequences

    def by_head(value: Value, *shape: int) -> Value:
        return value.reshaped(count, -1, *shape)

    q, k, v = (by_head(*one) for one in _operands(call, sizes))
    keys = spread(k, sizes.heads, sizes.asking)
    asked = spread(q, sizes.heads, sizes.asking).scaled(call.real("scale") or sizes.keys**-0.5)
    rows = [asked.Unsqueeze([3]), keys.Unsqueeze([4]), v.Unsqueeze([3])]
    if "gated" in rule:
        rows.append(by_head(_decay(call, sizes), sizes.heads, _decays(call), 1).Exp())
    if "delta" in rule:
        rate, kind = call.wide("beta"), call.one_of("beta_activation", "none", "sigmoid")
        rows.append(by_head(rate if kind == "none" else rate.Sigmoid(), sizes.heads, 1, 1))
    state, made, added = _run(call, sizes, rule, rows)
    shape = [] if call.rank("query") < 4 else [count]
    made = made.reshaped(*shape, -1, sizes.heads, sizes.values).CastLike(call["query"])
    capacity = capacity_of(call)
    decayed = rows[3] if "gated" in rule else _unchanged(rows[2], sizes)
    shown = _shown(call, sizes, capacity, [decayed, k, added]) if capacity else None
    return made, state.permuted(0, 1, 3, 2), shown


def _sizes(call: Call) -> _Sizes:
    if not call.has("key"):
        sequences, heads, values, keys = (call.size("initial_state", axis) for axis in range(4))
        asking = (call.size("query", -1) - heads * values) // (2 * keys)
    else:
        asking, keys = call.size("query", -2), call.size("query", -1)
        heads, values = call.size("value", -2), call.size("value", -1)
        if call.has("cu_seqlens"):
            sequences = call.size("cu_seqlens", 0) - 1
        elif call.rank("query") == 4:
            sequences = call.size("query", 0)
        else:
            sequences = call.size("initial_state", 0)
    if not asking or heads % asking:
        raise call.unfit(f"{heads} value heads for {asking} query heads")
    return _Sizes(sequences, asking, heads, keys, values)


def _operands(call: Call, sizes: _Sizes) -> list[tuple[Value, int, int]]:
    """Queries, keys and values, each with its number of heads and head size."""
    asking = (sizes.asking, sizes.keys)
    if call.has("key"):
        q, k, v = (call.wide(name) for name in ("query", "key", "value"))
    else:
        width = sizes.asking * sizes.keys
        parts = [width, width, sizes.heads * sizes.values]
        q, k, v = call.wide("query").several("Split", 3, parts, axis=-1)
    if call.integer("qk_l2_norm"):
        rows = (one.reshaped(-1, *asking) for one in (q, k))
        q, k = (one / ((one * one).ReduceSum([-1]) + 1e-12).Sqrt() for one in rows)
    return [(q, *asking), (k, *asking), (v, sizes.heads, sizes.values)]


def _decay(call: Call, sizes: _Sizes) -> Value:
    """The log decay of the state, [tokens, heads, 1 or key size]."""
    raw = call.wide("decay").reshaped(-1, sizes.heads, _decays(call))
    kind = call.one_of("gate_activation", "none", "softplus", "qwen", "sigmoid", "kda")
    if kind == "none":
        return raw
    rate = call["a_log"].Exp().Unsqueeze([1])
    moved = raw + call["dt_bias"].reshaped(sizes.heads, -1)
    if kind in ("softplus", "qwen"):
        return (rate * moved.Softplus()).Neg()
    return (rate * moved).Sigmoid() * call.real("gate_lower_bound", -5.0)


def _decays(call: Call) -> int:
    """The number of decays per head: one, or one per element of the keys."""
    is_by_key = call.rank("decay") == max(call.rank("query"), 3)
    return call.size("decay", -1) if is_by_key else 1


def _unchanged(values: Value, sizes: _Sizes) -> Value:
    """A decay of 1 for each token and head."""
    shape = values.Shape(end=2).Concat([sizes.heads, 1, 1], axis=0)
    return values.number(1.0).Expand(shape)


def _run(call: Call, sizes: _Sizes, rule: str, rows: Sequence[Value]) -> tuple[Value, Value, Value]:
    """The final states, and for each token the result and the value that it adds."""
    start = call.get("initial_state")
    start = rows[0].number(0.0).Expand(sizes.state) if start is None else start.permuted(0, 1, 3, 2)
    by_token = [_by_token(row) for row in rows]

    def step(_: Body, state: Value, *now: Value) -> tuple[Value, Value, Value]:
        state, added = changed(rule, state, *now[1:])
        return state, now[0] @ state, added

    def step_of_one(body: Body, states: Value, owner: Value, *now: Value) -> Sequence[Value]:
        state, *made = step(body, states.Gather(owner).Unsqueeze([0]), *now)
        is_own = body.counted(sizes.sequences).same(owner).reshaped(-1, 1, 1, 1)
        return is_own.Where(state, states), *made

    if call.has("cu_seqlens"):
        tokens = call.body.counted(by_token[0].length(0))
        owners = Requests.of(call["cu_seqlens"]).owners(tokens)
        found = call.body.scanned([start], [owners, *by_token], step_of_one)
    else:
        found = call.body.scanned([start], by_token, step)
    state, made, added = found
    return state, _by_token(made), _by_token(added)


def _shown(call: Call, sizes: _Sizes, capacity: int, factors: Sequence[Value]) -> Value:
    """The factors of the state updates by each sequence's first tokens, padded with zeros."""
    if call.has("cu_seqlens"):
        requests = Requests.of(call["cu_seqlens"])
    else:
        begins = call.body.counted(sizes.sequences) * factors[1].length(1)
        requests = Requests(begins, begins + factors[1].length(1))
    captured = requests.captured(call, capacity)
    if call.has("state_update_active"):
        captured = captured & call["state_update_active"].typed("i64").same(0).Not()
    places = requests.begins.Unsqueeze([1]) + call.body.counted(capacity)
    rows = captured.Where(places, call.body.constant(0))
    parts = []
    for factor in factors:
        tokens = factor.Reshape(factor.Shape(end=2).Concat([-1], axis=0))
        width = tokens.length(2).reshaped(1)
        flat = tokens.Reshape(call.body.constant([-1]).Concat(width, axis=0))
        first = captured.Unsqueeze([2]).Where(flat.Gather(rows), flat.number(0.0))
        parts.append(first.reshaped(sizes.sequences, -1))
    return parts[0].Concat(*parts[1:], axis=1)
