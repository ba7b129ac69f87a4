"""Compute cycles of a tile: matrix unit, vector unit, functions, and its six workers."""

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
"""Operations without cost: folded, or done by loads and stores."""


def lanes(ipu: Ipu, element: Attribute) -> int:
    """Elements per vector; an index counts as one word."""
    width = WORD if isinstance(element, IndexType) else element_bytes(element)
    return max(1, ipu.vector_bytes // width)


def rounds(ipu: Ipu, received: Array) -> Array:
    """Number of exchanges of a reduction whose operands do not fit into a tile at once."""
    found: Array = np.maximum(1, np.ceil(received / ipu.operand_bytes))
    return found


def body_cycles(ipu: Ipu, body: Block) -> float:
    """Cycles of a body per element, without loads and stores."""
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
    """Cycles of an elementwise loop, the larger of arithmetic, loads and stores per element."""
    each = max(arithmetic, loaded / ipu.load_bytes, stored / ipu.store_bytes)
    shares: Array = np.ceil(elements / ipu.workers)
    found: Array = shares * ipu.workers * each
    return found


def product_cycles(
    ipu: Ipu, width: int, *, batch: Array, rows: Array, columns: Array, terms: Array
) -> Array:
    """
    Cycles of a batch of matmuls on one tile, with elements of `width` bytes.

    The matrix unit loads a square of weights and streams rows through it at its peak rate; either
    operand may be the weights. Matmuls too small for the unit use vectors.
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
