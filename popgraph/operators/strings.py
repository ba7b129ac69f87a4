"""
Operators on strings, and operators on any type (move, compare, convert) applied to strings.

The latter run their numeric lowering on the strings' ranks in a sorted list. The empty string,
which pads, has rank 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from popgraph.dialects.onnx.evaluation import LOWERED, TEXTS, makes_text
from popgraph.dialects.onnx.host_values import holds_text, objects, texts
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.view import NodeView
from popgraph.dialects.program import WeightStore
from popgraph.operators.record import computes
from popgraph.operators.regular_expressions import matcher
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError


@computes("StringConcat")
def string_concat(node: NodeView, x: Array, y: Array) -> Array:
    return np.asarray(np.add(texts(x), texts(y)), object)


@computes("StringSplit")
def string_split(node: NodeView, x: Array) -> tuple[Array, Array]:
    """
    Substrings along a new axis, padded with empty strings, and their counts.

    Without a delimiter, Python's whitespace separates, and is stripped at both ends: ONNX's
    reference keeps it after the last of `maxsplit` splits, and onnxruntime only splits at ASCII
    whitespace. With a delimiter, an empty string is one substring, as in the reference;
    onnxruntime counts none.
    """
    delimiter, most = node.attribute("delimiter") or None, node.attribute("maxsplit", -1)
    whole = texts(x).reshape(-1)
    parts = [(one if delimiter else one.strip()).split(delimiter, most) for one in whole]
    longest = max(map(len, parts), default=0)
    filled = [one for part in parts for one in part + [""] * (longest - len(part))]
    counts = np.array([len(part) for part in parts], np.int64)
    return objects(filled, (*x.shape, longest)), counts.reshape(x.shape)


@computes("StringNormalizer")
def string_normalizer(node: NodeView, x: Array) -> Array:
    """
    Removes stop words and changes case; the result is [""] if no word is left.

    Case is Unicode's, whatever the locale.
    """
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(node.attribute("case_change_action"), str)
    compared = str if node.attribute("is_case_sensitive") else str.lower
    stops = {compared(word) for word in node.listed("stopwords")}
    kept = [change(word) for word in texts(x).reshape(-1) if compared(word) not in stops] or [""]
    return objects(kept, (len(kept),) if x.ndim == 1 else (1, len(kept)))


@computes("RegexFullMatch")
def regex_full_match(node: NodeView, x: Array) -> Array:
    """Whether each whole string matches the pattern, see `matcher`."""
    try:
        matches = matcher(node.attribute("pattern"))
    except re.error as error:
        raise node.fail(
            f"RegexFullMatch: pattern {node.text('pattern')!r}: {error}",
            "use RE2's syntax, without scripts (\\p{Greek}) and \\C",
        ) from error
    found = [matches(text) for text in texts(x).reshape(-1)]
    return np.array(found, bool).reshape(x.shape)


# Operators of strings and numbers


SPECIAL = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}
"""Texts of numbers that ONNX writes differently from NumPy."""


def evaluate_texts(
    op: SchemaOp, operands: Sequence[Any], store: WeightStore, opsets: Mapping[str, int]
) -> list[Any] | None:
    """The outputs of an operator on strings; None if it has no lowering."""
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
    """The type variable of an operand or a result; the last formal may be variadic."""
    return str(formals[min(at, len(formals) - 1)].type_str)


def _cast(op: OnnxOp, x: Array, like: Array | None = None) -> Array:
    """
    Casts to or from strings, to the type of `like` or of the attribute `to`.

    Texts of integers may have a fraction, which is truncated; ONNX's reference refuses it. Bools
    are "0" and "1", as in onnxruntime; for the reference, every string but "" is true.
    """
    if makes_text(op) or (like is not None and holds_text(like)):
        return texts(x) if holds_text(x) else objects(map(_written, x.reshape(-1)), x.shape)
    if like is None:
        to: Any = op.attribute_values()["to"]  # a name in version 1
        number = to if isinstance(to, int) else TensorProto.DataType.Value(to)
        dtype = dtypes.BY_ONNX[number].numpy
    else:
        dtype = like.dtype
    read = _whole if dtype.kind in "iu" else float
    try:
        numbers = [read(text) for text in texts(x).reshape(-1)]
    except ValueError as error:
        raise RunError(
            f"{op.op_type}: {error}", op.where(), "cast only strings that spell numbers"
        ) from None
    return np.array(numbers).astype(dtype).reshape(x.shape)


def _whole(text: str) -> int:
    """Parses an integer exactly, or truncates a float; floats lose digits above 2^53."""
    try:
        return int(text)
    except ValueError:
        return int(float(text))


def _written(number: Any) -> str:
    """
    The shortest text that parses to the number: "0.1", "1e-05", "3.0".

    onnxruntime writes up to 8 or 17 digits of floats, and integral ones without a point.
    """
    text = str(int(number) if number.dtype == bool else number)
    return SPECIAL.get(text, text)


TEXTS.function = evaluate_texts
