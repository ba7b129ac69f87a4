"""Templates of operators that move elements: slices, concatenations, padding, permutations."""

from __future__ import annotations

from operator import ge

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from popgraph.support.shapes import Shape, prod
from popgraph.testing.specs import Constant, Node
from popgraph.testing.templates.frame import LIMIT, Step, vector


def transpose(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step:
    shape = shapes[source]
    axes = range(len(shape))
    perm = draw(st.permutations(axes) | st.just(axes[::-1]))
    return Node("Transpose", (source,), (("perm", list(perm)),)), tuple(shape[i] for i in perm)


def reshape(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step:
    shape = shapes[source]
    split = draw(st.integers(0, len(shape)))
    result = draw(
        st.sampled_from([(prod(shape),), (prod(shape[:split]), prod(shape[split:])), (1, *shape)])
    )
    return Node("Reshape", (source, vector(*result))), result


def window_slice(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    shape = shapes[source]
    if not shape:
        return None
    axis = draw(st.integers(0, len(shape) - 1))
    start = draw(st.just(0) | st.integers(0, shape[axis] - 1))
    end = draw(st.integers(start + 1, shape[axis]))
    step = draw(st.integers(1, 2))
    size = -(-(end - start) // step)
    operands = (source, vector(start), vector(end), vector(axis), vector(step))
    return Node("Slice", operands), (*shape[:axis], size, *shape[axis + 1 :])


def part_of_another(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    """A slice of another, larger value with the shape of this one."""
    shape = shapes[source]
    larger = [
        other
        for other, whole in enumerate(shapes)
        if len(whole) == len(shape) and whole != shape and all(map(ge, whole, shape))
    ]
    if not larger:
        return None
    other = draw(st.sampled_from(larger))
    starts = [
        draw(st.just(0) | st.integers(0, whole - size))
        for whole, size in zip(shapes[other], shape, strict=True)
    ]
    ends = [start + size for start, size in zip(starts, shape, strict=True)]
    operands = (other, vector(*starts), vector(*ends), vector(*range(len(shape))))
    return Node("Slice", operands), shape


def single(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    """A slice of size 1 along one axis."""
    shape = shapes[source]
    if not shape:
        return None
    axis = draw(st.integers(0, len(shape) - 1))
    start = draw(st.just(0) | st.integers(0, shape[axis] - 1))
    operands = (source, vector(start), vector(start + 1), vector(axis))
    return Node("Slice", operands), (*shape[:axis], 1, *shape[axis + 1 :])


def pad(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    shape = shapes[source]
    pads = [draw(st.integers(0, 1)) for _ in range(2 * len(shape))]
    result = tuple(d + pads[i] + pads[i + len(shape)] for i, d in enumerate(shape))
    if not shape or prod(result) > LIMIT:
        return None
    return Node(
        "Pad",
        (source, vector(*pads), Constant((), dtype, fill=draw(st.sampled_from([0.0, 0.5, 2.0])))),
    ), result


def concat(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    shape = shapes[source]
    if not shape or 2 * prod(shape) > LIMIT:
        return None
    axis = draw(st.integers(0, len(shape) - 1))
    same = [other for other in range(len(shapes)) if shapes[other] == shape]
    others = [other for other in same if other != source]
    other = draw(st.sampled_from(others or same))
    result = (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :])
    return Node("Concat", (source, other), (("axis", axis),)), result


def join(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    """Concatenates with another value along some axis."""
    first = shapes[source]
    if not first:
        return None
    axis = draw(st.sampled_from([min(1, len(first) - 1), *range(len(first))]))
    others = [
        other
        for other, shape in enumerate(shapes)
        if other != source
        and len(shape) == len(first)
        and _without(shape, axis) == _without(first, axis)
    ]
    if not others:
        return None
    pieces = draw(st.permutations([source, draw(st.sampled_from(others))]))
    result = (*first[:axis], sum(shapes[piece][axis] for piece in pieces), *first[axis + 1 :])
    if prod(result) > LIMIT:
        return None
    return Node("Concat", tuple(pieces), (("axis", axis),)), result


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])


def gather(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    shape = shapes[source]
    if not shape:
        return None
    axis = draw(st.integers(0, len(shape) - 1))
    indices = draw(st.lists(st.integers(-shape[axis], shape[axis] - 1), min_size=1, max_size=3))
    result = (*shape[:axis], len(indices), *shape[axis + 1 :])
    if prod(result) > LIMIT:
        return None
    return Node("Gather", (source, vector(*indices)), (("axis", axis),)), result
