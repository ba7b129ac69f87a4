"""Random numbers as scalar arithmetic, bit for bit as NumPy computes them."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import f64, i32, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from popgraph.dialects import tile
from popgraph.dialects.graphcore import RandomUniformOp
from popgraph.dialects.graphcore.base import integer, tensor_of
from popgraph.dialects.graphcore.random import Pair, Words, drawn, kept_bits
from popgraph.passes.graphcore.to_structured.elements import Operand, number
from popgraph.passes.graphcore.to_structured.elementwise import mapped
from popgraph.support.shapes import Shape


def rotated(word: Operand, bits: int) -> Operand:
    left = arith.ShLIOp(word, number(bits, i32))
    return arith.OrIOp(left, arith.ShRUIOp(word, number(32 - bits, i32)))


WORDS: Words[Operand] = Words(
    constant=lambda word: number(word, i32),
    add=arith.AddiOp,
    xor=arith.XOrIOp,
    rotate=rotated,
)
"""The generator of graphcore, written with operations on signless 32-bit integers."""


def pair(whole: Operand) -> Pair[Operand]:
    """The words of an i64."""
    return arith.TruncIOp(whole, i32), arith.TruncIOp(arith.ShRUIOp(whole, number(32, i64)), i32)


def element_number(shape: Shape) -> Operand:
    """In a body over `shape`: the row-major number of the current element."""
    flat: Operand = number(0, i64)
    for dim, size in enumerate(shape):
        index = arith.IndexCastOp(tile.IndexOp(dim), i64)
        flat = arith.AddiOp(arith.MuliOp(flat, number(size, i64)), index)
    return flat


def leading(words: Pair[Operand], element: Attribute) -> Operand:
    """So many bits that they are exact as a float, as is their division by a power of two."""
    bits = kept_bits(element)
    first, second = words
    if element == f64:
        high = arith.ShLIOp(arith.ExtUIOp(first, i64), number(bits - 32, i64))
        low = arith.ShRUIOp(arith.ExtUIOp(second, i64), number(64 - bits, i64))
        return arith.SIToFPOp(arith.OrIOp(high, low), element)
    return arith.SIToFPOp(arith.ShRUIOp(first, number(32 - bits, i32)), element)  # type: ignore[arg-type]


def lower_random_uniform(op: RandomUniformOp) -> SSAValue:
    """random_uniform(state)  ->  tile.map leading bits of drawn(seed, step, stream, element)"""
    shape, element = op.shape.data, tensor_of(op.result).element_type

    def write(seed: SSAValue, step: SSAValue) -> Operand:
        place = pair(element_number(shape))
        words = drawn(pair(seed), pair(step), integer(op.stream), place, WORDS)
        return arith.MulfOp(leading(words, element), number(2.0 ** -kept_bits(element), element))

    parts = [AffineMap(len(shape), 0, (AffineExpr.constant(part),)) for part in (0, 1)]
    return mapped([op.state, op.state], parts, shape, element, write)
