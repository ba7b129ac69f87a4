"""Strategies for convolutions: trained, dilated, separable, and volumes."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from popgraph.support.shapes import window_output
from popgraph.testing.specs import Constant, Network, Node


@st.composite
def learning_convolutions(draw: DrawFn, dtype: str = "f32") -> Network:
    """
    A 3x3 convolution of computed images, an activation, and a weighted loss.

    Channels mostly fill vectors. Images cover several Winograd tiles, seldom an integer number of
    them. A residual is added sometimes.
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


@st.composite
def wide_convolutions(draw: DrawFn, dtype: str = "f32") -> Network:
    """
    A convolution whose dilated window is about as wide as its input, or wider.

    Some taps then read only padding, for all results or for those at one end.
    """
    rank, groups = draw(st.sampled_from([1, 2, 2])), draw(st.sampled_from([1, 1, 2]))
    before, behind = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2))
    space = [draw(st.integers(3, 9)) for _ in range(rank)]
    kernel = [draw(st.integers(1, 4)) for _ in space]
    dilations = [draw(st.integers(1, 5)) for _ in space]
    reach = [(taps - 1) * dilation for taps, dilation in zip(kernel, dilations, strict=True)]
    pads = [draw(st.integers(width // 2, width + 1)) for width in (*reach, *reach)]
    strides = [draw(st.sampled_from([1, 1, 2, 3])) for _ in space]
    sizes = [
        window_output(size, kernel[at], strides[at], dilations[at], pads[at], pads[at + rank])
        for at, size in enumerate(space)
    ]
    if min(sizes) < 1:
        pads = [*reach, *reach]
    weight = Constant((behind, before // groups, *kernel), dtype, seed=draw(st.integers(0, 3)))
    options = {"dilations": dilations, "strides": strides, "pads": pads, "group": groups}
    node = Node("Conv", (0, weight), tuple(options.items()))
    return Network(((draw(st.integers(1, 2)), before, *space),), (node,), dtype)


@st.composite
def volumes(draw: DrawFn, dtype: str = "f32") -> Network:
    """A convolution over three spatial axes, mostly with a 3x3 window over the last two."""
    before, behind, taps = (draw(st.integers(1, 3)) for _ in range(3))
    space = [draw(st.integers(2, 5)) for _ in range(3)]
    window = [taps, *draw(st.sampled_from([(3, 3), (3, 3), (3, 3), (1, 3)]))]
    strides = [draw(st.sampled_from([1, 1, 2])), *draw(st.sampled_from([(1, 1), (1, 1), (1, 2)]))]
    dilations = [draw(st.sampled_from([1, 1, 2])), 1, 1]
    reach = [(size - 1) * step for size, step in zip(window, dilations, strict=True)]
    pads = [draw(st.integers(max(0, reach[at % 3] - space[at % 3] + 1), 3)) for at in range(6)]
    weight = Constant((behind, before, *window), dtype, seed=draw(st.integers(0, 3)))
    options = {"dilations": dilations, "strides": strides, "pads": pads}
    node = Node("Conv", (0, weight), tuple(options.items()))
    return Network(((draw(st.integers(1, 2)), before, *space),), (node,), dtype)


@st.composite
def separable_convolutions(draw: DrawFn, dtype: str = "f32") -> Network:
    """
    A dense convolution, a depthwise one, activations, and often a third convolution.

    The second one is sometimes dense, too. Channels mostly fill vectors. Windows, strides and pads
    vary, and the value between the first two is sometimes an output.
    """
    batch, inputs = draw(st.sampled_from([1, 1, 1, 2])), draw(st.integers(1, 4))
    channels = draw(st.sampled_from([32, 32, 48, 24, 12]))
    # 9 or 15 rows are three or five steps of a line buffer; fewer rows are two at most.
    image = (draw(st.sampled_from([4, 5, 6, 7, 8, 9, 15])), draw(st.integers(4, 8)))
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
