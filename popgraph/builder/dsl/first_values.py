"""Which array does a weight begin with, or a constant hold?"""

from __future__ import annotations

import inspect
import zipfile
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from zlib import crc32

import numpy as np

from popgraph.builder.dsl.declared_types import static_type
from popgraph.builder.dsl.initializers import INITIALIZERS, Initializer
from popgraph.builder.dsl.known import folded
from popgraph.builder.dsl.literals import STRING, array_of, default_dtype, is_literal, typed_literal
from popgraph.builder.dsl.scope import Failed, Scope
from popgraph.builder.dsl.source import Source
from popgraph.builder.dsl.tree import (
    Argument,
    Call,
    Constant,
    Expression,
    Missing,
    Name,
    Number,
    Span,
    Text,
    Weight,
)
from popgraph.dialects.program.attributes import Array
from popgraph.support import dtypes
from popgraph.support.shapes import Shape, prod, text

LOAD = "load"
"""`load("weights.npz", "key")`: an array of a file beside the text."""

_MOST_BYTES = 1 << 36


@dataclass(frozen=True)
class Wanted:
    """
    What the array is for, and of which type it must be.

    `full_name`, which no other value of the graph has, is what random numbers are made from.
    """

    name: str
    full_name: str
    dtype: str
    shape: Shape
    span: Span


def first_value(
    source: Source, folder: Path, statement: Weight | Constant, scope: Scope, full_name: str
) -> Array:
    """The array of a `weight` or a `const`; fails when there is none of that type."""
    value = _settled(source, statement.value, scope)
    if statement.type is None:
        typed = typed_literal(value)
        if typed is None and not is_literal(value):
            source.parse_error(
                value.span,
                "a constant without a type must be written out",
                "`const axes = i64([0, -1])`, or `const ones: f32[3] = ones`",
            )
            raise Failed
        dtype = typed[0].text if typed else default_dtype(value)
        return array_of(source, typed[1] if typed else value, dtype)
    what = "a weight" if isinstance(statement, Weight) else "a constant"
    dtype, shape = static_type(source, statement.type, what, scope)
    wanted = Wanted(statement.name.text, full_name, dtype, shape, statement.type.span)
    if prod(shape) * _itemsize(dtype) > _MOST_BYTES:
        source.mismatch(wanted.span, f"{dtype}[{text(shape)}] does not fit into memory")
        raise Failed
    return _initial(source, folder, wanted, value)


def _settled(source: Source, value: Expression, scope: Scope) -> Expression:
    """The first value with everything computed that is known now; arguments, too."""
    if not isinstance(value, Call):
        return folded(source, value, scope.known)
    arguments = tuple(
        replace(one, value=folded(source, one.value, scope.known))
        if not isinstance(one.value, Missing)
        else one
        for one in value.arguments
    )
    return replace(value, arguments=arguments)


def _itemsize(dtype: str) -> int:
    return 1 if dtype == STRING else dtypes.BY_NAME[dtype].numpy.itemsize


def _initial(source: Source, folder: Path, wanted: Wanted, value: Expression) -> Array:
    match value:
        case _ if is_literal(value):
            return _written_out(source, wanted, value)
        case Name():
            return _initialised(source, wanted, value, ())
        case Call(path=path, arguments=arguments) if len(path.parts) == 1:
            if path.text == LOAD:
                return _loaded(source, folder, wanted, value)
            if typed := typed_literal(value):
                return _written_out(source, wanted, typed[1])
            return _initialised(source, wanted, path.parts[0], arguments)
    source.parse_error(
        value.span,
        "a first value is written out, made by an initialiser, or loaded",
        f'`[0.5, 1.5]`, `{LOAD}("weights.npz", "w")`, or one of {", ".join(INITIALIZERS)}',
    )
    raise Failed


def _written_out(source: Source, wanted: Wanted, value: Expression) -> Array:
    array = array_of(source, value, wanted.dtype)
    if array.size == 0 and prod(wanted.shape) == 0:
        return array.reshape(wanted.shape)
    if array.shape != wanted.shape:
        hint = ""
        if array.ndim == 0:
            hint = f"`constant({value.value})` fills all of it" if isinstance(value, Number) else ""
        source.mismatch(
            value.span,
            f"this has the shape {text(array.shape)}, the type says {text(wanted.shape)}",
            hint,
        )
        raise Failed
    return array


