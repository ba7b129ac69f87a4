"""Strategy for networks that select elements of tensors by constant conditions."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from popgraph.testing.specs import Constant, Network, Node


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
