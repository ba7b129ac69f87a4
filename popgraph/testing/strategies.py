"""Strategies for random well-typed networks, for inference and for training."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from popgraph.support.shapes import Shape, prod
from popgraph.testing.specs import Constant, Network, Node
from popgraph.testing.templates.elementwise import (
    BINARY,
    activation,
    bias,
    binary,
    expand,
    literal,
    rectified,
    residual,
    same_again,
    select,
    sign_changing,
    spread,
    square,
    twice,
    unary,
)
from popgraph.testing.templates.frame import Step, Template, constants, is_image, smaller, vector
from popgraph.testing.templates.images import (
    average,
    batch_norm,
    convolution,
    pool,
    square_convolution,
)
from popgraph.testing.templates.movement_templates import (
    concat,
    gather,
    join,
    pad,
    part_of_another,
    reshape,
    single,
    transpose,
    window_slice,
)
from popgraph.testing.templates.sums import (
    earlier_sums,
    gemm,
    layer_norm,
    matmul,
    reduction,
    softmax,
)

TEMPLATES: tuple[Template, ...] = (
    unary,
    binary,
    select,
    reduction,
    matmul,
    gemm,
    convolution,
    square_convolution,
    pool,
    average,
    earlier_sums,
    transpose,
    reshape,
    window_slice,
    pad,
    concat,
    join,
    part_of_another,
    softmax,
    gather,
    batch_norm,
    layer_norm,
    literal,
    twice,
    expand,
)

Draft: TypeAlias = tuple[Network, list[Shape]]
"""A network, and the shapes of its values."""

Chain: TypeAlias = tuple[Template, ...]
IMAGE_CHAINS: tuple[Chain, ...] = (
    (square_convolution, activation),
    (square_convolution, residual, activation),
    (square_convolution, square_convolution),
    (square_convolution, pool),
    (square_convolution, activation, pool),
    (convolution, batch_norm, activation),
    (convolution, bias, bias, activation),
    (convolution, residual, activation),
    (pool, unary),
    (average, square_convolution, square_convolution),
    (square_convolution, reshape, residual),
    (square_convolution, activation, square_convolution, join, activation),
    (unary, square_convolution, join, activation),
    (unary, concat, square_convolution, activation),
    (unary, concat, pool, activation),
    (unary, concat, pad, unary),
    (unary, window_slice, convolution),
    (pool, activation),
    (rectified, pool, sign_changing, pool),
)
CHAINS: tuple[Chain, ...] = (
    (gemm, activation),
    (gemm, gemm, activation),
    (gemm, activation, concat, activation),
    (gemm, residual),
    (gemm, transpose, activation),
    (gemm, transpose, residual),
    (gemm, reshape, residual),
    (window_slice, matmul),
    (window_slice, binary),
    (matmul, single, square, spread),
    (matmul, single, activation, spread),
    (transpose, residual, reduction),
    (activation, residual),
    (same_again, residual),
    (matmul, bias, activation),
    (matmul, residual),
    (matmul, transpose, residual),
    (transpose, transpose),
    (transpose, matmul),
    (earlier_sums, matmul),
    (transpose, reshape, transpose, unary),
    (pad, window_slice, residual),
    (literal, transpose, residual),
    (literal, window_slice, unary),
    (literal, matmul, bias),
    (softmax, reduction),
    (unary, reduction, unary),
    (gemm, reduction, part_of_another, residual),
    (matmul, window_slice, binary, binary),
    (expand, twice, unary),
    (reduction, expand, twice),
    (twice, reduction),
)
"""Operator sequences of real models, and patterns that passes match."""


def chains(shape: Shape) -> SearchStrategy[Chain]:
    """One operator, or a sequence of operators, for a value of this shape."""
    one = st.sampled_from(TEMPLATES).map(lambda template: (template,))
    several = st.sampled_from(CHAINS)
    images = st.sampled_from(IMAGE_CHAINS)
    return st.one_of(images, one, several) if is_image(shape) else st.one_of(several, one)


def networks(max_nodes: int = 6, dtype: str = "f32") -> SearchStrategy[Network]:
    """A small well-typed network; any value, inputs included, may be an output or unused."""
    return drafts(max_nodes, dtype).map(lambda draft: draft[0])


@st.composite
def drafts(draw: DrawFn, max_nodes: int, dtype: str) -> Draft:
    dims = st.integers(1, 4)
    image = st.tuples(st.integers(1, 2), dims, st.integers(2, 6), st.integers(2, 6))
    shape_strategies = [
        image,
        st.tuples(),
        st.tuples(st.integers(1, 20)),
        st.tuples(dims, st.integers(1, 18)),
        st.tuples(st.integers(4, 20), st.integers(4, 18)),
        st.integers(2, 9).map(lambda size: (size, size)),
        st.tuples(st.integers(1, 3), st.integers(2, 5), st.integers(2, 8)),
        st.just((3, 3, 3)),
        st.tuples(st.just(1), st.integers(1, 2), *[st.integers(2, 4)] * 3),
        image,
        image,
        image,
    ]
    inputs = draw(st.lists(st.one_of(*shape_strategies), min_size=1, max_size=2))
    shapes = list(inputs)
    nodes = random_nodes(draw, shapes, draw(st.integers(1, max_nodes)), dtype)
    outputs = draw(st.sets(st.integers(0, len(shapes) - 1), max_size=2))
    read = {operand for node in nodes for operand in node.operands if isinstance(operand, int)}
    unread = set(range(len(inputs), len(shapes))) - read
    outputs |= {number for number in sorted(unread) if draw(st.integers(0, 3))}
    return Network(tuple(inputs), tuple(nodes), dtype, tuple(sorted(outputs))), shapes


def random_nodes(draw: DrawFn, shapes: list[Shape], wanted: int, dtype: str) -> list[Node]:
    """Draws about `wanted` nodes on values of these shapes; appends the shapes of their results."""
    nodes = list[Node]()
    for _ in range(wanted):
        if len(nodes) >= wanted:
            break
        if nodes and draw(st.integers(0, 3)) == 0:
            _append(nodes, shapes, repeated_node(draw, nodes, shapes))
            continue
        first = draw(st.just(len(shapes) - 1) | st.integers(0, len(shapes) - 1))
        chain = draw(chains(shapes[first]))
        for _ in range(draw(st.sampled_from([1, 1, 2]))):  # siblings read the same value
            source = first
            for template in chain:
                if _append(nodes, shapes, template(draw, shapes, source, dtype)):
                    source = len(shapes) - 1
    if not nodes:
        _append(nodes, shapes, (Node("Relu", (0,)), shapes[0]))
    return nodes


def _append(nodes: list[Node], shapes: list[Shape], step: Step | None) -> bool:
    """Appends a node; False if there is none."""
    if step is not None:
        nodes.append(step[0])
        shapes.append(step[1])
    return step is not None


def repeated_node(draw: DrawFn, nodes: list[Node], shapes: list[Shape]) -> Step:
    """Repeats an earlier node: on another value, with swapped operands, or with another offset."""
    number = draw(st.just(len(nodes) - 1) | st.integers(0, len(nodes) - 1))
    node, first = nodes[number], nodes[number].operands[0]
    shape = shapes[len(shapes) - len(nodes) + number]
    if node.op in BINARY and len(set(_shapes_of(node, shapes))) == 1 and draw(st.booleans()):
        return replace(node, operands=node.operands[::-1]), shape
    if not isinstance(first, int):
        return node, shape
    if node.op == "Slice" and draw(st.booleans()):
        return replace(node, operands=_shifted(draw, node, shapes[first])), shape
    same = [other for other in range(len(shapes)) if shapes[other] == shapes[first]]
    return replace(node, operands=(draw(st.sampled_from(same)), *node.operands[1:])), shape


def _shapes_of(node: Node, shapes: list[Shape]) -> list[Shape]:
    return [
        shapes[operand] if isinstance(operand, int) else operand.shape
        for operand in node.operands
        if operand is not None
    ]


def _shifted(draw: DrawFn, node: Node, shape: Shape) -> tuple[int | Constant | None, ...]:
    """The operands of a slice of the same size with another offset."""
    source, *bounds = node.operands
    starts, ends, axes = (bound.values or () for bound in bounds[:3])  # type: ignore[union-attr]
    sizes = [end - start for start, end in zip(starts, ends, strict=True)]
    begins = [
        draw(st.integers(0, shape[axis] - size)) for axis, size in zip(axes, sizes, strict=True)
    ]
    after = [begin + size for begin, size in zip(begins, sizes, strict=True)]
    return (source, vector(*begins), vector(*after), *bounds[2:])


def training_networks(
    max_nodes: int = 6, dtype: str = "f32", nll: bool = True
) -> SearchStrategy[Network]:
    """
    A network that ends in a scalar loss, which depends on a weight.

    `nll`: some losses are PopART's negative log-likelihood, which ONNX cannot compute. Gradients of
    no value, of one or of all are requested; a value with a requested gradient is kept.
    """
    return trained(drafts(max_nodes, dtype), dtype, nll)


@st.composite
def trained(draw: DrawFn, networks: SearchStrategy[Draft], dtype: str, nll: bool) -> Network:
    """Adds a weight, a loss, and requested gradients to networks."""
    network, shapes = draw(networks)
    nodes = list(network.nodes)
    weight = draw(constants(draw(smaller(shapes[-1])), dtype))
    _append(nodes, shapes, (Node("Mul", (len(shapes) - 1, weight)), shapes[-1]))
    if nll and len(shapes[-1]) >= 2 and draw(st.booleans()):
        for step in classification(draw, shapes[-1], len(shapes) - 1):
            _append(nodes, shapes, step)
    else:
        op = draw(st.sampled_from(["ReduceMean", "ReduceSum"]))
        _append(nodes, shapes, (Node(op, (len(shapes) - 1,), (("keepdims", 0),)), ()))
    whole = replace(network, nodes=tuple(nodes))
    read = whole.read_by_last()
    asked = draw(st.just(()) | st.sampled_from(read).map(lambda one: (one,)) | st.just(read))
    return replace(whole, gradients=asked)


def classification(draw: DrawFn, shape: Shape, source: int) -> list[Step]:
    """(Log) softmax, and a loss whose labels may include an ignored one."""
    axis = draw(st.sampled_from([-1, -1, -1, 0]))
    logarithms, classes = draw(st.booleans()), shape[-1]
    count = prod(shape[:-1])
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=count, max_size=count))
    attributes: tuple[tuple[str, object], ...] = (
        ("reduction", draw(st.sampled_from(["Mean", "Sum"]))),
        ("inputIsLogProbability", int(logarithms)),
    )
    if draw(st.booleans()):
        attributes += (("ignoreIndex", draw(st.integers(0, min(2, classes - 1)))),)
    softmax_op = "LogSoftmax" if logarithms else "Softmax"
    operands = (source + 1, Constant(shape[:-1], "i64", tuple(labels)))
    loss = Node("Nll", operands, attributes, "ai.graphcore", ())
    return [(Node(softmax_op, (source,), (("axis", axis),)), shape), (loss, ())]
