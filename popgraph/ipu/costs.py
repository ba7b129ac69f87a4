"""The cycles of a tile: matrix unit, vectors, functions, and what six workers do with them."""

from __future__ import annotations

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Attribute, Block

from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.tile import IndexOp, YieldOp
from popgraph.dialects.tile.scalars import SCALARS
from popgraph.ipu.machine import Ipu
from popgraph.ipu.stages import WORD
from popgraph.support.arrays import Array

FREE = (arith.ConstantOp, arith.ExtFOp, arith.TruncFOp, IndexOp, YieldOp)
"""Operations of bodies that cost nothing: known before, or done by loads and stores."""


def lanes(ipu: Ipu, element: Attribute) -> int:
    """Elements of a vector; wider ones are computed in steps, and indices are words."""
    width = WORD if isinstance(element, IndexType) else element_bytes(element)
    return max(1, ipu.vector_bytes // width)


def rounds(ipu: Ipu, received: Array) -> Array:
    """In how many rounds a sum is taken whose terms do not fit into a tile all at once."""
    found: Array = np.maximum(1, np.ceil(received / ipu.operand_bytes))
    return found


def body_cycles(ipu: Ipu, body: Block) -> float:
    """Cycles of a body for each element, loads and stores aside."""
    cycles = 0.0
    for op in body.ops:
        if isinstance(op, FREE) or not op.results:
            continue
        known = SCALARS.get(type(op))
        each = ipu.function_cycles if known is not None and known.costly else 1
        cycles += each / lanes(ipu, op.results[0].type)
    return cycles


def vector_cycles(
    ipu: Ipu, elements: Array, arithmetic: float, loaded: float, stored: float
) -> Array:
    """Cycles for so many elements, each with so many cycles and bytes; arithmetic hides loads."""
    each = max(arithmetic, loaded / ipu.load_bytes, stored / ipu.store_bytes)
    shares: Array = np.ceil(elements / ipu.workers)
    found: Array = shares * ipu.workers * each
    return found


def product_cycles(
    ipu: Ipu, width: int, *, batch: Array, rows: Array, columns: Array, terms: Array
) -> Array:
    """
    Cycles of a batch of products of matrices of a tile, of elements of `width` bytes.

    The matrix unit holds a square of weights and takes rows through it, each for as many cycles as
    its rate says; either factor may be the weights. Products too small for it go by vectors.
    """
    unit = max(1, ipu.unit_bytes // width)
    load = unit * unit * width / ipu.load_bytes
    row = 2 * unit * unit / ipu.flops(width)
    by_unit = np.ceil(terms / unit) * np.minimum(
        np.ceil(columns / unit) * (load + rows * row),
        np.ceil(rows / unit) * (load + columns * row),
    )
    by_vectors = rows * columns * np.ceil(terms / max(1, ipu.vector_bytes // width))
    found: Array = batch * np.minimum(by_unit, by_vectors)
    return found
