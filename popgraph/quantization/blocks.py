"""Weights alone in blocks of few bits: MatMulNBits, or DequantizeLinear with `block_size`."""

from __future__ import annotations

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects.onnx.containers import value_name
from popgraph.dialects.onnx.types import dims
from popgraph.quantization.editing import MICROSOFT, Editor, set_operand
from popgraph.quantization.settings import NBITS, Settings
from popgraph.quantization.sites import WEIGHT, Site, Sites
from popgraph.quantization.weights import Key, Rounded, Weights, in_blocks, stored
from popgraph.support.arrays import Array


def quantize_blocks(editor: Editor, sites: Sites, settings: Settings) -> Weights:
    """Rounds the constant matrices of MatMul and Gemm, each column in blocks of rows."""
    weights = Weights(editor, settings.weight, per_channel=True)
    codes: dict[Key, list[SSAValue]] = {}
    for site in [one for one in sites if is_matrix(one)]:
        axis = summed_axis(site)
        array = weights.array(site.value)
        key = weights.key(site)
        if key not in weights.made:
            weights.made[key] = in_blocks(array, axis, settings.block_size, settings.weight)
        if settings.format == NBITS and fits_nbits(site):
            if key not in codes:
                codes[key] = _codes(editor, site, weights.made[key], axis, settings)
            _to_nbits(editor, site, codes[key], settings)
        else:
            _to_dequantized(editor, weights, site, axis, settings)
    return weights


def is_matrix(site: Site) -> bool:
    """Whether a site is a constant matrix that a MatMul or Gemm multiplies with."""
    sizes = dims(site.value.type)
    return (
        site.kind == WEIGHT
        and site.operand == 1
        and site.node.op_type in ("MatMul", "Gemm")
        and sizes is not None
        and len(sizes) == 2
        and min(one for one in sizes if isinstance(one, int)) > 0
    )


def fits_nbits(site: Site) -> bool:
    """Whether MatMulNBits can replace the node: Gemm may transpose and scale."""
    if site.node.op_type == "MatMul":
        return True
    numbers = site.node.attribute_values()
    return not numbers["transA"] and numbers["alpha"] == 1 and numbers["beta"] == 1


def summed_axis(site: Site) -> int:
    """The axis of a matrix along which products are summed."""
    assert site.axis is not None, "a matrix has channels"
    return 1 - site.axis


def _to_dequantized(
    editor: Editor, weights: Weights, site: Site, axis: int, settings: Settings
) -> None:
    key = weights.key(site)
    if key not in weights.values:
        name, made = value_name(site.value), weights.made[key]
        scale = editor.constant(f"{name}_scale", made.scale)
        zero = None
        if not made.grid.symmetric:
            zero = editor.constant(f"{name}_zero_point", stored(made.zero, made.grid))
        weights.values[key] = editor.dequantized(
            name, made.numbers, scale, zero, axis=axis, block_size=settings.block_size
        )
    set_operand(site.node, site.operand, weights.values[key])


def _codes(
    editor: Editor, site: Site, made: Rounded, axis: int, settings: Settings
) -> list[SSAValue]:
    """
    The operands of MatMulNBits for a weight: packed integers, scales, and zero points if any.

    They have one row per column of the result. The default zero point is 2^(bits - 1).
    """
    name, size = value_name(site.value), settings.block_size
    whole, scale, zero = (np.moveaxis(one, axis, -1) for one in (made.whole, made.scale, made.zero))
    shift = 2 ** (settings.bits - 1) if made.grid.symmetric else 0
    rows, columns = whole.shape
    blocks = scale.shape[1]
    padded = np.zeros((rows, blocks * size), np.uint8)
    padded[:, :columns] = whole + shift
    codes = packed(padded, settings.bits).reshape(rows, blocks, -1)
    arrays = {"quantized": codes, "scale": np.ascontiguousarray(scale)}
    if not made.grid.symmetric:
        arrays["zero_point"] = packed(zero.astype(np.uint8), settings.bits)
    return [editor.constant(f"{name}_{what}", array) for what, array in arrays.items()]


def _to_nbits(editor: Editor, site: Site, codes: list[SSAValue], settings: Settings) -> None:
    """matmul(x, w) + b  ->  MatMulNBits(x, codes, scales, zeros) + b"""
    op = site.node
    sizes = dims(site.value.type)
    assert sizes is not None and site.axis is not None, "checked by is_matrix"
    x, bias = op.input_values()[0], (*op.input_values()[2:], None)[0]
    output = op.output_names[0]
    result = editor.node(
        NBITS,
        [x, *codes],
        f"{output}_product",
        op,
        {
            "K": sizes[1 - site.axis],
            "N": sizes[site.axis],
            "bits": settings.bits,
            "block_size": settings.block_size,
            "accuracy_level": settings.accuracy_level,
        },
        domain=MICROSOFT,
    )
    if bias is not None:
        result = editor.node("Add", [*result, bias], f"{output}_biased", op)
    editor.substitute(op, result[0])


def packed(numbers: Array, bits: int) -> Array:
    """Numbers of few bits along the last axis, lowest bits first in each byte."""
    if bits == 8:
        return numbers
    if numbers.shape[-1] % 2:
        numbers = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, 1)])
    return np.asarray(numbers[..., ::2] | numbers[..., 1::2] << 4, np.uint8)
