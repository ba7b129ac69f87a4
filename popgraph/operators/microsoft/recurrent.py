"""Recurrent layers of onnxruntime: dynamically quantized LSTM, LSTM with attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from popgraph.operators.microsoft.attention import hidden_unless
from popgraph.operators.microsoft.body import LAST, Body, Value, total
from popgraph.operators.microsoft.call import Call, defines
from popgraph.operators.record import INTEGERS

Direction: TypeAlias = Callable[
    [Call, int, bool, Sequence[str]],
    tuple[Value, Value, Value],
]
"""(call, direction, backwards, activations)  ->  (results of all steps, last state, last cell)"""


@defines("DynamicQuantizeLSTM",
         "X W R B lengths initial_h initial_c P Ws Wz Rs Rz",
         without_gradient=INTEGERS)  # fmt: skip
def dynamic_quantize_lstm(call: Call) -> Sequence[Value]:
    """An LSTM that quantizes all inputs together, and the state in every step."""
    return _both_ways(call, _direction)


def _both_ways(call: Call, direction: Direction) -> list[Value]:
    """All results, the last states and the last cells, stacked over directions."""
    found = [direction(call, at, *way) for at, way in enumerate(_ways(call))]
    return [
        first.Unsqueeze([axis]).Concat(*(one.Unsqueeze([axis]) for one in more), axis=axis)
        for axis, (first, *more) in zip((1, 0, 0), zip(*found, strict=True), strict=True)
    ]


def _ways(call: Call) -> list[tuple[bool, Sequence[str]]]:
    """For each direction, whether it runs backwards, and its three activations."""
    way = call.one_of("direction", "forward", "reverse", "bidirectional")
    ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[way]
    names = call.texts("activations") or ["Sigmoid", "Tanh", "Tanh"] * len(ways)
    if unknown := set(names) - {"Sigmoid", "Tanh", "Relu", "Softsign", "Softplus"}:
        raise call.refuse(f"the activation {min(unknown)!r}")
    return [(backwards, names[3 * at : 3 * at + 3]) for at, backwards in enumerate(ways)]


def _direction(
    call: Call, at: int, backwards: bool, names: Sequence[str]
) -> tuple[Value, Value, Value]:
    """The results of all steps, and the last state and cell."""
    hidden = call.size("R", 1)
    if call.integer("hidden_size", hidden) != hidden:
        raise call.unfit()
    x, bias, peepholes = call["X"], of_direction(call, "B", at), of_direction(call, "P", at)
    gates = _product(call, x, "W", at)
    if bias is not None:
        gates = gates + bias.part(0, 4 * hidden, 0) + bias.part(4 * hidden, 8 * hidden, 0)
    nothing = gates.part(0, 1, 0).Squeeze([0]).part(0, hidden, 1) * 0

    def step(_: Body, state: Value, cell: Value, row: Value) -> tuple[Value, Value, Value]:
        sums = row + _product(call, state, "R", at)
        following = cell_after(sums, cell, peepholes, names)
        return *following, following[0]

    start = [of_direction(call, name, at) or nothing for name in ("initial_h", "initial_c")]
    state, cell, every = call.body.scanned(start, gates, step, backwards)
    return every, state, cell


def of_direction(call: Call, name: str, at: int) -> Value | None:
    """The slice of an input for one direction."""
    value = call.get(name)
    return value and value.part(at, at + 1, 0).Squeeze([0])


def _product(call: Call, values: Value, weights: str, at: int) -> Value:
    """The matmul of dynamically quantized values with the weights of a direction."""
    numbers, scale, zero = values.several("DynamicQuantizeLinear", 3)
    matrix, steps, points = (of_direction(call, f"{weights}{one}", at) for one in ("", "s", "z"))
    if matrix is None or steps is None:
        raise call.unfit()
    return numbers.MatMulInteger(matrix, zero, points).typed("f32") * (scale * steps)


def cell_after(
    sums: Value, cell: Value, peepholes: Value | None, names: Sequence[str]
) -> tuple[Value, Value]:
    """The next state and cell; the gates are input, output, forget and cell."""
    gates = sums.several("Split", 4, axis=-1, num_outputs=4)
    looks = peepholes and peepholes.several("Split", 3, axis=0, num_outputs=3)
    own, other, last = names

    def gate(place: int, seen: Value) -> Value:
        return total(gates[place], looks[place] * seen if looks else None).applied(own)

    following = gate(2, cell) * cell + gate(0, cell) * gates[3].applied(other)
    return gate(1, following) * following.applied(last), following


@defines("AttnLSTM",
         "X W R B sequence_lens initial_h initial_c P QW MW V M memory_seq_lens AW",
         ignored="hidden_size")  # fmt: skip
def attentive_lstm(call: Call) -> Sequence[Value]:
    """An LSTM whose input also holds the previous step's attention to a memory (Bahdanau)."""
    return _both_ways(call, _attentive_direction)


