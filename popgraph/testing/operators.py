"""Strategies for networks around one operator, such as a lookup, a clamp or attention."""

from __future__ import annotations

import ml_dtypes
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from popgraph.support.dtypes import BY_NAME
from popgraph.support.shapes import Shape
from popgraph.testing.specs import Constant, Network, Node

I32, I64 = 6, 7


@st.composite
def lookups(draw: DrawFn, dtype: str = "f32") -> Network:
    """
    A lookup in the first input at indices from the second one.

    Random inputs are around zero: indices are valid, negative, or out of range on either side. Two
    lookups at the same indices may follow in sequence.
    """
    data = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple))
    axis = draw(st.integers(0, len(data) - 1))
    op = draw(st.sampled_from(["Gather", "GatherElements", "GatherND"]))
    shape = draw(_places(op, data))
    kind = I64
    attributes: tuple[tuple[str, int], ...] = ()
    if op != "GatherND":
        kind = draw(st.sampled_from([I32, I64]))
        attributes = (("axis", draw(st.sampled_from([axis, axis - len(data)]))),)
    nodes = [Node("Cast", (1,), (("to", kind),)), Node(op, (0, 2), attributes)]
    if draw(st.booleans()):
        nodes.append(Node("Relu", (3,)))
        nodes.append(Node(op, (0, 2), attributes))
    return Network((data, shape), tuple(nodes), dtype, (len(nodes),))


def _places(op: str, data: Shape) -> st.SearchStrategy[Shape]:
    few = st.integers(1, 3)
    match op:
        case "GatherElements":
            return st.tuples(*(st.integers(1, size) for size in data))
        case "GatherND":
            return st.tuples(few, st.integers(1, len(data)))
        case _:
            return st.lists(few, max_size=2).map(tuple)


TYPES = ("i8", "u8", "i16", "u16")


