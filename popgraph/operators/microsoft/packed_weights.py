"""Block-quantized weights: packed sub-byte elements, in blocks that share a scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import IntegerType, Signedness

from popgraph.operators.microsoft.body import Value, total
from popgraph.operators.microsoft.call import Call, defines
from popgraph.operators.record import IN_BYTES
from popgraph.support.arrays import Array
from popgraph.support.dtypes import BY_NAME
from popgraph.support.ggml_blocks import UNEVEN
from popgraph.support.shapes import prod


def unpacked(value: Value, bits: int) -> Value:
    """Unpacks bytes into elements of `bits` bits, lowest first, along a new last axis."""
    places = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = value.typed("u8").Unsqueeze([-1]).BitShift(places, direction="RIGHT")
    return numbers.BitwiseAnd(np.array((1 << bits) - 1, np.uint8)).typed("i32")


@defines("MatMulNBits", "A B scales zero_points g_idx bias")
def matmul_nbits(call: Call) -> Value:
    """
    A @ dequantize(B)^T, for B packed lowest bits first, in rows of blocks.

    Each block has a scale and a zero point, packed like B or in A's type. `g_idx` names the block
    whose scale and zero point a column uses. `accuracy_level` 4 allows quantizing A to int8
    per block, for integer matmuls; not in training, where gradients must pass.
    """
    rows, columns, block = call.needs("N"), call.needs("K"), call.needs("block_size")
    bits = call.integer("bits", 4)
    if bits not in (2, 4, 8):
        raise call.refuse(f"bits = {bits}", "use 2, 4 or 8")
    blocks, a = -(-columns // block), call["A"]
    _check_size(call, "B", rows * blocks * block * bits // 8)
    _check_size(call, "scales", rows * blocks)
    codes = unpacked(call["B"], bits).reshaped(rows, blocks, -1)
    in_bytes = call.integer("accuracy_level") == IN_BYTES and not call.exact
    if in_bytes and columns % block == 0 and not call.has("g_idx"):
        product = _product_of_bytes(call, codes, rows, blocks, bits)
        return total(product, call.get("bias"))
    codes = codes.CastLike(a)
    steps, points = call["scales"].reshaped(rows, blocks, 1), _zeros(call, rows, blocks, bits)
    if call.has("g_idx"):
        codes = codes.reshaped(rows, -1, 1).part(0, columns, 1)
        owners = call["g_idx"].part(0, columns, 0)
        steps = steps.Gather(owners, axis=1)
        points = points.Gather(owners, axis=1) if call.has("zero_points") else points
    table = ((codes - points) * steps).reshaped(rows, -1)
    product = a @ table.part(0, columns, 1).permuted(1, 0)
    return total(product, call.get("bias"))


def _check_size(call: Call, name: str, count: int) -> None:
    """Raises an error unless an input has the size that N, K and block_size imply."""
    shape = call.shape(name)
    sizes = [size for size in shape if isinstance(size, int)]
    if len(sizes) == len(shape) and prod(sizes) != count:
        wanted = ", ".join(f"{each} = {call.needs(each)}" for each in ("N", "K", "block_size"))
        raise call.unfit(f"{name} of {prod(sizes)} elements", f"give {count} elements for {wanted}")


MOST = 127.0
"""The largest quantized value of A."""


def _product_of_bytes(call: Call, codes: Value, rows: int, blocks: int, bits: int) -> Value:
    """Integer matmuls per block, scaled and summed: (A_q @ B_q - zero * sum(A_q)) * scales."""
    a = call["A"]
    x = a.typed("f32").Reshape([-1, blocks, call.needs("block_size")]).permuted(1, 0, 2)
    scale = x.Abs().ReduceMax([-1], keepdims=1) / MOST
    whole = (x / scale.same(0.0).Where(1.0, scale)).Round().typed("i8").typed("i32")
    products = (whole @ codes.permuted(1, 2, 0)).typed("f32")
    points = _zeros(call, rows, blocks, bits).typed("f32")
    if call.has("zero_points"):
        points = points.permuted(1, 2, 0)
    shifts = whole.ReduceSum([-1], keepdims=1).typed("f32") * points
    steps = call["scales"].typed("f32").reshaped(rows, blocks, 1).permuted(1, 2, 0)
    sums = ((products - shifts) * scale * steps).ReduceSum([0], keepdims=0)
    shape = a.Shape(end=-1).Concat([rows], axis=0)
    return sums.Reshape(shape).CastLike(a)


def _zeros(call: Call, rows: int, blocks: int, bits: int) -> Value:
    """The zero point of every block; 2^(bits - 1) by default."""
    points, a = call.get("zero_points"), call["A"]
    if points is None:
        return a.number(2 ** (bits - 1))
    if call.element("zero_points") != call.element("A"):
        points = unpacked(points, bits).reshaped(rows, -1).part(0, blocks, 1).CastLike(a)
    return points.reshaped(rows, blocks, 1)


_NF4 = """
-1.0 -0.6961928009986877 -0.5250730514526367 -0.39491748809814453 -0.28444138169288635
-0.18477343022823334 -0.09105003625154495 0.0 0.07958029955625534 0.16093020141124725
0.24611230194568634 0.33791524171829224 0.44070982933044434 0.5626170039176941
0.7229568362236023 1.0
"""
_FP4 = "0 0.00520833 0.66666667 1 0.33333333 0.5 0.16666667 0.25"


def _codebook(kind: int) -> list[float]:
    """The 16 values of fp4 (0), whose highest bit is the sign, or of nf4 (1)."""
    if kind:
        return [float(one) for one in _NF4.split()]
    positive = [float(one) for one in _FP4.split()]
    return [*positive, *(-one for one in positive)]


@defines("MatMulBnb4", "A B absmax", ignored="training_mode")
def matmul_bnb4(call: Call) -> Value:
    """A @ dequantize(B), for B in fp4 or nf4; the higher half of a byte is the first element."""
    rows, columns, block = call.needs("N"), call.needs("K"), call.needs("block_size")
    kind = call.integer("quant_type")
    codes = unpacked(call["B"], 4)
    pairs = codes.part(1, 2, 1).Concat(codes.part(0, 1, 1), axis=1).reshaped(-1)
    count = rows * columns
    places = call.body.counted(count).Div(block)
    book = call.body.constant(np.array(_codebook(kind), np.float32)).CastLike(call["A"])
    numbers = book.Gather(pairs.part(0, count, 0))
    table = (numbers * call["absmax"].Gather(places)).reshaped(rows, columns)
    transposes = call.integer("transB", 1)
    return call["A"] @ (table.permuted(1, 0) if transposes else table)


@defines("GatherBlockQuantized", "data indices scales zero_points")
def gather_block_quantized(call: Call) -> Value:
    """Gathers and dequantizes rows of block-quantized weights."""
    rank, places = call.rank("data"), call["indices"]
    along = call.integer("quantize_axis", 1) % rank
    if call.integer("gather_axis") % rank:
        raise call.refuse("a gather_axis other than 0", "use axis 0")
    data, steps = (call[name].Gather(places, axis=0) for name in ("data", "scales"))
    points, bits = call.get("zero_points"), call.integer("bits", 4)
    points = points and points.Gather(places, axis=0)
    if call.element("data") == IntegerType(8, Signedness.UNSIGNED):
        if along != rank - 1:
            raise call.refuse(f"quantize_axis = {along} of packed bytes", "use the last axis")
        data = _in_row(data, bits)
        middle = (data.part(0, 1, -1) * 0 + (1 << (bits - 1))).Expand(steps.Shape())
        points = middle if points is None else _in_row(points, bits)
        points = points.Slice([0], steps.Shape(start=-1), [-1])
    block = call.integer("block_size", 128)
    at = along + call.rank("indices") - 1
    return data.DequantizeLinear(steps, points, axis=at, block_size=block)


def _in_row(value: Value, bits: int) -> Value:
    """Unpacks the elements in bytes to u8, along the last axis."""
    numbers = unpacked(value, bits).typed("u8")
    rows = value.Shape(end=-1)
    return numbers.Reshape(rows.Concat([-1], axis=0))


@dataclass(frozen=True)
class Packing:
    """A block format: elements and bytes of a block, and its decoder."""

    elements: int
    bytes: int
    decode: Callable[[Value], Value]
    """[..., bytes] in i32  ->  [..., elements], or a shape with as many elements."""


@defines("GatherPacked", "data indices", without_gradient="it takes integers")
def gather_packed(call: Call) -> Value:
    """Gathers and decodes rows in a GGML format; indices out of range read row 0."""
    kind, size = call.integer("packed_type", -1), call.needs("K")
    packing = PACKINGS.get(kind)
    if packing is None:
        known = ", ".join(map(str, sorted(PACKINGS)))
        raise call.refuse(f"packed_type = {kind}", f"use one of {known}")
    if size % packing.elements or call.size("data", 1) * packing.elements != size * packing.bytes:
        raise call.unfit(
            f"rows of {call.size('data', 1)} bytes for {size} elements",
            f"{packing.elements} elements take {packing.bytes} bytes",
        )
    places = call["indices"]
    outside = (places < 0) | (places >= call["data"].length(0).CastLike(places))
    rows = call["data"].Gather(outside.Where(places.number(0), places)).typed("i32")
    blocks = rows.Reshape(places.Shape().Concat([-1, packing.bytes], axis=0))
    shape = places.Shape().Concat([size], axis=0)
    result = call.integer("output_dtype", BY_NAME["bf16"].onnx)
    return packing.decode(blocks).Reshape(shape).Cast(to=result)


def _bits(value: Value, low: int, count: int) -> Value:
    """`count` bits of non-negative integers, from bit `low` on."""
    return value / np.int32(1 << low) % np.int32(1 << count)


def _single_bits(values: Value, places: Array) -> Value:
    """The bits at these positions, as 0 and 1."""
    return values.Div(np.int32(1) << places) % np.int32(2)


def _nibbles(values: Value, axis: int = -1) -> Value:
    """The lower halves of all bytes, then the higher ones."""
    return _bits(values, 0, 4).Concat(_bits(values, 4, 4), axis=axis)


def _pairs(values: Value) -> Value:
    """The four 2-bit elements of each byte, lowest first."""
    bases = values.body.constant(_BASES)
    digits = values.Unsqueeze([-1]).Div(bases) % np.int32(4)
    return digits.Reshape(values.Shape(end=-1).Concat([-1], axis=0))


_BASES = np.array([1, 4, 16, 64], np.int32)


def _signed(value: Value) -> Value:
    """Bytes as int8 values, in f32."""
    half = value.body.constant(np.int32(128))
    return ((value + half) % np.int32(256) - half).typed("f32")


def _floats(value: Value, count: int, exponent: int) -> Value:
    """Floats of `count` bytes, little-endian, with `exponent` bits of exponent."""
    mantissa = 8 * count - 1 - exponent
    pairs = _folded(value, 1, -1, count)
    high = pairs.part(count - 1, count, -1)
    sign, number = _bits(high, 7, 1), _bits(high, 0, 7)
    for at in range(count - 2, -1, -1):
        number = number * np.int32(256) + pairs.part(at, at + 1, -1)
    step, rest = _bits(number, mantissa, exponent), _bits(number, 0, mantissa).typed("f32")
    least = 1 - (2 ** (exponent - 1) - 1) - mantissa
    steps = [np.float32(2.0) ** (least + max(at - 1, 0)) for at in range(2**exponent - 1)]
    table = value.body.constant(np.array([*steps, np.inf], np.float32))
    hidden = (step > 0).typed("f32") * float(2**mantissa)
    found = (rest + hidden) * table.Gather(step)
    is_nan = step.same(np.int32(2**exponent - 1)) & (rest > 0)
    found = is_nan.Where(found.number(float("nan")), found)
    return (found * (1 - sign.typed("f32") * 2)).Squeeze([-1])


def _folded(values: Value, axes: int, *sizes: int) -> Value:
    """Reshapes the last `axes` axes to these sizes."""
    return values.Reshape(values.Shape(end=-axes).Concat(sizes, axis=0))


# Blocks, [..., bytes]; most begin with their scale


def _bytes(blocks: Value, start: int, end: int) -> Value:
    return blocks.part(start, end, -1)


def _half(blocks: Value, start: int = 0) -> Value:
    """The scale of a block: [..., 1]."""
    return _floats(_bytes(blocks, start, start + 2), 2, 5)


def _of_four_bits(blocks: Value) -> Value:
    return (_nibbles(_bytes(blocks, 2, 18)).typed("f32") - 8) * _half(blocks)


def _of_two_bits(blocks: Value) -> Value:
    return (_pairs(_bytes(blocks, 2, 18)).typed("f32") - 1) * _half(blocks)


def _of_five_bits(blocks: Value) -> Value:
    fifth = _single_bits(_bytes(blocks, 2, 6).Unsqueeze([-1]), np.arange(8, dtype=np.int32))
    highest = _folded(fifth, 2, 32)
    numbers = _nibbles(_bytes(blocks, 6, 22)) + highest * np.int32(16)
    return (numbers.typed("f32") - 16) * _half(blocks)


def _of_eight_bits(blocks: Value) -> Value:
    return _signed(_bytes(blocks, 2, 34)) * _half(blocks)


def _of_five_bits_in_groups(blocks: Value) -> Value:
    """Q5_K: eight groups, each with a 6-bit scale and a 6-bit minimum."""
    first, second, third = (_bytes(blocks, at, at + 4) for at in (4, 8, 12))
    sixteen = blocks.body.constant(np.int32(16))
    scales, lows = (
        _bits(own, 0, 6).Concat(_bits(third, low, 4) + _bits(own, 6, 2) * sixteen, axis=-1)
        for own, low in ((first, 0), (second, 4))
    )
    numbers = _nibbles(_folded(_bytes(blocks, 48, 176), 1, 4, 1, 32), -2)
    places = np.arange(8, dtype=np.int32).reshape(8, 1)
    fifth = _single_bits(_bytes(blocks, 16, 48).Unsqueeze([-2]), places)
    numbers = (_folded(numbers, 3, 8, 32) + fifth * sixteen).typed("f32")
    by_group = [one.typed("f32").Unsqueeze([-1]) for one in (scales, lows)]
    step, low = (_half(blocks, at).Unsqueeze([-1]) for at in (0, 2))
    return numbers * (step * by_group[0]) - low * by_group[1]


def _of_six_bits_in_groups(blocks: Value) -> Value:
    """Q6_K: sixteen groups, each with an 8-bit scale."""
    low = _nibbles(_folded(_bytes(blocks, 0, 128), 1, 2, 1, 64), -2)
    high = _folded(_bytes(blocks, 128, 192), 1, 2, 1, 32).Div(_BASES.reshape(4, 1)) % np.int32(4)
    numbers = _folded(low, 3, 16, 16) + _folded(high, 3, 16, 16) * np.int32(16)
    scales = _signed(_bytes(blocks, 192, 208)).Unsqueeze([-1])
    return (numbers.typed("f32") - 32) * (_half(blocks, 208).Unsqueeze([-1]) * scales)


def _uneven(codes: Value) -> Value:
    return codes.body.constant(np.array(UNEVEN, np.float32)).Gather(codes)


def _of_uneven_steps(blocks: Value) -> Value:
    return _uneven(_nibbles(_bytes(blocks, 2, 18))) * _half(blocks)


def _of_uneven_steps_in_groups(blocks: Value) -> Value:
    """IQ4_XS: eight groups, each with a 6-bit scale."""
    high = _pairs(_bytes(blocks, 2, 4))
    low = _folded(_nibbles(_bytes(blocks, 4, 8).Unsqueeze([-1])), 2, 8)
    scales = (low + high * np.int32(16)).typed("f32") - 32
    numbers = _uneven(_nibbles(_folded(_bytes(blocks, 8, 136), 1, 8, 16)))
    return numbers * (_half(blocks) * scales).Unsqueeze([-1])


PACKINGS: Mapping[int, Packing] = {
    0: Packing(1, 4, lambda blocks: _floats(blocks, 4, 8)),
    1: Packing(1, 2, lambda blocks: _floats(blocks, 2, 5)),
    2: Packing(32, 18, _of_four_bits),
    6: Packing(32, 22, _of_five_bits),
    8: Packing(32, 34, _of_eight_bits),
    13: Packing(256, 176, _of_five_bits_in_groups),
    14: Packing(256, 210, _of_six_bits_in_groups),
    20: Packing(32, 18, _of_uneven_steps),
    23: Packing(256, 136, _of_uneven_steps_in_groups),
    30: Packing(1, 2, lambda blocks: _floats(blocks, 2, 8)),
    42: Packing(64, 18, _of_two_bits),
}
"""Formats by GGML's numbers; formats with codebooks of whole groups are missing."""
