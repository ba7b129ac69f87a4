"""Operators of onnxruntime that go step by step: over the columns of a matrix, or over time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from popgraph.operators.microsoft.body import Body, Value, total
from popgraph.operators.microsoft.call import Call, defines
from popgraph.operators.microsoft.normalizations import wide
from popgraph.operators.record import INTEGERS, MICROSOFT, without_gradient


@defines("Inverse", "X")
def inverse(call: Call) -> Value:
    """
    By elimination in the matrix and the unit matrix beside it, a column at a time.

    The pivot is the largest element of the column in rows that were not chosen before; the row
    of the inverse is that of the pivot.
    """
    x, size = wide(call, call["X"], "X"), call.size("X", -1)
    matrices = x.reshaped(-1, size, size)
    unit = np.eye(size, dtype=np.float32)
    zeros = matrices * 0
    start = matrices.Concat(zeros + call.body.constant(unit).CastLike(x), axis=2)
    columns = call.body.constant(np.eye(size, 2 * size, dtype=np.float32)).CastLike(x)
    left, _, chosen = call.body.scanned(
        [start, zeros.part(0, 1, 2)], columns, lambda body, *now: _eliminated(size, body, *now)
    )
    found = chosen.permuted(1, 0, 2) @ left.part(size, 2 * size, 2)
    return found.Reshape(call["X"].Shape()).CastLike(call["X"])


def _eliminated(
    size: int, body: Body, left: Value, used: Value, column: Value
) -> tuple[Value, Value, Value]:
    """What is left, the rows that were chosen, and the row of this column among all, as 0 and 1."""
    elements = (left * column).ReduceSum([2])
    place = ((1 - used) * elements.Abs() - used).ArgMax(axis=1, keepdims=0)
    is_pivot = body.counted(size).Unsqueeze([0]).same(place)
    chosen = is_pivot.CastLike(left).Unsqueeze([2])
    row = (left * chosen).ReduceSum([1]) / (elements * chosen).ReduceSum([1])
    others = 1 - chosen
    rest = others * left - others * elements * row + chosen * row
    return rest, used + chosen, chosen.Squeeze([2])


@defines("DynamicQuantizeLSTM",
         "X W R B lengths initial_h initial_c P Ws Wz Rs Rz")  # fmt: skip
def dynamic_quantize_lstm(call: Call) -> Sequence[Value]:
    """All inputs are quantized together, what is carried anew in every step."""
    hidden = _hidden(call)
    found = [
        _direction(call, at, backwards, hidden, names)
        for at, (backwards, names) in enumerate(ways_of(call))
    ]
    return [
        joined(many, axis) for many, axis in zip(zip(*found, strict=True), (1, 0, 0), strict=True)
    ]


def ways_of(call: Call) -> list[tuple[bool, Sequence[str]]]:
    """Of each direction, whether it begins at the end, and its three activations."""
    way = call.one_of("direction", "forward", "reverse", "bidirectional")
    ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[way]
    names = call.texts("activations") or ["Sigmoid", "Tanh", "Tanh"] * len(ways)
    if unknown := set(names) - {"Sigmoid", "Tanh", "Relu", "Softsign", "Softplus"}:
        raise call.refuse(f"the activation {min(unknown)!r}")
    return [(backwards, names[3 * at : 3 * at + 3]) for at, backwards in enumerate(ways)]


def _hidden(call: Call) -> int:
    found = call.size("R", 1)
    if call.integer("hidden_size", found) != found:
        raise call.unfit()
    return found


def joined(values: Sequence[Value], axis: int) -> Value:
    first, *more = (one.Unsqueeze([axis]) for one in values)
    return first.Concat(*more, axis=axis)


def _direction(
    call: Call, at: int, backwards: bool, hidden: int, names: Sequence[str]
) -> tuple[Value, Value, Value]:
    """The results of all steps, and the last of what is carried."""
    x, bias, peepholes = call["X"], of_direction(call, "B", at), of_direction(call, "P", at)
    gates = _product(call, x, "W", at)
    if bias is not None:
        gates = gates + bias.part(0, 4 * hidden, 0) + bias.part(4 * hidden, 8 * hidden, 0)
    nothing = gates.part(0, 1, 0).Squeeze([0]).part(0, hidden, 1) * 0

    def turn(_: Body, state: Value, cell: Value, row: Value) -> tuple[Value, Value, Value]:
        sums = row + _product(call, state, "R", at)
        following = cell_after(sums, cell, peepholes, names)
        return *following, following[0]

    start = [of_direction(call, name, at) or nothing for name in ("initial_h", "initial_c")]
    state, cell, every = call.body.scanned(start, gates, turn, backwards)
    return every, state, cell


def of_direction(call: Call, name: str, at: int) -> Value | None:
    """An input of one direction."""
    value = call.get(name)
    return value and value.part(at, at + 1, 0).Squeeze([0])


def _product(call: Call, values: Value, weights: str, at: int) -> Value:
    """Of numbers that are quantized now with the weights of a direction."""
    numbers, scale, zero = values.several("DynamicQuantizeLinear", 3)
    matrix, steps, points = (of_direction(call, f"{weights}{one}", at) for one in ("", "s", "z"))
    if matrix is None or steps is None:
        raise call.unfit()
    return numbers.MatMulInteger(matrix, zero, points).typed("f32") * (scale * steps)


def cell_after(
    sums: Value, cell: Value, peepholes: Value | None, names: Sequence[str]
) -> tuple[Value, Value]:
    """The state and the cell of the next step; the gates are input, output, forget and cell."""
    gates = sums.several("Split", 4, axis=-1, num_outputs=4)
    looks = (
        [None] * 3 if peepholes is None else peepholes.several("Split", 3, axis=0, num_outputs=3)
    )
    own, other, last = names

    def gate(place: int, seen: Value) -> Value:
        look = looks[place]
        return total(gates[place], None if look is None else look * seen).applied(own)

    following = gate(2, cell) * cell + gate(0, cell) * gates[3].applied(other)
    return gate(1, following) * following.applied(last), following


without_gradient("DynamicQuantizeLSTM", INTEGERS, domain=MICROSOFT)
