"""How are random networks drawn? As plain data, operator by operator, always well typed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import ge, gt
from typing import TypeAlias

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from popgraph.support import dtypes
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import Shape, broadcast, prod, reduced, window_output
from popgraph.testing.specs import Constant, Network, Node

LIMIT = 400
"""No value has more elements."""

Step: TypeAlias = tuple[Node, Shape]
"""A node and the shape of its result."""
Template: TypeAlias = Callable[[DrawFn, list[Shape], int, str], Step | None]
"""Draws a node that reads value `int`; None when the operator does not fit that value."""

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
"""The last two are what ONNX itself defines by others."""
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow")
REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")


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


def unary(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step:
    op = draw(st.sampled_from(UNARY))
    attributes = (("alpha", 0.25),) if op in ("LeakyRelu", "ThresholdedRelu") else ()
    return Node(op, (source,), attributes), shapes[source]


def binary(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    """With another value of a shape that fits, or with a constant."""
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
    """One value on both sides."""
    return Node(draw(st.sampled_from(BINARY)), (source, source)), shapes[source]


def expand(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    """Longer where it has one element, and along new axes before the first."""
    shape = shapes[source]
    longer = tuple(draw(st.integers(1, 3)) if size == 1 else size for size in shape)
    before = () if len(shape) > 3 else tuple(draw(st.lists(st.integers(1, 3), max_size=1)))
    result = (*before, *longer)
    return (Node("Expand", (source, vector(*result))), result) if prod(result) <= LIMIT else None


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


def bias(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step:
    """One number per channel (of images the second axis, else the last), added, say."""
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
    """A value that is known: of the shape of `source`, or of another."""
    shape = draw(st.just(shapes[source]) | st.sampled_from([(2, 3), (3, 2), (4, 4), (5,)]))
    return Node("Identity", (draw(constants(shape, dtype)),)), shape


def select(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step:
    """Where needs a condition; comparing with oneself shifted is a poor one, a constant is not."""
    shape = shapes[source]
    condition = Constant(
        shape,
        "bool",
        tuple(draw(st.lists(st.integers(0, 1), min_size=prod(shape), max_size=prod(shape)))),
    )
    return Node("Where", (condition, source, draw(constants((), dtype)))), shape


def reduction(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    shape = shapes[source]
    if not shape:
        return None
    axes = sorted(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    keepdims = draw(st.booleans())
    op = draw(st.sampled_from(REDUCTIONS))
    result = reduced(shape, axes, keepdims)
    flag = ("keepdims", int(keepdims))
    if op == "ReduceSum":  # from opset 13 on its axes are an operand
        return Node(op, (source, vector(*axes)), (flag,)), result
    return Node(op, (source, vector(*axes)), (flag,)), result


def matmul(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    shape = shapes[source]
    if len(shape) < 2:
        return None
    columns = draw(st.integers(1, 5) | st.just(shape[-2]))
    if prod(shape[:-1]) * columns > LIMIT:
        return None
    weight = Constant((shape[-1], columns), dtype, seed=draw(st.integers(0, 3)))
    return Node("MatMul", (source, weight)), (*shape[:-1], columns)


def gemm(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    shape = shapes[source]
    if len(shape) != 2:
        return None
    columns, transposed = draw(st.integers(1, 20)), draw(st.booleans())
    if max(shape) <= 20 and draw(st.booleans()):
        columns = draw(st.sampled_from(shape))
    inner = (columns, shape[1]) if transposed else (shape[1], columns)
    bias = Constant((columns,), dtype, seed=draw(st.integers(0, 3)))
    attributes = (("transB", int(transposed)), ("alpha", draw(st.sampled_from([1.0, 0.5]))))
    operands = (source, Constant(inner, dtype, seed=draw(st.integers(0, 3))), bias)
    return Node("Gemm", operands, attributes), (shape[0], columns)


def square_convolution(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    """The one that most networks of today are made of: 3 x 3, and the image keeps its size."""
    shape = shapes[source]
    if not is_image(shape):
        return None
    outputs, axes = draw(st.integers(1, 5)), len(shape) - 2
    weight = Constant((outputs, shape[1], *[3] * axes), dtype, seed=draw(st.integers(0, 3)))
    result = (shape[0], outputs, *shape[2:])
    if prod(result) > LIMIT:
        return None
    return Node("Conv", (source, weight), (("pads", (1,) * 2 * axes),)), result


def is_image(shape: Shape) -> bool:
    """Whether there may be a batch, channels, and axes along which a window slides."""
    return len(shape) in (3, 4, 5)


def convolution(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    shape = shapes[source]
    if not is_image(shape):
        return None
    channels = shape[1]
    groups = draw(st.sampled_from([g for g in (1, 2, channels) if channels % g == 0]))
    outputs = groups * draw(st.integers(1, 3))
    window = draw(windows(shape))
    if window is None:
        return None
    kernel, attributes, sizes = window
    weight = Constant((outputs, channels // groups, *kernel), dtype, seed=draw(st.integers(0, 3)))
    bias = draw(st.none() | constants((outputs,), dtype))
    operands = (source, weight) if bias is None else (source, weight, bias)
    result = (shape[0], outputs, *sizes)
    if prod(result) > LIMIT:
        return None
    return Node("Conv", operands, (*attributes, ("group", groups))), result


def pool(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    shape = shapes[source]
    if not is_image(shape):
        return None
    op = draw(st.sampled_from(["MaxPool", "AveragePool"]))
    window = draw(windows(shape, padding_below_kernel=True, dilation=op == "MaxPool"))
    if window is None:
        return None
    kernel, attributes, sizes = window
    return Node(op, (source,), (*attributes, ("kernel_shape", list(kernel)))), (*shape[:2], *sizes)


@st.composite
def windows(
    draw: DrawFn, shape: Shape, *, padding_below_kernel: bool = False, dilation: bool = True
) -> tuple[Shape, tuple[tuple[str, object], ...], Shape] | None:
    """Kernel, strides, dilations and pads along all axes, and the size of what comes out."""
    axes = shape[2:]
    kernel = tuple(draw(st.integers(1, 3)) for _ in axes)
    strides = [draw(st.integers(1, 2)) for _ in axes]
    dilations = [draw(st.integers(1, 2 if dilation else 1)) for _ in axes]
    highest = [size - 1 if padding_below_kernel else 2 for size in kernel]
    pads = [draw(st.integers(0, high)) for high in highest * 2]
    sizes = tuple(
        window_output(size, kernel[i], strides[i], dilations[i], pads[i], pads[i + len(axes)])
        for i, size in enumerate(axes)
    )
    alone = padding_below_kernel and any(map(gt, dilations, axes))
    if min(sizes) < 1 or alone:  # a window that sees nothing but padding has no maximum
        return None
    attributes: tuple[tuple[str, object], ...] = (("strides", strides), ("pads", pads))
    if dilation:
        attributes += (("dilations", dilations),)
    return kernel, attributes, sizes


def average(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    """One pixel per channel, of which there may be one."""
    shape = shapes[source]
    if not is_image(shape):
        return None
    return Node("GlobalAveragePool", (source,)), (*shape[:2], *[1] * (len(shape) - 2))


def earlier_sums(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    """What comes before each element: nothing along an axis of one, which is preferred."""
    shape = shapes[source]
    if not shape:
        return None
    thin = [axis for axis, size in enumerate(shape) if size == 1]
    axis = draw(st.sampled_from(thin or range(len(shape))))
    flags = (("exclusive", 1), ("reverse", draw(st.integers(0, 1))))
    return Node("CumSum", (source, Constant((), "i64", (axis,))), flags), shape


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


def same_again(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step:
    """The same value by another name."""
    shape = shapes[source]
    kinds = [
        Node("Identity", (source,)),
        Node("Reshape", (source, vector(*shape))),
        Node("Cast", (source,), (("to", dtypes.BY_NAME[dtype].onnx),)),
    ]
    return draw(st.sampled_from(kinds)), shape


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
    """As many elements of another, larger value as this one has, along every axis."""
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
    """One column, or one row, or one plane."""
    shape = shapes[source]
    if not shape:
        return None
    axis = draw(st.integers(0, len(shape) - 1))
    start = draw(st.just(0) | st.integers(0, shape[axis] - 1))
    operands = (source, vector(start), vector(start + 1), vector(axis))
    return Node("Slice", operands), (*shape[:axis], 1, *shape[axis + 1 :])


def square(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step:
    """A value with itself."""
    return Node("Mul", (source, source)), shapes[source]


def spread(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    """With an earlier value that is larger, along which it repeats."""
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
    """Beside another value along some axis: channels as in Inception, rows, steps of time."""
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


def softmax(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    shape = shapes[source]
    if not shape:
        return None
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    op = draw(st.sampled_from(["Softmax", "LogSoftmax"]))
    return Node(op, (source,), (("axis", axis),)), shape


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


def batch_norm(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    shape = shapes[source]
    if not is_image(shape):
        return None
    channel = (shape[1],)
    seeds = [draw(st.integers(0, 3)) for _ in range(3)]
    scale, shift, mean = (Constant(channel, dtype, seed=seed) for seed in seeds)
    variance = Constant(channel, dtype, fill=draw(st.sampled_from([1.0, 0.25])))
    return Node("BatchNormalization", (source, scale, shift, mean, variance)), shape


def layer_norm(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    shape = shapes[source]
    if not shape:
        return None
    scale = draw(constants(shape[-1:], dtype))
    return Node("LayerNormalization", (source, scale), (("axis", -1),)), shape


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
"""What stands behind each other in real models, and what passes look for."""


def chains(shape: Shape) -> SearchStrategy[Chain]:
    """One operator, or several that follow each other, for a value of this shape."""
    one = st.sampled_from(TEMPLATES).map(lambda template: (template,))
    several = st.sampled_from(CHAINS)
    images = st.sampled_from(IMAGE_CHAINS)
    return st.one_of(images, one, several) if is_image(shape) else st.one_of(several, one)


def networks(max_nodes: int = 6, dtype: str = "f32") -> SearchStrategy[Network]:
    """A small well-typed network; every value, inputs too, may be an output, or of no use."""
    return drafts(max_nodes, dtype).map(lambda draft: draft[0])


@st.composite
def drafts(draw: DrawFn, max_nodes: int, dtype: str) -> tuple[Network, list[Shape]]:
    """A network, and the shapes of its values."""
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
    shapes, nodes = list(inputs), list[Node]()
    wanted = draw(st.integers(1, max_nodes))
    for _ in range(wanted):
        if len(nodes) >= wanted:
            break
        if nodes and draw(st.integers(0, 3)) == 0:
            _append(nodes, shapes, twin(draw, nodes, shapes))
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
    outputs = draw(st.sets(st.integers(0, len(shapes) - 1), max_size=2))
    read = {operand for node in nodes for operand in node.operands if isinstance(operand, int)}
    unread = set(range(len(inputs), len(shapes))) - read
    outputs |= {number for number in sorted(unread) if draw(st.integers(0, 3))}
    return Network(tuple(inputs), tuple(nodes), dtype, tuple(sorted(outputs))), shapes


def _append(nodes: list[Node], shapes: list[Shape], step: Step | None) -> bool:
    """Whether there was something to append."""
    if step is not None:
        nodes.append(step[0])
        shapes.append(step[1])
    return step is not None


def twin(draw: DrawFn, nodes: list[Node], shapes: list[Shape]) -> Step:
    """An earlier node again: on another value, with its operands turned, or reading elsewhere."""
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
    """The operands of a slice of the same size that begins elsewhere."""
    source, *bounds = node.operands
    start, end, axis = (bound.values[0] for bound in bounds[:3])  # type: ignore[union-attr,index]
    begin = draw(st.integers(0, shape[axis] - (end - start)))
    return (source, vector(begin), vector(begin + end - start), *bounds[2:])


@st.composite
def training_networks(
    draw: DrawFn, max_nodes: int = 6, dtype: str = "f32", nll: bool = True
) -> Network:
    """
    A network that ends in a number, its loss, on which a weight has an influence.

    `nll`: some losses are PopART's negative log-likelihood, which ONNX cannot compute.
    Gradients are asked for at no value, at one or at all: who asks keeps values apart.
    """
    network, shapes = draw(drafts(max_nodes, dtype))
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
    """Probabilities, or their logarithms, and the loss of labels of which one may not count."""
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
