"""Templates of operators with windows along one, two or three spatial axes."""

from __future__ import annotations

from operator import gt

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from popgraph.support.shapes import Shape, prod, window_output
from popgraph.testing.specs import Constant, Node
from popgraph.testing.templates.frame import LIMIT, Step, constants, is_image


def square_convolution(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    """The most common convolution: window of size 3, the image keeps its size."""
    shape = shapes[source]
    if not is_image(shape):
        return None
    outputs, axes = draw(st.integers(1, 5)), len(shape) - 2
    weight = Constant((outputs, shape[1], *[3] * axes), dtype, seed=draw(st.integers(0, 3)))
    result = (shape[0], outputs, *shape[2:])
    if prod(result) > LIMIT:
        return None
    return Node("Conv", (source, weight), (("pads", (1,) * 2 * axes),)), result


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
    """Kernel, attributes, and spatial sizes of the result."""
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
    """Global average pooling."""
    shape = shapes[source]
    if not is_image(shape):
        return None
    return Node("GlobalAveragePool", (source,)), (*shape[:2], *[1] * (len(shape) - 2))


def batch_norm(draw: DrawFn, shapes: list[Shape], source: int, dtype: str) -> Step | None:
    shape = shapes[source]
    if not is_image(shape):
        return None
    channel = (shape[1],)
    seeds = [draw(st.integers(0, 3)) for _ in range(3)]
    scale, shift, mean = (Constant(channel, dtype, seed=seed) for seed in seeds)
    variance = Constant(channel, dtype, fill=draw(st.sampled_from([1.0, 0.25])))
    return Node("BatchNormalization", (source, scale, shift, mean, variance)), shape
