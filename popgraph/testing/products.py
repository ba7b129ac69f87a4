"""Strategies for matmuls: large, integer, quantized and narrow ones."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from popgraph.support.dtypes import BY_NAME
from popgraph.support.shapes import Shape
from popgraph.testing.specs import Constant, Network, Node


@st.composite
def integer_products(draw: DrawFn, dtype: str = "f32") -> Network:
    """
    An integer matmul or convolution of the two inputs.

    Sums are short, or long enough for sums of 8-bit products to exceed 2^24. Values wrap, so few
    are small.
    """
    nodes: list[Node] = []
    spread = Constant((), dtype, fill=draw(st.sampled_from([3.0, 1237.0])))

    def add(op: str, *operands: int | Constant | None, **attributes: object) -> int:
        nodes.append(Node(op, operands, tuple(attributes.items())))
        return len(nodes) + 1

    def whole(number: int, *names: str) -> int:
        name = draw(st.sampled_from(names))
        return add("Cast", add("Mul", number, spread), to=BY_NAME[name].onnx)

    terms = draw(st.integers(1, 20) | st.sampled_from([515, 2050]))
    rows, columns, window = (draw(st.integers(1, 3)) for _ in range(3))
    if draw(st.booleans()):
        groups = draw(st.integers(1, 2))
        shapes: tuple[Shape, Shape] = (1, terms * groups, 3), (columns * groups, terms, window)
        product = add("ConvInteger", whole(0, "u8", "i8"), whole(1, "u8", "i8"), group=groups)
    else:
        shapes = (rows, terms), (terms, columns)
        kinds = ("i32", "i16", "i8", "u8")
        lhs, rhs = (add("Cast", whole(number, *kinds), to=6) for number in (0, 1))
        product = add("MatMul", lhs, rhs)
    add("Cast", product, to=BY_NAME[dtype].onnx)
    return Network(shapes, tuple(nodes), dtype)


@st.composite
def quantized_products(draw: DrawFn, dtype: str = "f32") -> Network:
    """
    A quantized matmul or convolution (dequantize, compute, requantize).

    Scales and zero points are per tensor or per channel. Weights may be transposed, and a bias may
    be added. The sums may be rectified, and are quantized. Values are such that all products are
    exact.
    """
    nodes: list[Node] = []

    def add(op: str, *operands: int | Constant | None, **attributes: object) -> int:
        nodes.append(Node(op, operands, tuple(attributes.items())))
        return len(nodes)

    def dequantized(value: int | Constant, channels: int, axis: int) -> int:
        """
        Quantizes to 8 bits and dequantizes, with one scale, or one for each channel.
        """
        kind = BY_NAME[draw(st.sampled_from(["u8", "i8"]))].onnx
        zeros = tuple(draw(st.integers(0, 5)) for _ in range(channels))
        scales = tuple(draw(st.sampled_from([1, 2, 4])) for _ in range(channels))
        shape = (channels,) if channels > 1 else ()
        scale = Constant(shape, "f32", values=scales)
        zero = add("Cast", Constant(shape, "i64", values=zeros), to=kind)
        whole = add("QuantizeLinear", value, scale, zero, axis=axis)
        return add("DequantizeLinear", whole, scale, zero, axis=axis)

    terms, columns, window = (
        draw(st.integers(6, 20)),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
    )
    is_conv, each = draw(st.booleans()), draw(st.booleans())
    x = add("Cast", add("Mul", 0, Constant((), dtype, fill=7.0)), to=BY_NAME["f32"].onnx)
    lhs = dequantized(x, 1, 0)
    channels = columns if each else 1
    if is_conv:
        shape: Shape = (1, terms, 4)
        weights = Constant((columns, terms, window), "f32", seed=draw(st.integers(0, 9)))
        rhs = dequantized(add("Mul", weights, Constant((), "f32", fill=40.0)), channels, 0)
        pad = draw(st.integers(0, 1))
        product = add("Conv", lhs, rhs, pads=(pad, pad))
    else:
        shape, turned = (2, terms), draw(st.booleans())
        sizes = (columns, terms) if turned else (terms, columns)
        weights = Constant(sizes, "f32", seed=draw(st.integers(0, 9)))
        rhs = dequantized(
            add("Mul", weights, Constant((), "f32", fill=40.0)), channels, int(not turned)
        )
        product = add("MatMul", lhs, add("Transpose", rhs, perm=(1, 0)) if turned else rhs)
    if draw(st.booleans()):
        product = add("Add", product, Constant((), "f32", fill=3.0))
    if draw(st.booleans()):
        product = add("Relu", product)
    add("Cast", dequantized(product, 1, 0), to=BY_NAME[dtype].onnx)
    return Network((shape,), tuple(nodes), dtype)


@st.composite
def half_products(draw: DrawFn, dtype: str = "f32", factors: str = "bf16") -> Network:
    """
    A matmul or convolution of the two inputs, rounded to integers: sums are exact.

    Some are large enough for packed operands, which pay only if many products share them.
    """
    nodes: list[Node] = []

    def add(op: str, *operands: int | Constant | None, **attributes: object) -> int:
        nodes.append(Node(op, operands, tuple(attributes.items())))
        return len(nodes) + 1

    def half(value: int) -> int:
        number = add("Round", add("Mul", value, Constant((), dtype, fill=7.0)))
        return add("Cast", number, to=BY_NAME[factors].onnx)

    terms, window = draw(st.integers(1, 9)), draw(st.integers(1, 3))
    rows, columns = (draw(st.sampled_from([2, 7, 10])) for _ in range(2))
    if draw(st.booleans()):
        groups, is_transposed = draw(st.integers(1, 2)), draw(st.booleans())
        weight = (terms * groups, columns) if is_transposed else (columns * groups, terms)
        shapes: tuple[Shape, Shape] = (1, terms * groups, 11), (*weight, window)
        pad, stride = draw(st.integers(0, 1)), draw(st.integers(1, 2))
        options = {"group": groups, "pads": (pad, pad), "strides": (stride,)}
        operator = "ConvTranspose" if is_transposed else "Conv"
        product = add(operator, half(0), half(1), **options)
    elif draw(st.booleans()):
        shapes = (rows, terms), (columns, terms)
        product = add("MatMul", half(0), add("Transpose", half(1), perm=(1, 0)))
    else:
        shapes = (rows, terms), (terms, columns)
        product = add("MatMul", half(0), half(1))
    add("Cast", product, to=BY_NAME[dtype].onnx)
    return Network(shapes, tuple(nodes), dtype)


def single_products(dtype: str = "f32") -> st.SearchStrategy[Network]:
    """Like `half_products`, but in f32: rounded to bf16, the factors are the same numbers."""
    return half_products(dtype=dtype, factors="f32")


@st.composite
def roundings(draw: DrawFn, dtype: str = "f32") -> Network:
    """
    A quantized input, read as floats, as integers, in its stored type or quantized again.

    Scales are arbitrary, zero points are at the limits of the type or between.
    """
    nodes: list[Node] = []

    def add(op: str, *operands: int | Constant | None, **attributes: object) -> int:
        nodes.append(Node(op, operands, tuple(attributes.items())))
        return len(nodes)

    def number(value: float, kind: str = "f32") -> Constant:
        return Constant((), kind, fill=value)

    scale = number(draw(st.sampled_from([0.037, 0.25, 1 / 3, 0.7, 1.0])))
    value = add("Cast", add("Mul", 0, number(9.0, dtype)), to=BY_NAME["f32"].onnx)
    if draw(st.booleans()):
        value = add("Relu", value)
    result = _quantized_and_read(draw, add, value, scale)
    add("Cast", result, to=BY_NAME[dtype].onnx)
    return Network(((3, 5),), tuple(nodes), dtype)


def _quantized_and_read(draw: DrawFn, add: Callable[..., int], value: int, scale: Constant) -> int:
    name = draw(st.sampled_from(["u8", "i8"]))
    least = 0 if name == "u8" else -128
    zero = draw(st.sampled_from([least, least + 3, least + 128, least + 255]))
    second = draw(st.sampled_from([zero, least + 9]))
    zeros, other = (
        add("Cast", Constant((), "i64", values=(one,)), to=BY_NAME[name].onnx)
        for one in (zero, second)
    )
    stored = add("QuantizeLinear", value, scale, zeros)
    read = draw(st.sampled_from(["floats", "integers", "stored", "again"]))
    if read == "floats":
        return add("DequantizeLinear", stored, scale, other)
    if read == "again":
        turned = add("Transpose", add("DequantizeLinear", stored, scale, other), perm=(1, 0))
        return add("QuantizeLinear", turned, scale, draw(st.sampled_from([zeros, other])))
    if read == "stored":
        return add("Max", stored, other)
    moved = Constant((), "i32", values=(draw(st.sampled_from([zero, 7])),))
    wide = add("Cast", stored, to=BY_NAME["i32"].onnx)
    return add(draw(st.sampled_from(["Sub", "Add"])), wide, moved)


@st.composite
def scaled_weights(draw: DrawFn, dtype: str = "f32", *, even: bool = False) -> Network:
    """
    A matmul with 8-bit or 4-bit weights and a scale per block of rows.

    The weights may have a zero point, per tensor or per block, and may be transposed. Values are
    such that all products are exact. With `even`, inputs are even and the first of each block is
    254: rounded to bytes times 2, they are the same numbers.
    """
    nodes: list[Node] = []

    def add(op: str, *operands: int | Constant | None, **attributes: object) -> int:
        nodes.append(Node(op, operands, tuple(attributes.items())))
        return len(nodes)

    def number(value: float, kind: str = "f32") -> Constant:
        return Constant((), kind, fill=value)

    rows, blocks, block, columns = (
        draw(st.integers(1, 8)),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 9) | st.just(16)),
        draw(st.integers(2, 9)),
    )
    turned = draw(st.booleans())
    shape = (columns, blocks, block) if turned else (blocks, block, columns)
    scale_shape = (columns, blocks, 1) if turned else (blocks, 1, columns)
    if draw(st.booleans()):
        codes = tuple((7 * at + at // 5) % 16 for at in range(blocks * block * columns))
        whole = add("Cast", Constant(shape, "i32", values=codes), to=BY_NAME["u8"].onnx)
        zeros = tuple(draw(st.integers(0, 15)) for _ in range(columns * blocks))
        stored = add("Cast", Constant(scale_shape, "i32", values=zeros), to=BY_NAME["u8"].onnx)
        zero: int | Constant = add("Cast", stored, to=BY_NAME["f32"].onnx)
    else:
        drawn = Constant(shape, "f32", seed=draw(st.integers(0, 9)))
        whole = add("Cast", add("Mul", drawn, number(127.0)), to=BY_NAME["i8"].onnx)
        zero = number(90.0)
    weights = add("Cast", whole, to=BY_NAME["f32"].onnx)
    if draw(st.booleans()):
        weights = add("Sub", weights, zero)
    scales = tuple(draw(st.sampled_from([1, 2, 4])) for _ in range(columns * blocks))
    weights = add("Mul", weights, Constant(scale_shape, "f32", values=scales))
    sizes = (columns, blocks * block) if turned else (blocks * block, columns)
    flat = add("Reshape", weights, Constant((2,), "i64", values=sizes))
    table = add("Transpose", flat, perm=(1, 0)) if turned else flat
    x = add("Round", add("Mul", 0, number(7.0, dtype)))
    if even:
        firsts = [at % block == 0 for at in range(blocks * block)]
        others = Constant((len(firsts),), dtype, values=tuple(2 * (not one) for one in firsts))
        largest = Constant((len(firsts),), dtype, values=tuple(254 * one for one in firsts))
        x = add("Add", add("Mul", x, others), largest)
    product = add("MatMul", add("Cast", x, to=BY_NAME["f32"].onnx), table)
    add("Cast", product, to=BY_NAME[dtype].onnx)
    around = draw(st.sampled_from([(), (2,)]))
    return Network(((*around, rows, blocks * block),), tuple(nodes), dtype)


@st.composite
def block_products(draw: DrawFn, dtype: str = "f32") -> Network:
    """
    A blocked matmul with 4-bit or 8-bit weights, whose partial sums are scaled and added.

    Products are floats or integers; a zero point may be subtracted from the sums, and a bias and
    activation may follow. Values are such that all products are exact.
    """
    nodes: list[Node] = []

    def add(op: str, *operands: int | Constant | None, **attributes: object) -> int:
        nodes.append(Node(op, operands, tuple(attributes.items())))
        return len(nodes)

    def ints(*values: int) -> Constant:
        return Constant((len(values),), "i64", values=values)

    def cast(value: int | Constant, kind: str) -> int:
        return add("Cast", value, to=BY_NAME[kind].onnx)

    rows, blocks, columns = (draw(st.integers(2, most)) for most in (8, 3, 19))
    terms = draw(st.sampled_from([16, 20, 24]))
    most = draw(st.sampled_from([16, 200]))
    codes = tuple((7 * at + at // 5) % most for at in range(blocks * terms * columns))
    weights = cast(Constant((blocks, terms, columns), "i32", values=codes), "u8")
    x = add("Round", add("Mul", 0, Constant((), dtype, fill=7.0)))
    if draw(st.booleans()):  # Fewer of them, of another size in every block.
        parted = add("Reshape", x, ints(rows, blocks, terms))
        largest = add(
            "Max", add("ReduceMax", add("Abs", parted), ints(-1)), Constant((), dtype, fill=1.0)
        )
        x = add("Floor", add("Div", add("Mul", parted, Constant((), dtype, fill=9.0)), largest))
    x = cast(x, "i8")
    x = add("Transpose", add("Reshape", x, ints(rows, blocks, terms)), perm=(1, 0, 2))
    kind = draw(st.sampled_from(["i32", "f32"]))
    sums = cast(add("MatMul", cast(x, kind), cast(weights, kind)), "f32")
    if draw(st.booleans()):
        moved = add("Mul", add("ReduceSum", cast(x, "f32"), ints(-1)), Constant((), fill=8.0))
        sums = add("Sub", sums, moved)
    scales = tuple(draw(st.sampled_from([1, 2, 4])) for _ in range(blocks * columns))
    scaled = add("Mul", sums, Constant((blocks, 1, columns), values=scales))
    result = add("ReduceSum", scaled, ints(0), keepdims=0)
    if draw(st.booleans()):
        result = add("Relu", add("Add", result, Constant((columns,), seed=1)))
    cast(result, dtype)
    return Network(((rows, blocks * terms),), tuple(nodes), dtype)


@st.composite
def narrow_products(draw: DrawFn, dtype: str = "f32") -> Network:
    """
    A matmul of integers, where the second input is stored in 8 or 16 bits.

    It may be transposed, or transformed in its narrow type.
    """
    nodes: list[Node] = []

    def add(op: str, *operands: int | Constant | None, **attributes: object) -> int:
        nodes.append(Node(op, operands, tuple(attributes.items())))
        return len(nodes) + 1

    def whole(value: int, *kinds: str) -> int:
        number = add("Round", add("Mul", value, Constant((), dtype, fill=7.0)))
        return add("Cast", number, to=BY_NAME[draw(st.sampled_from(kinds))].onnx)

    rows, terms, columns = draw(st.integers(1, 8)), draw(st.integers(1, 9)), draw(st.integers(1, 9))
    narrow, turned = whole(1, "i8", "f16", "bf16"), draw(st.booleans())
    if draw(st.booleans()):
        narrow = add("Abs", narrow)
    if turned:
        narrow = add("Transpose", narrow, perm=(1, 0))
    product = add("MatMul", whole(0, "f32"), add("Cast", narrow, to=BY_NAME["f32"].onnx))
    add("Cast", product, to=BY_NAME[dtype].onnx)
    sizes = (columns, terms) if turned else (terms, columns)
    return Network(((rows, terms), sizes), tuple(nodes), dtype)


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
