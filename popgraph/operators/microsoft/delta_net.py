"""Onnxruntime's attention with a state in place of keys, over packed sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from popgraph.operators.microsoft.body import Body, Value
from popgraph.operators.microsoft.call import Call, defines
from popgraph.operators.microsoft.normalizations import wide
from popgraph.operators.microsoft.recurrences import changed, spread
from popgraph.operators.microsoft.requests import Requests, capacity_of


@dataclass(frozen=True)
class _Sizes:
    """Sequences, heads of queries and of values, and the sizes of both."""

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
    """As LinearAttention, with tokens in front of heads, and a state by values and keys."""
    rule = call.one_of("update_rule", "gated_delta", "linear", "gated", "delta")
    for name, word in (("decay", "gated"), ("beta", "delta")):
        if call.has(name) != (word in rule):
            raise call.unfit(
                f"update_rule = {rule!r} {'with' if call.has(name) else 'without'} {name}"
            )
    sizes, is_packed = _sizes(call), call.has("cu_seqlens")
    count = 1 if is_packed else sizes.sequences

    def by_head(value: Value, *shape: int) -> Value:
        return value.reshaped(count, -1, *shape)

    q, k, v = (by_head(*one) for one in _operands(call, sizes))
    keys = spread(k, sizes.heads, sizes.asking)
    asked = spread(q, sizes.heads, sizes.asking).scaled(call.real("scale") or sizes.keys**-0.5)
    rows = [asked.Unsqueeze([3]), keys.Unsqueeze([4]), v.Unsqueeze([3])]
    if "gated" in rule:
        rows.append(by_head(_decay(call, sizes), sizes.heads, _decays(call), 1).Exp())
    if "delta" in rule:
        rows.append(by_head(_rate(call), sizes.heads, 1, 1))
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
        raise call.unfit(f"{heads} heads of values for {asking} of queries")
    return _Sizes(sequences, asking, heads, keys, values)


def _operands(call: Call, sizes: _Sizes) -> list[tuple[Value, int, int]]:
    """Queries, keys and values, and by how many heads of what size each is."""
    asking = (sizes.asking, sizes.keys)
    value = (sizes.heads, sizes.values)
    every = wide(call, call["query"], "query")
    if call.has("key"):
        q, k, v = every, *(wide(call, call[name], name) for name in ("key", "value"))
    else:
        width = sizes.asking * sizes.keys
        parts = [width, width, sizes.heads * sizes.values]
        q, k, v = every.several("Split", 3, parts, axis=-1)
    if call.integer("qk_l2_norm"):
        q, k = (_normed(one.reshaped(-1, *asking)) for one in (q, k))
    return [(q, *asking), (k, *asking), (v, *value)]


def _normed(rows: Value) -> Value:
    return rows / ((rows * rows).ReduceSum([-1]) + 1e-12).Sqrt()


def _rate(call: Call) -> Value:
    rate = wide(call, call["beta"], "beta")
    return rate.Sigmoid() if call.one_of("beta_activation", "none", "sigmoid") != "none" else rate


def _decay(call: Call, sizes: _Sizes) -> Value:
    """The logarithm of what is left of the state, [tokens, heads, 1 or the size of a key]."""
    raw = wide(call, call["decay"], "decay").reshaped(-1, sizes.heads, _decays(call))
    kind = call.one_of("gate_activation", "none", "softplus", "qwen", "sigmoid", "kda")
    if kind == "none":
        return raw
    rate = call["a_log"].Exp().Unsqueeze([1])
    moved = raw + call["dt_bias"].reshaped(sizes.heads, -1)
    if kind in ("softplus", "qwen"):
        return (rate * moved.Softplus()).Neg()
    return (rate * moved).Sigmoid() * call.real("gate_lower_bound", -5.0)


def _decays(call: Call) -> int:
    """How many decays a head has: one, or one for each element of its keys."""
    is_by_key = call.rank("decay") == max(call.rank("query"), 3)
    return call.size("decay", -1) if is_by_key else 1


def _unchanged(values: Value, sizes: _Sizes) -> Value:
    """1 for each head of each token: what no decay leaves of a state."""
    shape = values.Shape(end=2).Concat([sizes.heads, 1, 1], axis=0)
    return values.number(1.0).Expand(shape)


def _run(call: Call, sizes: _Sizes, rule: str, rows: Sequence[Value]) -> tuple[Value, Value, Value]:
    """The states at the end; what each token is answered, and what it adds, by sequences."""
    start = call.get("initial_state")
    start = rows[0].number(0.0).Expand(sizes.state) if start is None else start.permuted(0, 1, 3, 2)
    by_token = [row.permuted(1, 0, 2, 3, 4) for row in rows]

    def turn(_: Body, state: Value, *now: Value) -> tuple[Value, Value, Value]:
        state, added = changed(rule, state, *now[1:])
        return state, now[0] @ state, added

    def turn_of_one(body: Body, states: Value, owner: Value, *now: Value) -> Sequence[Value]:
        state, *made = turn(body, states.Gather(owner).Unsqueeze([0]), *now)
        is_own = body.counted(sizes.sequences).same(owner).reshaped(-1, 1, 1, 1)
        return is_own.Where(state, states), *made

    if call.has("cu_seqlens"):
        tokens = call.body.counted(by_token[0].length(0))
        owners = Requests.of(call["cu_seqlens"]).owners(tokens)
        found = call.body.scanned([start], [owners, *by_token], turn_of_one)
    else:
        found = call.body.scanned([start], by_token, turn)
    state, made, added = found
    return state, made.permuted(1, 0, 2, 3, 4), added.permuted(1, 0, 2, 3, 4)


def _shown(call: Call, sizes: _Sizes, capacity: int, factors: Sequence[Value]) -> Value:
    """Of the first tokens of each sequence, the factors of how the state changed; else zeros."""
    requests = _requests(call, sizes, factors[1])
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


def _requests(call: Call, sizes: _Sizes, tokens: Value) -> Requests:
    if call.has("cu_seqlens"):
        return Requests.of(call["cu_seqlens"])
    begins = call.body.counted(sizes.sequences) * tokens.length(1)
    return Requests(begins, begins + tokens.length(1))
