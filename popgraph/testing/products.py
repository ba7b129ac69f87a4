"""Strategy for matmuls that need panels, K chunks and register transposes."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from popgraph.testing.specs import Constant, Network, Node


@st.composite
def products(draw: DrawFn, dtype: str = "f32") -> Network:
    """
    A matmul with a weight, with more rows and terms than fit registers.

    Either operand may be transposed; a bias and an activation follow, or nothing.
    """
    rows, terms, columns = (draw(st.integers(1, 40)) for _ in range(3))
    nodes: list[Node] = []

    def add(op: str, *constants: Constant, **attributes: object) -> None:
        nodes.append(Node(op, (len(nodes), *constants), tuple(attributes.items())))

    transposed, across = draw(st.booleans()), draw(st.booleans())
    if transposed:
        add("Transpose", perm=[1, 0])
    if draw(st.booleans()):
        add("Relu")
    weight = (columns, terms) if across else (terms, columns)
    add("Gemm", Constant(weight, dtype, seed=draw(st.integers(0, 3))), transB=int(across))
    if draw(st.booleans()):
        add("Add", Constant((columns,), dtype, seed=draw(st.integers(0, 3))))
    if draw(st.booleans()):
        add("Tanh")
    start = (terms, rows) if transposed else (rows, terms)
    return Network((start,), tuple(nodes), dtype, (len(nodes),))
