"""Evaluates literals such as `[[1, 2], [3, 4]]` to arrays."""

from __future__ import annotations

import numpy as np

from popgraph.builder.budget import LEAF
from popgraph.builder.pgraph.syntax.source import Failed, Source
from popgraph.builder.pgraph.syntax.tree import (
    Bytes,
    Call,
    Expression,
    Items,
    Name,
    Number,
    Span,
    Text,
    Truth,
)
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.names import closest

STRING = "string"
"""The element type of string tensors; it is not numeric, so it has no `DType`."""

BITS = "bits"
"""`f32(bits([0x7fc00001]))`: elements by their bit patterns."""

_MAX_AXES = 32

Leaf = int | float | bool | str | bytes


def is_literal(expression: object) -> bool:
    """Whether this is a number, a string, `true`, `false` or a list of these."""
    if isinstance(expression, Items):
        return all(map(is_literal, expression.items))
    return isinstance(expression, Number | Text | Bytes | Truth)


def bits_of(expression: object) -> Expression | None:
    """The literal in `bits([0x7fc00001])`; None for other expressions."""
    match expression:
        case Call(path=path, arguments=[argument]) if (
            path.text == BITS and argument.keyword is None and is_literal(argument.value)
        ):
            return argument.value  # type: ignore[return-value]
    return None


def is_written_out(expression: object) -> bool:
    """Whether this is a literal, or the bits of one."""
    return is_literal(expression) or bits_of(expression) is not None


def is_known(expression: object) -> bool:
    """Whether this can be the value of a constant name."""
    return is_literal(expression)


def python_value(expression: object) -> int | float | bool | str | bytes | list[object] | None:
    """The Python value of a literal; None for other expressions."""
    match expression:
        case Number(value=value) | Truth(value=value) | Text(value=value) | Bytes(value=value):
            return value
        case Items(items=items):
            values = [python_value(item) for item in items]
            return None if None in values else list(values)
        case _:
            return None


def typed_literal(expression: object) -> tuple[Name, Expression] | None:
    """The element type and the literal of `i64([0, -1])`; None for other expressions."""
    match expression:
        case Call(path=path, arguments=[argument]) if (
            len(path.parts) == 1
            and is_dtype(path.text)
            and argument.keyword is None
            and is_written_out(argument.value)
        ):
            return path.parts[0], argument.value  # type: ignore[return-value]
    return None


def is_dtype(name: str) -> bool:
    return name in dtypes.BY_NAME or name == STRING


def check_dtype(source: Source, name: Name) -> bool:
    """Whether an element type exists; reports an error otherwise."""
    if is_dtype(name.text):
        return True
    close = _other_spelling(name.text)
    hint = f"did you mean `{close}`?" if close else f"one of {', '.join(dtypes.BY_NAME)}, string"
    source.mismatch(name.span, f"there is no element type `{name.text}`", hint)
    return False


def _other_spelling(name: str) -> str:
    """Our name of a PopART or NumPy element type, otherwise the most similar one."""
    if name.upper() in dtypes.BY_POPART:
        return dtypes.BY_POPART[name.upper()].name
    try:
        return dtypes.from_numpy(name).name
    except (TypeError, KeyError):
        return closest(name, [*dtypes.BY_NAME, STRING], 0.5)


def default_dtype(expression: Expression) -> str:
    """The default element type of a literal: f32, i64, bool or string."""
    leaves = [type(leaf) for leaf in _leaves(expression)]
    if float in leaves or not leaves:
        return "f32"
    if int in leaves:
        return "i64"
    return "bool" if bool in leaves else STRING


def array_of(source: Source, expression: Expression, dtype: str) -> Array:
    """
    The array of a literal; fails if an element does not fit the element type.

    A complex number is a list of its two parts.
    """
    if (bits := bits_of(expression)) is not None:
        return _array_of_bits(source, bits, dtype)
    shape = _shape(source, expression)
    flat = list(_leaves(expression))
    source.spend(expression.span, LEAF * len(flat))
    spans = list(_spans(expression))
    for leaf, span in zip(flat, spans, strict=True):
        _check_leaf(source, span, leaf, dtype)
    if dtype == STRING:
        strings = np.empty(len(flat), object)
        strings[:] = [_text(leaf) for leaf in flat]
        return strings.reshape(shape)
    if dtype in _PARTS:
        parts = np.array(flat, np.float64).reshape(shape)
        return _paired(source, expression, parts.astype(_PARTS[dtype]), dtype)
    row = dtypes.BY_NAME[dtype].numpy
    try:
        wide = np.array(flat, _exact(flat)).reshape(shape)
    except OverflowError as error:
        source.mismatch(expression.span, f"there is a number too large for `{dtype}`")
        raise Failed from error
    return wide.astype(row)


