"""How does a random number become scalar arithmetic, bit for bit as NumPy computes it?"""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import i64
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.graphcore import RandomUniformOp
from popgraph.dialects.graphcore.base import integer, tensor_of
from popgraph.dialects.graphcore.random import Words, kept_bits, mix
from popgraph.passes.graphcore_to_tile.elements import Operand, number
from popgraph.passes.graphcore_to_tile.elementwise import mapped
from popgraph.support.shapes import Shape

WORDS: Words[Operand] = Words(
    constant=lambda word: number(word, i64),
    add=arith.AddiOp,
    multiply=arith.MuliOp,
    xor=arith.XOrIOp,
    shift_right=arith.ShRUIOp,
)
"""The hash of graphcore, written with operations on signless 64-bit integers."""


def element_number(shape: Shape) -> Operand:
    """In a body over `shape`: the row-major number of the current element."""
    flat: Operand = number(0, i64)
    for dim, size in enumerate(shape):
        index = arith.IndexCastOp(tile.IndexOp(dim), i64)
        flat = arith.AddiOp(arith.MuliOp(flat, number(size, i64)), index)
    return flat


def lower_random_uniform(op: RandomUniformOp) -> SSAValue:
    """random_uniform(seed)  ->  tile.map leading bits of mix(seed, stream, element number)"""
    shape, element = op.shape.data, tensor_of(op.result).element_type
    bits = kept_bits(element)

    def write(seed: SSAValue) -> Operand:
        word = mix(seed, integer(op.stream), element_number(shape), WORDS)
        leading = arith.ShRUIOp(word, number(64 - bits, i64))
        # So few bits are exact as a float, and so is their division by a power of two.
        whole = arith.SIToFPOp(leading, element)  # type: ignore[arg-type]
        return arith.MulfOp(whole, number(2.0**-bits, element))

    return mapped([op.seed], [AffineMap(len(shape), 0, ())], shape, element, write)
