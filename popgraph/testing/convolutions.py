"""Random convolutions whose weights learn, over images of many 3x3 windows."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from popgraph.testing.specs import Constant, Network, Node


@st.composite
def learning_convolutions(draw: DrawFn, dtype: str = "f32") -> Network:
    """
    A 3x3 convolution of computed images, an activation, and a loss that weighs what it gives.

    Channels mostly fill vectors. Images hold several of Winograd's tiles, but seldom a whole
    number of them. A residual is added sometimes.
    """
    before, behind = (draw(st.sampled_from([4, 4, 8, 5, 3])) for _ in range(2))
    height, width = (draw(st.sampled_from([5, 3, 6, 7, 4])) for _ in range(2))
    activation = st.sampled_from(["Relu", "Tanh"])
    nodes = [Node(draw(activation), (0,))]

    def add(op: str, *operands: int | Constant, **attributes: object) -> None:
        nodes.append(Node(op, (len(nodes), *operands), tuple(attributes.items())))

    def weight(*shape: int) -> Constant:
        return Constant(shape, dtype, seed=draw(st.integers(0, 3)))

    add("Conv", weight(behind, before, 3, 3), pads=[1, 1, 1, 1])
    add(draw(activation))
    if before == behind and draw(st.booleans()):
        add("Add", 1)
    add("Mul", weight(2, behind, height, width))
    add(draw(st.sampled_from(["ReduceMean", "ReduceSum"])), keepdims=0)
    return Network(((2, before, height, width),), tuple(nodes), dtype)
