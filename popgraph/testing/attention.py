"""Strategy for attention: two matmuls with a softmax between them, and variations."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from popgraph.testing.specs import Constant, Network, Node


@st.composite
def attentions(draw: DrawFn, dtype: str = "f32") -> Network:
    """
    softmax(q k * scale + mask) v for one or two leading dimensions; heads may be merged.

    Exporters apply the scale to queries, keys or both, and so do some of these networks. Keys and
    values often fill vectors, and the scores are sometimes an output.
    """
    batch = draw(st.sampled_from([(1,), (2,), (1, 2)]))
    rows, width = draw(st.integers(2, 5)), draw(st.integers(2, 3))
    keys = draw(st.sampled_from([4, 8, 5]))
    values = draw(st.sampled_from([4, 4, 5]))
    inputs = ((*batch, rows, width), (*batch, width, keys), (*batch, keys, values))
    nodes = list[Node]()
    factors = [0, 1]
    for number in factors:
        if draw(st.integers(0, 2)) == 0:
            scale = Constant((1,), dtype, fill=draw(st.sampled_from([0.25, -3.0])))
            nodes.append(Node("Mul", (number, scale)))
            factors[number] = len(inputs) + len(nodes) - 1
    nodes.append(Node("MatMul", tuple(factors)))
    if draw(st.booleans()):
        nodes.append(Node("Mul", (len(inputs) + len(nodes) - 1, Constant((), dtype, fill=0.5))))
    if draw(st.booleans()):
        nodes.append(Node("Add", (len(inputs) + len(nodes) - 1, Constant((keys,), dtype, seed=1))))
    scores = len(inputs) + len(nodes) - 1
    nodes.append(Node("Softmax", (scores,), (("axis", -1),)))
    nodes.append(Node("MatMul", (scores + 1, 2)))
    if len(batch) == 2 and draw(st.booleans()):
        nodes.append(Node("Transpose", (scores + 2,), (("perm", (0, 2, 1, 3)),)))
    outputs = {len(inputs) + len(nodes) - 1}
    if draw(st.integers(0, 4)) == 0:
        outputs.add(scores)
    return Network(inputs, tuple(nodes), dtype, tuple(sorted(outputs)))
