"""Strategy for products of whole numbers, whose sums are as large as they can be."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from popgraph.support.dtypes import BY_NAME
from popgraph.support.shapes import Shape
from popgraph.testing.specs import Constant, Network, Node


@st.composite
def whole_products(draw: DrawFn, dtype: str = "f32") -> Network:
    """
    One product or convolution of the two inputs, as integers of all sizes.

    Sums are short, or so long that those of bytes pass 2^24. Integers wrap: few are small.
    """
    nodes: list[Node] = []
    spread = Constant((), dtype, fill=draw(st.sampled_from([3.0, 1237.0])))

    def add(op: str, *operands: int | Constant | None, **attributes: object) -> int:
        nodes.append(Node(op, operands, tuple(attributes.items())))
        return len(nodes) + 1

    def whole(number: int, *names: str) -> int:
        name = draw(st.sampled_from(names))
        return add("Cast", add("Mul", number, spread), to=BY_NAME[name].onnx)

    terms = draw(st.integers(1, 20) | st.sampled_from([515, 2050]))
    rows, columns, window = (draw(st.integers(1, 3)) for _ in range(3))
    if draw(st.booleans()):
        groups = draw(st.integers(1, 2))
        shapes: tuple[Shape, Shape] = (1, terms * groups, 3), (columns * groups, terms, window)
        product = add("ConvInteger", whole(0, "u8", "i8"), whole(1, "u8", "i8"), group=groups)
    else:
        shapes = (rows, terms), (terms, columns)
        kinds = ("i32", "i16", "i8", "u8")
        lhs, rhs = (add("Cast", whole(number, *kinds), to=6) for number in (0, 1))
        product = add("MatMul", lhs, rhs)
    add("Cast", product, to=BY_NAME[dtype].onnx)
    return Network(shapes, tuple(nodes), dtype)