@st.composite
def clamps(draw: DrawFn, dtype: str = "f32") -> Network:
    """Max, Min or a comparison of integers with a constant at a limit of their type."""
    name = draw(st.sampled_from(TYPES))
    ends = ml_dtypes.iinfo(BY_NAME[name].numpy)
    least, greatest = int(ends.min), int(ends.max)
    limit = draw(st.sampled_from((least, least + 1, greatest - 1, greatest)))
    nodes: list[Node] = []

    def add(op: str, *operands: int | Constant, **attributes: object) -> int:
        nodes.append(Node(op, operands, tuple(attributes.items())))
        return len(nodes)

    def number(value: int) -> Constant:
        return Constant((), dtype, fill=float(value))

    integer = BY_NAME[name].onnx
    x = add("Cast", add("Mul", 0, number(greatest)), to=integer)
    pair = draw(st.permutations((x, add("Cast", number(limit), to=integer))))
    op = draw(st.sampled_from(("Max", "Min", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")))
    add("Cast", add(op, *pair), to=BY_NAME[dtype].onnx)
    return Network(((draw(st.integers(1, 3)),),), tuple(nodes), dtype)


@st.composite
def selections(draw: DrawFn, dtype: str = "f32") -> Network:
    """
    A Compress, or a GatherND at the indices of a NonZero, with a constant condition.

    No kernel computes Compress or NonZero: with other conditions, Python does.
    """
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    shape = rows, columns
    nodes = [Node("Relu", (0,))] if draw(st.booleans()) else []
    data = len(nodes)
    if draw(st.booleans()):
        axis = draw(st.sampled_from([None, 0, 1, -1]))
        length = rows * columns if axis is None else shape[axis]
        condition = Constant((length,), "bool", _condition(draw, length))
        attributes: tuple[tuple[str, object], ...] = () if axis is None else (("axis", axis),)
        nodes.append(Node("Compress", (data, condition), attributes))
    else:
        mask = Constant(shape, "bool", _condition(draw, rows * columns))
        nodes.append(Node("NonZero", (mask,)))
        nodes.append(Node("Transpose", (data + 1,), (("perm", (1, 0)),)))
        nodes.append(Node("GatherND", (data, data + 2)))
    nodes.append(Node("Neg", (len(nodes),)))
    return Network((shape,), tuple(nodes), dtype)


def _condition(draw: DrawFn, length: int) -> tuple[int, ...]:
    """Zeros and ones, with at least one 1."""
    found = draw(st.lists(st.integers(0, 1), min_size=length, max_size=length))
    return tuple(found) if any(found) else (1, *found[1:])


GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@st.composite
def recurrences(draw: DrawFn, dtype: str = "f32", *, by_batch: bool = False) -> Network:
    """
    An LSTM, GRU or RNN, maybe followed by a matmul of all its outputs.

    Initial states and, if `by_batch`, the lengths of sequences may be further inputs. The batch is
    the first axis of all inputs if `by_batch`, else the second one.
    """
    op = draw(st.sampled_from([*GATES]))
    direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    directions, hidden = 1 + (direction == "bidirectional"), draw(st.sampled_from([2, 3, 8]))
    steps, batch, features = draw(st.integers(1, 4)), draw(st.integers(1, 3)), 5
    rows = GATES[op] * hidden

    def in_time(first: int, last: int) -> tuple[int, ...]:
        return (batch, first, last) if by_batch else (first, batch, last)

    inputs, nodes = [in_time(steps, features)], list[Node]()
    initial, lengths = draw(st.booleans()), by_batch and draw(st.booleans())
    states = [1, 2] if initial and op == "LSTM" else [1] if initial else []
    inputs += [in_time(directions, hidden) for _ in states]
    if lengths:
        inputs.append((batch,))
        nodes.append(Node("Cast", (len(inputs) - 1,), (("to", I32),)))
    shapes = [(rows, features), (rows, hidden), (2 * rows,)]
    weights = [Constant((directions, *one), dtype, seed=at) for at, one in enumerate(shapes)]
    operands = [0, *weights, len(inputs) if lengths else None, *states]
    attributes = {"hidden_size": hidden, "direction": direction, "layout": int(by_batch)}
    nodes.append(Node(op, tuple(operands), tuple(attributes.items())))
    if draw(st.booleans()):
        matrix = Constant((hidden, 3), dtype, seed=len(shapes))
        nodes.append(Node("MatMul", (len(inputs) + len(nodes) - 1, matrix)))
    return Network(tuple(inputs), tuple(nodes), dtype)


@st.composite
def attentions(draw: DrawFn, dtype: str = "f32") -> Network:
    """
    softmax(q k * scale + mask) v for one or two leading dimensions; heads may be merged.

    Exporters apply the scale to queries, keys or both, and so do some of these networks. Keys and
    values often fill vectors, and the scores are sometimes an output.
    """
    batch = draw(st.sampled_from([(1,), (2,), (1, 2)]))
    rows, width = draw(st.integers(2, 5)), draw(st.integers(2, 3))
    keys = draw(st.sampled_from([4, 8, 5]))
    values = draw(st.sampled_from([4, 4, 5]))
    inputs = ((*batch, rows, width), (*batch, width, keys), (*batch, keys, values))
    nodes = list[Node]()
    factors = [0, 1]
    for number in factors:
        if draw(st.integers(0, 2)) == 0:
            scale = Constant((1,), dtype, fill=draw(st.sampled_from([0.25, -3.0])))
            nodes.append(Node("Mul", (number, scale)))
            factors[number] = len(inputs) + len(nodes) - 1
    nodes.append(Node("MatMul", tuple(factors)))
    if draw(st.booleans()):
        nodes.append(Node("Mul", (len(inputs) + len(nodes) - 1, Constant((), dtype, fill=0.5))))
    if draw(st.booleans()):
        nodes.append(Node("Add", (len(inputs) + len(nodes) - 1, Constant((keys,), dtype, seed=1))))
    scores = len(inputs) + len(nodes) - 1
    nodes.append(Node("Softmax", (scores,), (("axis", -1),)))
    nodes.append(Node("MatMul", (scores + 1, 2)))
    if len(batch) == 2 and draw(st.booleans()):
        nodes.append(Node("Transpose", (scores + 2,), (("perm", (0, 2, 1, 3)),)))
    outputs = {len(inputs) + len(nodes) - 1}
    if draw(st.integers(0, 4)) == 0:
        outputs.add(scores)
    return Network(inputs, tuple(nodes), dtype, tuple(sorted(outputs)))
