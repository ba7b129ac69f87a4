"""Strategy for networks with lookups, whose indices may be out of range."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from popgraph.support.shapes import Shape
from popgraph.testing.specs import Network, Node

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
