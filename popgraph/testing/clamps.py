"""Strategy for integers near the limits of their types: clamped, or compared."""

from __future__ import annotations

import ml_dtypes
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from popgraph.support.dtypes import BY_NAME
from popgraph.testing.specs import Constant, Network, Node

TYPES = ("i8", "u8", "i16", "u16")


@st.composite
def clamps(draw: DrawFn, dtype: str = "f32") -> Network:
    """Max, Min or a comparison of integers with a constant at a limit of their type."""
    name = draw(st.sampled_from(TYPES))
    ends = ml_dtypes.iinfo(BY_NAME[name].numpy)
    least, greatest = int(ends.min), int(ends.max)
    limit = draw(st.sampled_from((least, least + 1, greatest - 1, greatest)))
    nodes: list[Node] = []

    def add(op: str, *operands: int | Constant, **attributes: object) -> int:
        nodes.append(Node(op, operands, tuple(attributes.items())))
        return len(nodes)

    def number(value: int) -> Constant:
        return Constant((), dtype, fill=float(value))

    integer = BY_NAME[name].onnx
    x = add("Cast", add("Mul", 0, number(greatest)), to=integer)
    pair = draw(st.permutations((x, add("Cast", number(limit), to=integer))))
    op = draw(st.sampled_from(("Max", "Min", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")))
    add("Cast", add(op, *pair), to=BY_NAME[dtype].onnx)
    return Network(((draw(st.integers(1, 3)),),), tuple(nodes), dtype)
