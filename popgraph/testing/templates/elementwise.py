"""Templates of elementwise operators, with operands of equal and of broadcast shapes."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from popgraph.support import dtypes
from popgraph.support.shapes import Shape, broadcast, prod
from popgraph.testing.specs import Constant, Node
from popgraph.testing.templates.frame import LIMIT, Step, constants, fits, is_image, smaller, vector

UNARY = (
    "Relu",
    "Neg",
    "Abs",
    "Tanh",
    "Sigmoid",
    "Identity",
    "Exp",
    "Sqrt",
    "Softplus",
    "LeakyRelu",
    "HardSwish",
    "ThresholdedRelu",
)
"""ONNX defines the last two as functions of other operators."""


BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow")


def unary(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step:
    op = draw(st.sampled_from(UNARY))
    attributes = (("alpha", 0.25),) if op in ("LeakyRelu", "ThresholdedRelu") else ()
    return Node(op, (source,), attributes), shapes[source]


def rectified(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step:
    """A value without negative elements."""
    return Node("Relu", (source,)), shapes[source]


def sign_changing(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step:
    """An operator that changes signs."""
    return Node(draw(st.sampled_from(["Neg", "Sin"])), (source,)), shapes[source]


def binary(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    """With another value of a compatible shape, or with a constant."""
    op = draw(st.sampled_from(BINARY))
    fitting = [other for other in range(len(shapes)) if fits(shapes[source], shapes[other])]
    if draw(st.booleans()):
        other = draw(st.sampled_from(fitting))
        return Node(op, (source, other)), broadcast(shapes[source], shapes[other])
    shape = draw(smaller(shapes[source]))
    operands: tuple[int | Constant, ...] = (source, draw(constants(shape, dtype)))
    if draw(st.booleans()):
        operands = operands[::-1]
    return Node(op, operands), shapes[source]


def twice(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step:
    """The same value as both operands."""
    return Node(draw(st.sampled_from(BINARY)), (source, source)), shapes[source]


def square(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step:
    """x * x: smooth, so that its gradient can be checked everywhere."""
    return Node("Mul", (source, source)), shapes[source]


def expand(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    """Broadcasts axes of size 1, and adds a leading axis."""
    shape = shapes[source]
    longer = tuple(draw(st.integers(1, 3)) if size == 1 else size for size in shape)
    before = () if len(shape) > 3 else tuple(draw(st.lists(st.integers(1, 3), max_size=1)))
    result = (*before, *longer)
    return (Node("Expand", (source, vector(*result))), result) if prod(result) <= LIMIT else None


def bias(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step:
    """A constant per channel (axis 1 of images, otherwise the last axis)."""
    shape = shapes[source]
    axis = 1 if is_image(shape) else len(shape) - 1
    kept = tuple(size if at == axis else 1 for at, size in enumerate(shape))
    op = draw(st.sampled_from(["Add", "Mul", "Sub", "PRelu"]))
    return Node(op, (source, draw(constants(kept, dtype)))), shape


def activation(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step:
    op = draw(st.sampled_from(["Relu", "Tanh", "Neg", "PRelu"]))
    slope = (Constant((), dtype, fill=0.25),) if op == "PRelu" else ()
    return Node(op, (source, *slope)), shapes[source]


def residual(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step:
    """With another value of the same shape, or a constant, on either side."""
    shape = shapes[source]
    same = [other for other in range(source) if shapes[other] == shape]
    others: SearchStrategy[int | Constant] = (
        st.sampled_from(same) if same else constants(shape, dtype)
    )
    operands = draw(st.permutations([source, draw(others)]))
    return Node(draw(st.sampled_from(["Sub", "Add", "Mul"])), tuple(operands)), shape


def literal(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step:
    """A constant: of the shape of `source`, or of another."""
    shape = draw(st.just(shapes[source]) | st.sampled_from([(2, 3), (3, 2), (4, 4), (5,)]))
    return Node("Identity", (draw(constants(shape, dtype)),)), shape


def select(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step:
    """A Where with a constant condition."""
    shape = shapes[source]
    condition = Constant(
        shape,
        "bool",
        tuple(draw(st.lists(st.integers(0, 1), min_size=prod(shape), max_size=prod(shape)))),
    )
    return Node("Where", (condition, source, draw(constants((), dtype)))), shape


def same_again(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step:
    """A value unchanged, by Identity, Reshape or Cast."""
    shape = shapes[source]
    kinds = [
        Node("Identity", (source,)),
        Node("Reshape", (source, vector(*shape))),
        Node("Cast", (source,), (("to", dtypes.BY_NAME[dtype].onnx),)),
    ]
    return draw(st.sampled_from(kinds)), shape


def spread(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    """With an earlier, larger value, to which it is broadcast."""
    shape = shapes[source]
    larger = [
        other
        for other in range(source)
        if shapes[other] != shape
        and fits(shapes[other], shape)
        and broadcast(shapes[other], shape) == shapes[other]
    ]
    if not larger:
        return None
    other = draw(st.sampled_from(larger[-2:]))
    operands = draw(st.permutations([source, other]))
    return Node(draw(st.sampled_from(["Add", "Mul", "Sub"])), tuple(operands)), shapes[other]
