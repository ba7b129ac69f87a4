"""Onnxruntime's LSTM that looks into a memory in every step, by the attention of Bahdanau."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from popgraph.operators.microsoft.attention import hidden_unless
from popgraph.operators.microsoft.body import LAST, Body, Value
from popgraph.operators.microsoft.call import Call, defines
from popgraph.operators.microsoft.loops import cell_after, joined, of_direction, ways_of

Look = Callable[[Value], Value]
"""From the state of a step, what the next step is told beside its input."""


@defines("AttnLSTM",
         "X W R B sequence_lens initial_h initial_c P QW MW V M memory_seq_lens AW",
         ignored="hidden_size")  # fmt: skip
def attentive_lstm(call: Call) -> Sequence[Value]:
    """What a step finds in the memory is a part of the input of the next one."""
    found = [_direction(call, at, *way) for at, way in enumerate(ways_of(call))]
    every, state, cell = (list(many) for many in zip(*found, strict=True))
    return joined(every, 1), joined(state, 0), joined(cell, 0)


def _direction(
    call: Call, at: int, backwards: bool, names: Sequence[str]
) -> tuple[Value, Value, Value]:
    """The results of all steps, and the last of what is carried."""
    x, hidden, bias = call["X"], call.size("R", 2), of_direction(call, "B", at)
    own, peepholes = call.size("X", 2), of_direction(call, "P", at)
    told, weights, recurrent = (
        call.size("W", 2) - own,
        _weights(call, "W", at),
        _weights(call, "R", at),
    )
    gates = x @ weights.part(0, own, 1).permuted(1, 0)
    if bias is not None:
        gates = gates + bias.part(0, 4 * hidden, 0) + bias.part(4 * hidden, LAST, 0)
    beside, look = weights.part(own, LAST, 1).permuted(1, 0), _look(call, at)
    nothing = x.part(0, 1, 0).Squeeze([0]).part(0, 1, 1) * 0

    def turn(
        _: Body, state: Value, cell: Value, seen: Value, row: Value
    ) -> tuple[Value, Value, Value, Value]:
        sums = row + seen @ beside + state @ recurrent.permuted(1, 0)
        state, cell = cell_after(sums, cell, peepholes, names)
        return state, cell, look(state), state

    sizes = [("initial_h", hidden), ("initial_c", hidden)]
    start = [of_direction(call, name, at) or _zeros(nothing, size) for name, size in sizes]
    start.append(_zeros(nothing, told))
    state, cell, _, every = call.body.scanned(start, gates, turn, backwards)
    return every, state, cell


def _zeros(nothing: Value, size: int) -> Value:
    return nothing.Expand(nothing.Shape(end=1).Concat([size], axis=0))


def _weights(call: Call, name: str, at: int) -> Value:
    found = of_direction(call, name, at)
    if found is None:
        raise call.unfit(f"no input {name!r}")
    return found


def _look(call: Call, at: int) -> Look:
    """Which rows of the memory a state asks for, and what is made of them."""
    memory, asked = call["M"], _weights(call, "QW", at)
    keys, scored = memory @ _weights(call, "MW", at), _weights(call, "V", at)
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
