"""How are random networks drawn? As plain data, operator by operator, always well typed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import Shape, broadcast, prod, reduced, window_output
from popgraph.testing.specs import Constant, Network, Node

LIMIT = 256
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
)
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
    return Node(op, (source,)), shapes[source]


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
    columns = draw(st.integers(1, 5))
    weight = Constant((shape[-1], columns), dtype, seed=draw(st.integers(0, 3)))
    return Node("MatMul", (source, weight)), (*shape[:-1], columns)


def gemm(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    shape = shapes[source]
    if len(shape) != 2:
        return None
    columns, transposed = draw(st.integers(1, 20)), draw(st.booleans())
    inner = (columns, shape[1]) if transposed else (shape[1], columns)
    bias = Constant((columns,), dtype, seed=draw(st.integers(0, 3)))
    attributes = (("transB", int(transposed)), ("alpha", draw(st.sampled_from([1.0, 0.5]))))
    operands = (source, Constant(inner, dtype, seed=draw(st.integers(0, 3))), bias)
    return Node("Gemm", operands, attributes), (shape[0], columns)


def convolution(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    shape = shapes[source]
    if len(shape) != 4:
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
    if len(shape) != 4:
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
    """Kernel, strides, dilations and pads along two axes, and the size of what comes out."""
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
    if min(sizes) < 1:
        return None
    attributes: tuple[tuple[str, object], ...] = (("strides", strides), ("pads", pads))
    if dilation:
        attributes += (("dilations", dilations),)
    return kernel, attributes, sizes


def transpose(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step:
    shape = shapes[source]
    perm = draw(st.permutations(range(len(shape))))
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
    start = draw(st.integers(0, shape[axis] - 1))
    end = draw(st.integers(start + 1, shape[axis]))
    step = draw(st.integers(1, 2))
    size = -(-(end - start) // step)
    operands = (source, vector(start), vector(end), vector(axis), vector(step))
    return Node("Slice", operands), (*shape[:axis], size, *shape[axis + 1 :])


def pad(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    shape = shapes[source]
    pads = [draw(st.integers(0, 1)) for _ in range(2 * len(shape))]
    result = tuple(d + pads[i] + pads[i + len(shape)] for i, d in enumerate(shape))
    if not shape or prod(result) > LIMIT:
        return None
    return Node("Pad", (source, vector(*pads), Constant((), dtype, fill=0.5))), result


def concat(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    shape = shapes[source]
    if not shape or 2 * prod(shape) > LIMIT:
        return None
    axis = draw(st.integers(0, len(shape) - 1))
    same = [other for other in range(len(shapes)) if shapes[other] == shape]
    other = draw(st.sampled_from(same))
    result = (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :])
    return Node("Concat", (source, other), (("axis", axis),)), result


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


def normalization(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    shape = shapes[source]
    if not shape:
        return None
    if len(shape) == 4 and draw(st.booleans()):
        channel = (shape[1],)
        seeds = [draw(st.integers(0, 3)) for _ in range(3)]
        scale, bias, mean = (Constant(channel, dtype, seed=seed) for seed in seeds)
        variance = Constant(channel, dtype, fill=draw(st.sampled_from([1.0, 0.25])))
        return Node("BatchNormalization", (source, scale, bias, mean, variance)), shape
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
    pool,
    transpose,
    reshape,
    window_slice,
    pad,
    concat,
    softmax,
    gather,
    normalization,
)


@st.composite
def networks(draw: DrawFn, max_nodes: int = 6, dtype: str = "f32") -> Network:
    """A small well-typed network, every inner value a possible output."""
    dims = st.integers(1, 4)
    image = st.tuples(st.integers(1, 2), dims, st.integers(2, 6), st.integers(2, 6))
    shape_strategies = [
        image,
        st.tuples(),
        st.tuples(st.integers(1, 20)),
        st.tuples(dims, st.integers(1, 18)),
        image,
    ]
    inputs = draw(st.lists(st.one_of(*shape_strategies), min_size=1, max_size=2))
    shapes = list(inputs)
    nodes: list[Node] = []
    for _ in range(draw(st.integers(1, max_nodes))):
        template = draw(st.sampled_from(TEMPLATES))
        source = draw(st.just(len(shapes) - 1) | st.integers(0, len(shapes) - 1))
        step = template(draw, shapes, source, dtype)
        if step is not None:
            nodes.append(step[0])
            shapes.append(step[1])
    if not nodes:
        nodes.append(Node("Relu", (0,)))
        shapes.append(shapes[0])
    outputs = draw(st.sets(st.integers(len(inputs), len(shapes) - 1), max_size=2))
    return Network(tuple(inputs), tuple(nodes), dtype, outputs=tuple(sorted(outputs)))
