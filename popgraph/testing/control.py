"""Strategies for networks with branches and loops, whose bodies are random networks."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from popgraph.support.shapes import Shape, prod
from popgraph.testing.specs import Body, Network, Node
from popgraph.testing.strategies import grown
from popgraph.testing.templates.frame import LIMIT, Step

SMALL = (st.integers(1, 3), st.integers(1, 4))
"""Sizes of axes: of the first, which scans go along, and of others."""


def controlled(dtype: str = "f32") -> SearchStrategy[Network]:
    """A small network with a branch or a loop in it, in which there may be another one."""
    return _drafts(dtype)


@st.composite
def _drafts(draw: DrawFn, dtype: str) -> Network:
    first, other = SMALL
    kinds: list[SearchStrategy[Shape]] = [
        st.tuples(first),
        st.tuples(first, other),
        st.tuples(first, other, other),
    ]
    inputs = draw(st.lists(st.one_of(kinds), min_size=1, max_size=2))
    shapes, nodes = list(inputs), list[Node]()
    for count in draw(st.lists(st.integers(0, 2), min_size=1, max_size=2)):
        if count:
            nodes += grown(draw, shapes, count, dtype)
        node, made = control(draw, shapes, dtype, 2)
        nodes.append(node)
        shapes.append(made)
    return Network(tuple(inputs), tuple(nodes), dtype)


def control(draw: DrawFn, shapes: list[Shape], dtype: str, depth: int) -> Step:
    """A branch or a loop on one of the values; at most so many are inside each other."""
    source = draw(st.integers(0, len(shapes) - 1))
    shape = shapes[source]
    captured = tuple(draw(st.lists(st.integers(0, len(shapes) - 1), max_size=2)))
    held = [shapes[number] for number in captured]
    op = draw(st.sampled_from(["If", "Loop", "Scan"] if shape else ["If", "Loop"]))
    if op == "If":
        captured, held = captured or (source,), held or [shape]
        branches = tuple(_network(draw, held, dtype, depth)[0] for _ in range(2))
        return Node("If", (source,), body=Body(branches, captured)), shape
    if op == "Scan":
        captured, carried, trips = (), shape[1:], shape[0]
        network, row = _network(draw, [carried, carried], dtype, depth)
    else:
        carried, trips = shape, draw(st.integers(0, 3))
        network, row = _network(draw, [carried, *held], dtype, depth)
    stacked = draw(st.booleans()) and trips > 0 and trips * prod(row) <= LIMIT
    body = Body((network,), captured, trips, stacked)
    return Node(op, (source,), body=body), (trips, *row) if stacked else carried


def _network(draw: DrawFn, inputs: list[Shape], dtype: str, depth: int) -> tuple[Network, Shape]:
    """What a body computes, and the shape of its last value."""
    shapes = list(inputs)
    nodes = grown(draw, shapes, draw(st.integers(1, 3)), dtype)
    if depth > 1 and draw(st.integers(0, 3)) == 0:
        node, made = control(draw, shapes, dtype, depth - 1)
        nodes.append(node)
        shapes.append(made)
    return Network(tuple(inputs), tuple(nodes), dtype), shapes[-1]
