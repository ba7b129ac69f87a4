"""Templates of nodes: their type, and the limit of value sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import Shape, broadcast, prod
from popgraph.testing.specs import Constant, Node

LIMIT = 400
"""Most elements of a value."""


Step: TypeAlias = tuple[Node, Shape]
"""A node and the shape of its result."""


Template: TypeAlias = Callable[[DrawFn, list[Shape], int, str], Step | None]
"""Draws a node that reads value `int`; None if the operator does not fit that value."""


def vector(*values: int) -> Constant:
    """A shape-like operand."""
    return Constant((len(values),), "i64", values)


def constants(shape: Shape, dtype: str) -> SearchStrategy[Constant]:
    """Constants, often neutral elements."""
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
    """Removes up to `drop` leading ones."""
    while drop and shape and shape[0] == 1:
        shape, drop = shape[1:], drop - 1
    return shape


def is_image(shape: Shape) -> bool:
    """Whether axes may be batch, channels, and 1 to 3 spatial axes."""
    return len(shape) in (3, 4, 5)
