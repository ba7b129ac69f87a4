"""Strategy for recurrent layers."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from popgraph.testing.specs import Constant, Network, Node

I32 = 6
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