def _text(leaf: object) -> str:
    """A string element; bytes that are not UTF-8 are surrogate-escaped."""
    return leaf.decode("utf-8", "surrogateescape") if isinstance(leaf, bytes) else str(leaf)


_PARTS = {"c64": np.float32, "c128": np.float64}


def _paired(source: Source, expression: Expression, parts: Array, dtype: str) -> Array:
    """Complex numbers from real and imaginary parts along the last axis."""
    row = dtypes.BY_NAME[dtype].numpy
    if parts.size == 0:
        return np.empty(parts.shape, row)
    if not parts.ndim or parts.shape[-1] != 2:
        source.mismatch(
            expression.span,
            f"an element of type `{dtype}` is a list of two numbers",
            f"`{dtype}([0.5, -1.0])` is one number, the real part first",
        )
        raise Failed
    return np.ascontiguousarray(parts).view(row).reshape(parts.shape[:-1])


def _array_of_bits(source: Source, bits: Expression, dtype: str) -> Array:
    part = _PARTS.get(dtype)
    if dtype == STRING or dtype == "bool":
        source.mismatch(bits.span, f"an element of type `{dtype}` is not given by its bits")
        raise Failed
    row = dtypes.BY_NAME[dtype].numpy if part is None else np.dtype(part)
    unsigned = array_of(source, bits, f"u{row.itemsize * 8}")
    if part is not None:
        return _paired(source, bits, unsigned.view(row), dtype)
    return unsigned.view(row)


def _exact(flat: list[Leaf]) -> type[np.generic]:
    """A NumPy type that holds all these numbers exactly before conversion."""
    if any(isinstance(leaf, float) for leaf in flat):
        return np.float64
    if any(leaf >= 1 << 63 for leaf in flat if isinstance(leaf, int)):
        return np.uint64
    return np.int64


def _shape(source: Source, expression: Expression) -> tuple[int, ...]:
    if not isinstance(expression, Items):
        return ()
    shapes = [_shape(source, item) for item in expression.items]
    if shapes and len(shapes[0]) >= _MAX_AXES:
        source.mismatch(expression.span, f"a list has at most {_MAX_AXES} levels")
        raise Failed
    for item, shape in zip(expression.items, shapes, strict=True):
        if shape != shapes[0]:
            source.mismatch(
                item.span,
                "the rows of this list have different shapes",
                "all lists of a level need the same number of items",
            )
            raise Failed
    return (len(shapes), *(shapes[0] if shapes else ()))


def _leaves(expression: Expression) -> list[Leaf]:
    match expression:
        case Items():
            return [leaf for item in expression.items for leaf in _leaves(item)]
        case Number() | Truth() | Text() | Bytes():
            return [expression.value]
        case _:
            raise AssertionError("not a literal")


def _spans(expression: Expression) -> list[Span]:
    if isinstance(expression, Items):
        return [span for item in expression.items for span in _spans(item)]
    return [expression.span]


def _check_leaf(source: Source, span: Span, leaf: Leaf, dtype: str) -> None:
    wanted = _wanted(dtype)
    fits = {
        "a string": isinstance(leaf, str | bytes),
        "true or false": isinstance(leaf, bool),
        "an integer": isinstance(leaf, int) and not isinstance(leaf, bool),
        "a number": isinstance(leaf, int | float) and not isinstance(leaf, bool),
    }
    if not fits[wanted]:
        source.mismatch(span, f"an element of type `{dtype}` must be {wanted}")
        raise Failed
    if wanted == "an integer":
        low, high = _limits(dtype)
        assert isinstance(leaf, int)
        if not low <= leaf <= high:
            source.mismatch(span, f"{leaf} does not fit into `{dtype}` ({low} to {high})")
            raise Failed


def _wanted(dtype: str) -> str:
    if dtype == STRING:
        return "a string"
    if dtype == "bool":
        return "true or false"
    return "an integer" if dtypes.BY_NAME[dtype].is_integer else "a number"


def _limits(dtype: str) -> tuple[int, int]:
    bits = int(dtype[1:])
    return (0, (1 << bits) - 1) if dtype[0] == "u" else (-(1 << bits - 1), (1 << bits - 1) - 1)