def _attentive_direction(
    call: Call, at: int, backwards: bool, names: Sequence[str]
) -> tuple[Value, Value, Value]:
    """The results of all steps, and the last state and cell."""
    x, hidden, bias = call["X"], call.size("R", 2), of_direction(call, "B", at)
    own, peepholes = call.size("X", 2), of_direction(call, "P", at)
    attention = call.size("W", 2) - own
    weights, recurrent = (_weights_of(call, name, at) for name in "WR")
    gates = x @ weights.part(0, own, 1).permuted(1, 0)
    if bias is not None:
        gates = gates + bias.part(0, 4 * hidden, 0) + bias.part(4 * hidden, LAST, 0)
    mixing, look = weights.part(own, LAST, 1).permuted(1, 0), _look(call, at)
    nothing = x.part(0, 1, 0).Squeeze([0]).part(0, 1, 1) * 0

    def step(
        _: Body, state: Value, cell: Value, seen: Value, row: Value
    ) -> tuple[Value, Value, Value, Value]:
        sums = row + seen @ mixing + state @ recurrent.permuted(1, 0)
        state, cell = cell_after(sums, cell, peepholes, names)
        return state, cell, look(state), state

    sizes = [("initial_h", hidden), ("initial_c", hidden)]
    start = [of_direction(call, name, at) or _zeros(nothing, size) for name, size in sizes]
    start.append(_zeros(nothing, attention))
    state, cell, _, every = call.body.scanned(start, gates, step, backwards)
    return every, state, cell


def _zeros(nothing: Value, size: int) -> Value:
    return nothing.Expand(nothing.Shape(end=1).Concat([size], axis=0))


def _weights_of(call: Call, name: str, at: int) -> Value:
    found = of_direction(call, name, at)
    if found is None:
        raise call.unfit(f"a missing input {name!r}")
    return found


def _look(call: Call, at: int) -> Callable[[Value], Value]:
    """A function from a state to the attention context, which the next step reads."""
    memory, asked = call["M"], _weights_of(call, "QW", at)
    keys, scored = memory @ _weights_of(call, "MW", at), _weights_of(call, "V", at)
    mask, mixed = None, of_direction(call, "AW", at)
    if call.has("memory_seq_lens"):
        steps = call.body.counted(memory.length(1)).typed("i32")
        seen = steps < call["memory_seq_lens"].Unsqueeze([1])
        mask = hidden_unless(seen, -float("inf"), keys)

    def look(state: Value) -> Value:
        alike = (keys + (state @ asked).Unsqueeze([1])).Tanh()
        scores = (alike * scored).ReduceSum([2], keepdims=0)
        shares = (scores if mask is None else scores + mask).Softmax(axis=-1)
        context = (shares.Unsqueeze([1]) @ memory).Squeeze([1])
        return context if mixed is None else state.Concat(context, axis=1) @ mixed

    return look
