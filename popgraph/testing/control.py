"""Strategies for networks with branches and loops, whose bodies are random networks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from popgraph.support.shapes import Shape, prod
from popgraph.testing.specs import Body, Network, Node
from popgraph.testing.strategies import Draft, random_nodes, trained
from popgraph.testing.templates.frame import LIMIT, Step

SMALL = (st.integers(1, 3), st.integers(1, 4))
"""Sizes of axes: of the first, which Scan iterates over, and of others."""


def controlled(dtype: str = "f32") -> SearchStrategy[Network]:
    """A small network with a branch or a loop, maybe nested."""
    return _drafts(dtype, True).map(lambda draft: draft[0])


def training_controlled(dtype: str = "f32", nll: bool = True) -> SearchStrategy[Network]:
    """
    A network with control flow that ends in its loss, as `training_networks` do.

    Trip counts do not depend on data: such a loop has no gradient.
    """
    return trained(_drafts(dtype, False), dtype, nll)


@st.composite
def _drafts(draw: DrawFn, dtype: str, counted: bool) -> Draft:
    """`counted`: trip counts may depend on data."""
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
            nodes += random_nodes(draw, shapes, count, dtype)
        node, made = _Control(draw, dtype, counted).node(shapes, 2)
        nodes.append(node)
        shapes.append(made)
    return Network(tuple(inputs), tuple(nodes), dtype), shapes


@dataclass(frozen=True)
class _Control:
    """Draws branches and loops."""

    draw: DrawFn
    dtype: str
    counted: bool

    def node(self, shapes: list[Shape], depth: int) -> Step:
        """A branch or loop on one of the values, with at most `depth` levels of nesting."""
        source = self.draw(st.integers(0, len(shapes) - 1))
        captured = tuple(self.draw(st.lists(st.integers(0, len(shapes) - 1), max_size=2)))
        op = self.draw(
            st.sampled_from(["If", "Loop", "Scan"] if shapes[source] else ["If", "Loop"])
        )
        held = [shapes[number] for number in captured]
        match op:
            case "If":
                captured, held = captured or (source,), held or [shapes[source]]
                branches = tuple(self._network(held, depth)[0] for _ in range(2))
                body, made = Body(branches, captured), shapes[source]
            case "Loop":
                body, made = self._loop(shapes[source], captured, held, depth)
            case _:
                body, made = self._scan(shapes[source], depth)
        return Node(op, (source,), shape=made, body=body), made

    def _loop(
        self, shape: Shape, captured: tuple[int, ...], held: list[Shape], depth: int
    ) -> tuple[Body, Shape]:
        network, row = self._network([shape, *held], depth)
        body = Body(
            (network,),
            captured,
            self.draw(st.integers(0, 3)),
            delayed=self.draw(_SELDOM),
            until=self.draw(st.integers(0, 3)) if self.draw(_SELDOM) else None,
            guarded=self.draw(_SELDOM),
            counted=self.counted and self.draw(_SELDOM),
        )
        return self._given(body, shape, row) if body.has_rows else (body, shape)

    def _scan(self, shape: Shape, depth: int) -> tuple[Body, Shape]:
        trips, *rest = shape
        state = tuple(rest)
        network, row = self._network([state, state], depth)
        reverse = self.draw(st.tuples(_SELDOM, _SELDOM))
        body = Body((network,), (), trips, delayed=self.draw(_SELDOM), reverse=reverse)
        return self._given(body, state, row)

    def _given(self, body: Body, state: Shape, row: Shape) -> tuple[Body, Shape]:
        """Chooses whether a body returns its rows; returns the shape of the result, too."""
        if body.trips and body.trips * prod(row) <= LIMIT and self.draw(st.booleans()):
            return replace(body, stacked=True), (body.trips, *row)
        return body, state

    def _network(self, inputs: list[Shape], depth: int) -> tuple[Network, Shape]:
        """The network of a body, and the shape of its last value."""
        shapes = list(inputs)
        nodes = random_nodes(self.draw, shapes, self.draw(st.integers(1, 3)), self.dtype)
        if depth > 1 and self.draw(_SELDOM):
            node, made = self.node(shapes, depth - 1)
            nodes.append(node)
            shapes.append(made)
        return Network(tuple(inputs), tuple(nodes), self.dtype), shapes[-1]


_SELDOM = st.integers(0, 3).map(lambda number: number == 3)
