"""Templates of nodes: what they draw from, and how large values may become."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import Shape, broadcast, prod
from popgraph.testing.specs import Constant, Node

LIMIT = 400
"""No value has more elements."""


Step: TypeAlias = tuple[Node, Shape]
"""A node and the shape of its result."""


Template: TypeAlias = Callable[[DrawFn, list[Shape], int, str], Step | None]
"""Draws a node that reads value `int`; None when the operator does not fit that value."""


def vector(*values: int) -> Constant:
    """A shape-like operand."""
    return Constant((len(values),), "i64", values)


def constants(shape: Shape, dtype: str) -> SearchStrategy[Constant]:
    """Neutral elements often, other numbers, too."""
    fills = st.sampled_from([0.0, 1.0, -1.0, 2.0])
    return st.one_of(
        fills.map(lambda fill: Constant(shape, dtype, fill=fill)),
        st.integers(0, 3).map(lambda seed: Constant(shape, dtype, seed=seed)),
    )


def fits(left: Shape, right: Shape) -> bool:
    try:
        return prod(broadcast(left, right)) <= LIMIT
    except TypeMismatchError:
        return False


def smaller(shape: Shape) -> SearchStrategy[Shape]:
    """Shapes that broadcast to `shape`."""
    kept = st.tuples(*(st.booleans() for _ in shape))
    ones = kept.map(lambda keep: tuple(d if k else 1 for d, k in zip(shape, keep, strict=True)))
    return ones.flatmap(
        lambda full: st.integers(0, len(full)).map(lambda drop: trimmed(full, drop))
    )


def trimmed(shape: Shape, drop: int) -> Shape:
    """Up to `drop` leading ones removed."""
    while drop and shape and shape[0] == 1:
        shape, drop = shape[1:], drop - 1
    return shape


def is_image(shape: Shape) -> bool:
    """Whether there may be a batch, channels, and axes along which a window slides."""
    return len(shape) in (3, 4, 5)
