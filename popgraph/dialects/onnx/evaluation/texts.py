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

from popgraph.dialects.onnx.evaluation.given import holds_text, objects, texts
from popgraph.dialects.onnx.evaluation.registry import LOWERED, TEXTS
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.program import WeightStore
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError

SPECIAL = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}
"""Texts of numbers that ONNX writes otherwise than NumPy."""

STRING = 8
"""The number of the type in ONNX."""


def evaluate_texts(
    op: SchemaOp, operands: Sequence[Any], store: WeightStore, opsets: Mapping[str, int]
) -> list[Any] | None:
    """The outputs; None if the operator has no lowering."""
    if op.op_type in ("Cast", "CastLike") and not op.domain:
        return [_cast(op, *operands)]
    strings = [texts(one).reshape(-1) for one in operands if holds_text(one)]
    words = np.unique(np.concatenate([[""], *strings]).astype(str))
    codes = [
        np.searchsorted(words, texts(one).astype(str)) if holds_text(one) else one
        for one in operands
    ]
    outputs: list[Any] | None = LOWERED(op, codes, store, opsets)
    if outputs is None:
        return None
    kinds = {_kind(op.SCHEMA.inputs, at) for at, one in enumerate(operands) if holds_text(one)}
    table = words.tolist()
    return [
        objects((table[code] for code in one.reshape(-1).tolist()), one.shape)
        if one is not None and _kind(op.SCHEMA.outputs, at) in kinds
        else one
        for at, one in enumerate(outputs)
    ]


def _kind(formals: Sequence[Any], at: int) -> str:
    """The type variable of an operand or a result; the last formal may be any number of them."""
    return str(formals[min(at, len(formals) - 1)].type_str)


def _cast(op: OnnxOp, x: Array, like: Array | None = None) -> Array:
    """To strings, or from them; `like` has the type wanted, else the attribute `to`."""
    if like is not None:
        dtype = None if holds_text(like) else like.dtype
    else:
        to: Any = op.attribute_values()["to"]
        dtype = None if to in (STRING, "STRING") else _dtype(to)
    if dtype is None:
        return texts(x) if holds_text(x) else objects(map(_written, x.reshape(-1)), x.shape)
    try:
        numbers = [float(text) for text in texts(x).reshape(-1)]
    except ValueError as error:
        raise RunError(str(error), op.where(), "strings become numbers if they spell one") from None
    if dtype.kind in "iu":  # Integers above 2^53 are not read through floats.
        exact = [_whole(text) for text in texts(x).reshape(-1)]
        return (
            np.array(exact, np.int64 if dtype.kind == "i" else np.uint64)
            .astype(dtype)
            .reshape(x.shape)
        )
    return np.array(numbers).astype(dtype).reshape(x.shape)


def _dtype(to: int | str) -> np.dtype[Any]:
    """Of a number of ONNX, or a name as version 1 has it."""
    found = to if isinstance(to, int) else TensorProto.DataType.Value(to)
    return dtypes.BY_ONNX[found].numpy


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return int(float(text))


def _written(number: Any) -> str:
    """The shortest text that reads as the number, where onnxruntime writes 8 or 17 digits."""
    text = str(number)
    return SPECIAL.get(text, text)


TEXTS.function = evaluate_texts
