"""Lowers weights that a file stores in fewer bits than the text declares."""

from __future__ import annotations

import numpy as np
from xdsl.ir import SSAValue

from popgraph.builder.pgraph.lower.context import GraphContext
from popgraph.builder.pgraph.lower.nodes import add_constant, add_node
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import Span
from popgraph.dialects.onnx.tensorproto import from_value
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.ggml_blocks import Blocks

_LEAST_OPSET = 21
"""The first version in which DequantizeLinear has blocks and 4-bit integers."""


def lower_narrow(context: GraphContext, narrow: Array | Blocks, name: str, span: Span) -> SSAValue:
    """
    The value of a weight whose file stores f16 or bf16, or blocks of small integers.

        weight w: f32[6, 64]  ->  w/stored: bf16[6, 64];  w = Cast(w/stored)
                              ->  w/stored: i4[6, 64], w/scales: f32[6, 2];
                                  w = DequantizeLinear(w/stored, w/scales, axis=1, block_size=32)

    Minima are subtracted from the blocks. Kernels read the stored form.
    """

    def held(kind: str, array: Array) -> SSAValue:
        full = f"{name}/{kind}"
        return context.writer.add_initializer(full, from_value(array, context.file.store))

    if not isinstance(narrow, Blocks):
        wide = {"to": dtypes.BY_NAME["f32"].onnx}
        return add_node(context, "Cast", [held("stored", narrow)], [name], span, wide)[0]
    if context.file.opsets[""] < _LEAST_OPSET:
        context.source.parse_error(
            span,
            f"the file stores {name!r} in blocks, which opset {context.file.opsets['']} lacks",
            f"`opset {_LEAST_OPSET}`, or a newer one",
        )
        raise Failed
    operands = [held("stored", narrow.codes), held("scales", narrow.scales)]
    options = {"axis": len(narrow.shape) - 1, "block_size": narrow.size}
    product = name if narrow.minima is None else f"{name}/product"
    value = add_node(context, "DequantizeLinear", operands, [product], span, options)[0]
    if narrow.minima is None:
        return value
    minima = held("minima", narrow.minima[..., None])

    def shaped(value: SSAValue, sizes: tuple[int, ...], made: str) -> SSAValue:
        shape = add_constant(context, np.array(sizes, np.int64), f"{made}/shape", span)
        return add_node(context, "Reshape", [value, shape], [made], span)[0]

    parts = shaped(value, (*narrow.scales.shape, narrow.size), f"{name}/blocks")
    less = add_node(context, "Sub", [parts, minima], [f"{name}/less"], span)[0]
    return shaped(less, narrow.shape, name)
