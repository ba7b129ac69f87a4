"""Strategy for separable convolutions: pointwise and depthwise layers in sequence."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from popgraph.support.shapes import window_output
from popgraph.testing.specs import Constant, Network, Node


@st.composite
def separable_convolutions(draw: DrawFn, dtype: str = "f32") -> Network:
    """
    A dense convolution, a depthwise one, activations, and often a third convolution.

    The second one is sometimes dense, too. Channels mostly fill vectors. Windows, strides and pads
    vary, and the value between the first two is sometimes an output.
    """
    batch, inputs = draw(st.sampled_from([1, 1, 1, 2])), draw(st.integers(1, 4))
    channels = draw(st.sampled_from([32, 32, 48, 24, 12]))
    image = (draw(st.integers(4, 8)), draw(st.integers(4, 8)))
    nodes: list[Node] = []

    def add(op: str, *constants: Constant, **attributes: object) -> int:
        """Applies an operator to the last value; returns the number of the result."""
        operands: tuple[int | Constant | None, ...] = (len(nodes), *constants)
        nodes.append(Node(op, operands, tuple(attributes.items())))
        return len(nodes)

    def convolution(shape: tuple[int, ...], groups: int) -> None:
        nonlocal image
        kernel = shape[2:]
        strides = [draw(st.sampled_from([1, 1, 1, 2])) for _ in kernel]
        pads = [size // 2 for size in (*kernel, *kernel)]
        if draw(st.integers(0, 2)) == 0:
            pads = [draw(st.integers(0, size - 1)) for size in (*kernel, *kernel)]
        sizes = [
            window_output(size, kernel[at], strides[at], 1, pads[at], pads[at + 2])
            for at, size in enumerate(image)
        ]
        if min(sizes) < 1:
            strides, pads = [1, 1], [size - 1 for size in (*kernel, *kernel)]
            sizes = [size + kernel[at] - 1 for at, size in enumerate(image)]
        image = (sizes[0], sizes[1])
        weight = Constant(shape, dtype, seed=draw(st.integers(0, 3)))
        bias = Constant(shape[:1], dtype, seed=draw(st.integers(0, 3)))
        add("Conv", weight, bias, strides=strides, pads=pads, group=groups)
        if draw(st.booleans()):
            add("Relu")

    first, odd = draw(st.sampled_from([1, 1, 1, 2])), draw(st.sampled_from([3, 3, 5, 2]))
    start = (batch, inputs, *image)
    convolution((channels, inputs, first, first), 1)
    outputs = {len(nodes)} if draw(st.integers(0, 4)) == 0 else set()
    groups = draw(st.sampled_from([channels, channels, channels, 1]))
    convolution((channels, channels // groups, odd, odd), groups)
    if draw(st.integers(0, 2)) == 0:
        convolution((draw(st.integers(1, 8)), channels, 1, 1), 1)
    return Network((start,), tuple(nodes), dtype, tuple(sorted({*outputs, len(nodes)})))