def _initialised(
    source: Source, wanted: Wanted, name: Name, arguments: tuple[Argument, ...]
) -> Array:
    make = INITIALIZERS.get(name.text)
    if make is None:
        known = [*INITIALIZERS, LOAD]
        close = get_close_matches(name.text, known, 1, 0.5)
        hint = f"did you mean `{close[0]}`?" if close else f"one of {', '.join(known)}"
        source.parse_error(name.span, f"there is no initialiser `{name.text}`", hint)
        raise Failed
    given = _bound(source, name, make, arguments)
    if "seed" in inspect.signature(make).parameters:
        given.setdefault("seed", crc32(wanted.full_name.encode()))
        _check_float(source, wanted, name)
    try:
        wide = make(wanted.shape, **given)
    except ValueError as error:
        source.parse_error(name.span, f"{name.text}: {error}")
        raise Failed from error
    return _narrowed(source, wanted, name, wide)


def _check_float(source: Source, wanted: Wanted, name: Name) -> None:
    if wanted.dtype == STRING or not dtypes.BY_NAME[wanted.dtype].is_float:
        source.mismatch(
            name.span,
            f"`{name.text}` makes floating-point numbers, `{wanted.name}` holds {wanted.dtype}",
        )
        raise Failed


def _narrowed(source: Source, wanted: Wanted, name: Name, wide: Array) -> Array:
    if wanted.dtype == STRING:
        source.mismatch(name.span, f"`{name.text}` makes numbers, `{wanted.name}` holds strings")
        raise Failed
    row = dtypes.BY_NAME[wanted.dtype]
    narrow = wide.astype(row.numpy)
    if not row.is_float and not np.array_equal(narrow.astype(wide.dtype), wide):
        source.mismatch(name.span, f"these values do not fit into {wanted.dtype}")
        raise Failed
    return narrow


def _bound(
    source: Source, name: Name, make: Initializer, arguments: tuple[Argument, ...]
) -> dict[str, int | float]:
    """The arguments of an initialiser by the names of its parameters."""
    signature = inspect.signature(make).parameters
    parameters = [one for one in signature if one != "shape"]
    positional = [
        one for one in parameters if signature[one].kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    given: dict[str, int | float] = {}
    for place, argument in enumerate(arguments):
        key = argument.keyword.text if argument.keyword else [*positional[place:], ""][0]
        if key not in parameters or key in given:
            source.parse_error(
                argument.span,
                f"`{name.text}` does not take this",
                f"it takes {', '.join(parameters) or 'no arguments'}",
            )
            raise Failed
        given[key] = _number(source, argument, key)
    missing = [
        one
        for one in positional
        if one not in given and signature[one].default is inspect.Parameter.empty
    ]
    if missing:
        source.parse_error(name.span, f"`{name.text}` needs {missing[0]}", f"`{name.text}(0.5)`")
        raise Failed
    return given


def _number(source: Source, argument: Argument, key: str) -> int | float:
    value = argument.value
    if isinstance(value, Number) and (
        key != "seed" or (isinstance(value.value, int) and value.value >= 0)
    ):
        return value.value
    wanted = "a whole number from 0 on" if key == "seed" else "a number"
    source.parse_error(value.span, f"`{key}` is {wanted}")
    raise Failed


def _loaded(source: Source, folder: Path, wanted: Wanted, call: Call) -> Array:
    """An array of an .npz file in the folder of the text, or in one below it."""
    texts = [argument.value for argument in call.arguments if argument.keyword is None]
    match texts:
        case [Text(value=file), Text(value=key)] if len(call.arguments) == 2:
            pass
        case _:
            source.parse_error(
                call.span, f"`{LOAD}` takes a file and a key", f'`{LOAD}("weights.npz", "w")`'
            )
            raise Failed
    path = (folder / file).resolve()
    if not path.is_relative_to(folder.resolve()):
        source.parse_error(
            texts[0].span,
            f"{file!r} is not in the folder of this text",
            "weights are read from there and from folders below it only",
        )
        raise Failed
    try:
        with np.load(path, allow_pickle=False) as archive:
            array = archive[key] if not isinstance(archive, np.ndarray) else None
    except KeyError as error:
        source.parse_error(texts[1].span, f"{file!r} holds no array {key!r}")
        raise Failed from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or str(error)
        source.parse_error(texts[0].span, f"{file!r} cannot be read: {reason}")
        raise Failed from error
    if array is None:
        source.parse_error(texts[0].span, f"{file!r} is no .npz file")
        raise Failed
    return _as_wanted(source, wanted, array)


def _as_wanted(source: Source, wanted: Wanted, array: Array) -> Array:
    if wanted.dtype == STRING:
        source.mismatch(wanted.span, "strings cannot be loaded from a file")
        raise Failed
    dtype = dtypes.BY_NAME[wanted.dtype].numpy
    if array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize:
        array = array.view(dtype)  # how .npz keeps the element types that NumPy has no name for
    if array.dtype != dtype or array.shape != wanted.shape:
        source.mismatch(
            wanted.span,
            f"the file holds {array.dtype} of shape {text(array.shape)}, "
            f"the type says {wanted.dtype} of shape {text(wanted.shape)}",
        )
        raise Failed
    return np.ascontiguousarray(array)
