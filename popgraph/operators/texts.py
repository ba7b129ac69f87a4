"""
Evaluates operators that move, compare or convert strings as well as numbers.

Those that move elements do so with the places of the strings in a sorted list, where the empty
string, which fills gaps, is 0: one lowering is the meaning for strings and numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from popgraph.dialects.onnx.evaluation import LOWERED, TEXTS, makes_text
from popgraph.dialects.onnx.host_values import holds_text, objects, texts
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.program import WeightStore
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError

SPECIAL = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}
"""Texts of numbers that ONNX writes otherwise than NumPy."""


def evaluate_texts(
    op: SchemaOp, operands: Sequence[Any], store: WeightStore, opsets: Mapping[str, int]
) -> list[Any] | None:
    """The outputs; None if the operator has no lowering."""
    if op.op_type in ("Cast", "CastLike") and not op.domain:
        return [_cast(op, *operands)]
    strings = [texts(one).reshape(-1) for one in operands if holds_text(one)]
    words = np.unique(np.concatenate([objects([""], (1,)), *strings]))
    codes = [np.searchsorted(words, texts(one)) if holds_text(one) else one for one in operands]
    outputs: list[Any] | None = LOWERED(op, codes, store, opsets)
    if outputs is None:
        return None
    kinds = {_kind(op.SCHEMA.inputs, at) for at, one in enumerate(operands) if holds_text(one)}
    return [
        words[one] if one is not None and _kind(op.SCHEMA.outputs, at) in kinds else one
        for at, one in enumerate(outputs)
    ]


def _kind(formals: Sequence[Any], at: int) -> str:
    """The type variable of an operand or a result; the last formal may be any number of them."""
    return str(formals[min(at, len(formals) - 1)].type_str)


def _cast(op: OnnxOp, x: Array, like: Array | None = None) -> Array:
    """
    To strings, or from them; `like` has the type wanted, else the attribute `to`.

    Integers may be written with a fraction, which goes; ONNX's reference refuses them. Booleans are
    the numbers 0 and 1, as in onnxruntime; to the reference, every string but "" is true.
    """
    if makes_text(op) or (like is not None and holds_text(like)):
        return texts(x) if holds_text(x) else objects(map(_written, x.reshape(-1)), x.shape)
    dtype = _dtype(op.attribute_values()["to"]) if like is None else like.dtype
    read = _whole if dtype.kind in "iu" else float
    try:
        numbers = [read(text) for text in texts(x).reshape(-1)]
    except ValueError as error:
        raise RunError(
            f"{op.op_type}: {error}", op.where(), "strings must spell numbers to become some"
        ) from None
    return np.array(numbers).astype(dtype).reshape(x.shape)


def _dtype(to: Any) -> np.dtype[Any]:
    """The element type of a number of ONNX, or of a name in version 1."""
    return dtypes.BY_ONNX[to if isinstance(to, int) else TensorProto.DataType.Value(to)].numpy


def _whole(text: str) -> int:
    """Integers above 2^53 are not read as floats."""
    try:
        return int(text)
    except ValueError:
        return int(float(text))


def _written(number: Any) -> str:
    """
    The shortest text that reads as the number: "0.1", "1e-05", "3.0".

    onnxruntime writes up to 8 or 17 digits of floats, and whole ones without a point.
    """
    text = str(int(number) if number.dtype == bool else number)
    return SPECIAL.get(text, text)


TEXTS.function = evaluate_texts
