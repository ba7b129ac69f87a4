"""Weights of few bits, several in a byte, in blocks that share a scale."""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import IntegerType, Signedness

from popgraph.operators.microsoft.body import Value, total
from popgraph.operators.microsoft.call import Call, defines
from popgraph.support.shapes import prod


def unpacked(value: Value, bits: int) -> Value:
    """The numbers in bytes, the lowest bits first, along a new last axis."""
    places = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = value.typed("u8").Unsqueeze([-1]).BitShift(places, direction="RIGHT")
    return numbers.BitwiseAnd(np.array((1 << bits) - 1, np.uint8)).typed("i32")


@defines("MatMulNBits", "A B scales zero_points g_idx bias")
def matmul_nbits(call: Call) -> Value:
    """
    The weights B are integers of few bits, the lowest first in each byte, in rows of blocks.

    Each block of a row has a scale, and a zero point: packed as the weights are, or as a number.
    `g_idx` tells the block of each column whose scale and zero point it has, if not its own. An
    `accuracy_level` of 4 allows for integers of eight bits in place of A, with a scale for each
    block of a row: then products are those of integers, unless gradients are to pass them.
    """
    rows, columns, block = call.needs("N"), call.needs("K"), call.needs("block_size")
    bits = call.integer("bits", 4)
    if bits not in (2, 4, 8):
        raise call.refuse(f"bits = {bits}", "2, 4 and 8 are")
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
    """An error where an input has another number of elements than N, K and block_size ask for."""
    shape = call.shape(name)
    sizes = [size for size in shape if isinstance(size, int)]
    if len(sizes) == len(shape) and prod(sizes) != count:
        wanted = ", ".join(f"{each} = {call.needs(each)}" for each in ("N", "K", "block_size"))
        raise call.unfit(f"{name} of {prod(sizes)} elements", f"there must be {count} for {wanted}")


IN_BYTES = 4
"""The `accuracy_level` at which integers of eight bits stand for A."""
MOST = 127.0
"""The largest of them."""


def _product_of_bytes(call: Call, codes: Value, rows: int, blocks: int, bits: int) -> Value:
    """Products of integers by blocks, scaled and added up: zero points are taken from the sums."""
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
    """The zero point of every block; that of the middle where none is given."""
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
    """The numbers of four bits: of fp4, whose highest bit is the sign, or of nf4."""
    if kind:
        return [float(one) for one in _NF4.split()]
    positive = [float(one) for one in _FP4.split()]
    return [*positive, *(-one for one in positive)]


@defines("MatMulBnb4", "A B absmax", ignored="training_mode")
def matmul_bnb4(call: Call) -> Value:
    """Of the two numbers in a byte, that of the higher bits is the first."""
    rows, columns, block = call.needs("N"), call.needs("K"), call.needs("block_size")
    kind = call.integer("quant_type")
    codes = unpacked(call["B"], 4)
    pairs = codes.part(1, 2, 1).Concat(codes.part(0, 1, 1), axis=1).reshaped(-1)
    count = rows * columns
    places = call.body.counted(count).Div(block)
    book = call.body.constant(np.array(_codebook(kind), np.float32)).CastLike(call["A"])
    numbers = book.Gather(pairs.part(0, count, 0))
    table = (numbers * call["absmax"].Gather(places)).reshaped(rows, columns)
    turned = call.integer("transB", 1)
    return call["A"] @ (table.permuted(1, 0) if turned else table)


@defines("GatherBlockQuantized", "data indices scales zero_points")
def gather_block_quantized(call: Call) -> Value:
    """Rows of weights of few bits, each block of which has a scale and a zero point."""
    rank, places = call.rank("data"), call["indices"]
    along = call.integer("quantize_axis", 1) % rank
    if call.integer("gather_axis") % rank:
        raise call.refuse("a gather_axis", "rows, of axis 0, are")
    data, steps = (call[name].Gather(places, axis=0) for name in ("data", "scales"))
    points, bits = call.get("zero_points"), call.integer("bits", 4)
    points = points and points.Gather(places, axis=0)
    if call.element("data") == IntegerType(8, Signedness.UNSIGNED):
        if along != rank - 1:
            raise call.refuse(f"quantize_axis = {along} of bytes", "the last axis is")
        data = _in_row(data, bits)
        middle = (data.part(0, 1, -1) * 0 + (1 << (bits - 1))).Expand(steps.Shape())
        points = middle if points is None else _in_row(points, bits)
        points = points.Slice([0], steps.Shape(start=-1), [-1])
    block = call.integer("block_size", 128)
    at = along + call.rank("indices") - 1
    return data.DequantizeLinear(steps, points, axis=at, block_size=block)


def _in_row(value: Value, bits: int) -> Value:
    """The numbers in bytes, as bytes of their own, along the last axis."""
    numbers = unpacked(value, bits).typed("u8")
    rows = value.Shape(end=-1)
    return numbers.Reshape(rows.Concat([-1], axis=0))
