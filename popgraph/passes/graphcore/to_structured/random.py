"""Lowers random numbers to scalar arithmetic, equal to the NumPy reference bit for bit."""

from __future__ import annotations

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import f64, i32, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from popgraph.dialects import tile
from popgraph.dialects.graphcore import RandomUniformOp
from popgraph.dialects.graphcore.base import integer, tensor_of
from popgraph.dialects.graphcore.random import kept_bits
from popgraph.dialects.program import ConstantOp, DataAttr
from popgraph.passes.graphcore.to_structured.elements import Operand, body, number
from popgraph.support.shapes import Shape


def element_number(shape: Shape) -> Operand:
    """The row-major index of the current element, in a body over `shape`."""
    flat: Operand = number(0, i64)
    for dim, size in enumerate(shape):
        index = arith.IndexCastOp(tile.IndexOp(dim), i64)
        flat = arith.AddiOp(arith.MuliOp(flat, number(size, i64)), index)
    return flat


def leading(key: Operand, place: Operand, element: Attribute) -> Operand:
    """A random integer as a float, with as many bits as the float type represents exactly."""
    bits = kept_bits(element)
    if element == f64:
        words = tile.ThreefryOp(key, place, to=i64)
        first = arith.ShLIOp(words, number(32, i64))
        both = arith.OrIOp(first, arith.ShRUIOp(words, number(32, i64)))
        return arith.SIToFPOp(arith.ShRUIOp(both, number(64 - bits, i64)), f64)
    word = tile.ThreefryOp(key, place, to=i32)
    return arith.SIToFPOp(arith.ShRUIOp(word, number(32 - bits, i32)), element)  # type: ignore[arg-type]


def lower_random_uniform(op: RandomUniformOp) -> SSAValue:
    """
    random_uniform(state)  ->  tile.map leading bits of threefry(key of the stream, element)

    The stream is an operand, not a literal of the body, so that all streams share one kernel.
    """
    shape, element = op.shape.data, tensor_of(op.result).element_type
    stream = ConstantOp(DataAttr.of(np.array([integer(op.stream)], np.int64)))

    def write(seed: SSAValue, step: SSAValue, stream: SSAValue) -> Operand:
        key = tile.ThreefryOp(tile.ThreefryOp(seed, step, to=i64), stream, to=i64)
        drawn = leading(key, element_number(shape), element)
        return arith.MulfOp(drawn, number(2.0 ** -kept_bits(element), element))

    places = [AffineMap(len(shape), 0, (AffineExpr.constant(part),)) for part in (0, 1, 0)]
    inputs = [op.state, op.state, stream.result]
    region = body([i64] * len(inputs), write)
    return tile.MapOp(inputs, places, shape, region, [element]).outputs[0]
