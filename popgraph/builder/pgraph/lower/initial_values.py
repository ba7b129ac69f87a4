"""Evaluates the initial values of weights and constants to arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn
from zlib import crc32

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, IntAttr

from popgraph.builder.pgraph.check.const_eval import folded
from popgraph.builder.pgraph.check.declared_types import static_type, type_of
from popgraph.builder.pgraph.check.file_context import FileContext
from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.lower.initializers import INITIALIZERS, work
from popgraph.builder.pgraph.syntax.literals import (
    STRING,
    array_of,
    default_dtype,
    is_literal,
    is_written_out,
    python_value,
    typed_literal,
)
from popgraph.builder.pgraph.syntax.python_calls import bound, parameters
from popgraph.builder.pgraph.syntax.source import Failed, Source
from popgraph.builder.pgraph.syntax.tree import (
    AnyType,
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
from popgraph.dialects.onnx.attributes import SparseTensorAttr
from popgraph.dialects.onnx.tensorproto import check_sparse, from_value
from popgraph.dialects.onnx.types import describe
from popgraph.support import dtypes
from popgraph.support.array_files import read_npy, read_npz
from popgraph.support.arrays import Array
from popgraph.support.checkpoints import SUFFIXES
from popgraph.support.files import state_of
from popgraph.support.ggml_blocks import Blocks
from popgraph.support.names import closest
from popgraph.support.reading import Outside, Unreadable, path_inside
from popgraph.support.safetensors import as_type, is_type, read_part
from popgraph.support.shapes import Shape, prod, text

LOAD = "load"
"""`load("weights.npz", "key")`: an array of a file next to the text."""

TENSOR = "tensor"
"""`tensor(f32[2, 3], zeros)`: a tensor with an explicit type that is not a weight."""

SPARSE = "sparse"
"""`sparse(f32([1.5]), i64([[0, 1]]), [3, 4])`: values, indices, dense shape."""

_MAX_BYTES = 1 << 36

_NARROW = (dtypes.BY_NAME["f16"].numpy, dtypes.BY_NAME["bf16"].numpy)
"""Element types of files that become f32 without a rounding."""


@dataclass(frozen=True)
class DeclaredTensor:
    """
    The name and the required type of an array.

    `full_name`, which is unique in the graph, seeds random numbers.
    """

    name: str
    full_name: str
    dtype: str
    shape: Shape
    span: Span
    is_weight: bool = False
    """Whether a file may store f32 elements in fewer bits, and a thread may draw them."""


@dataclass(frozen=True)
class Narrow:
    """An f32 weight that its file stores in fewer bits."""

    stored: Array | Blocks


@dataclass(frozen=True)
class Drawn:
    """A weight of random numbers; equal origins draw equal numbers."""

    origin: str
    shape: Shape
    dtype: np.dtype[Any]
    draw: Callable[[], Array]


def initial_value(
    context: FileContext, statement: Weight | Constant, scope: Scope, full_name: str
) -> Array | Narrow | Drawn | SparseTensorAttr:
    """The tensor of a `weight` or a `const`; fails if the types differ."""
    source = context.source
    value = _settled(source, statement.value, scope)
    if statement.type is None:
        found = None if isinstance(value, Name) else tensor_value(context, value, scope)
        if found is None:
            source.parse_error(
                value.span,
                "a constant without a type must be written out",
                "`const axes = i64([0, -1])`, or `const ones: f32[3] = ones`",
            )
            raise Failed
        return found
    what = "a weight" if isinstance(statement, Weight) else "a constant"
    declared = _declared(source, (statement.name.text, full_name), statement.type, what, scope)
    if isinstance(statement, Weight) and (call := call_of(SPARSE, value)):
        return _sparse_weight(context, declared, call, scope)
    if isinstance(statement, Weight):
        declared = replace(declared, is_weight=True)
    return _initial(context, declared, value)


def _declared(
    source: Source, names: tuple[str, str], type_: AnyType, what: str, scope: Scope
) -> DeclaredTensor:
    """The required type, which must be static; names in the text and in full."""
    dtype, shape = static_type(source, type_, what, scope)
    if prod(shape) * _itemsize(dtype) > _MAX_BYTES:
        source.mismatch(type_.span, f"{dtype}[{text(shape)}] does not fit into memory")
        raise Failed
    return DeclaredTensor(*names, dtype, shape, type_.span)


def tensor_value(context: FileContext, expression: Expression, scope: Scope) -> Array | None:
    """
    The array of an expression with an explicit type; None for other expressions.

    `[1, 2]`, `f32([1, 2])`, `tensor(f32[0, 3], [])`, `load("weights.npz", "key")`.
    """
    if is_literal(expression):
        return array_of(context.source, expression, default_dtype(expression))
    if typed := typed_literal(expression):
        return array_of(context.source, typed[1], typed[0].text)
    if call := call_of(TENSOR, expression):
        match call.arguments:
            case [Argument(keyword=None, value=type_), Argument(keyword=None, value=value)] if (
                not isinstance(type_, Missing) and not isinstance(value, Missing)
            ):
                if written := type_of(type_):
                    declared = _declared(
                        context.source, (TENSOR, TENSOR), written, "a tensor", scope
                    )
                    made = _initial(context, declared, _settled(context.source, value, scope))
                    assert not isinstance(made, Narrow | Drawn), "only weights are narrow or drawn"
                    return made
    if call := call_of(LOAD, expression):
        loaded = _loaded(context, None, call)
        assert not isinstance(loaded, Narrow), "only weights may be narrow"
        return loaded
    return None


def call_of(name: str, expression: object) -> Call | None:
    """The expression, if it is a call of that name."""
    return expression if isinstance(expression, Call) and expression.path.text == name else None


def sparse_value(context: FileContext, call: Call, scope: Scope) -> SparseTensorAttr | None:
    """The value of `sparse(f32([1.5]), i64([[0, 1]]), [3, 4])`; None if it is malformed."""
    shape = python_value(call.arguments[2].value) if len(call.arguments) == 3 else None
    if not isinstance(shape, list) or not all(isinstance(one, int) for one in shape):
        return None
    return _sparse(context, call, [int(str(one)) for one in shape], scope)


def _sparse_weight(
    context: FileContext, declared: DeclaredTensor, call: Call, scope: Scope
) -> SparseTensorAttr:
    found = _sparse(context, call, declared.shape, scope) if len(call.arguments) == 2 else None
    dtype = None if found is None else describe(found.type.element_type)
    if found is None or dtype != declared.dtype:
        context.source.mismatch(
            call.span,
            "a sparse weight is given by its values and their indices",
            "`weight w: f32[3, 4] = sparse(f32([0.5, 1.5]), i64([[0, 1], [2, 3]]))`",
        )
        raise Failed
    return found


def _sparse(
    context: FileContext, call: Call, shape: Sequence[int], scope: Scope
) -> SparseTensorAttr | None:
    parts = [
        None
        if one.keyword or isinstance(one.value, Missing)
        else tensor_value(context, one.value, scope)
        for one in call.arguments[:2]
    ]
    if len(parts) < 2 or parts[0] is None or parts[1] is None:
        return None
    values, indices = (from_value(part, context.store) for part in parts)
    made = SparseTensorAttr(values, indices, ArrayAttr([IntAttr(size) for size in shape]))
    check_sparse(made, context.store, "this sparse tensor")
    return made


def _settled(source: Source, value: Expression, scope: Scope) -> Expression:
    """Folds constants in an initial value and its arguments."""
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


def _initial(
    context: FileContext, declared: DeclaredTensor, value: Expression
) -> Array | Narrow | Drawn:
    source = context.source
    match value:
        case _ if is_written_out(value):
            return _written_out(source, declared, value)
        case Name(text=name) if name == LOAD:
            return _from_weights(context, declared, value)
        case Name():
            return _initialised(source, declared, value, ())
        case Call(path=path, arguments=arguments) if len(path.parts) == 1:
            if path.text == LOAD:
                return _loaded(context, declared, value)
            if typed := typed_literal(value):
                return _written_out(source, declared, typed[1])
            return _initialised(source, declared, path.parts[0], arguments)
    source.parse_error(
        value.span,
        "an initial value is a literal, an initializer, or loaded from a file",
        f'`[0.5, 1.5]`, `{LOAD}("weights.npz", "w")`, or one of {", ".join(INITIALIZERS)}',
    )
    raise Failed


def _written_out(source: Source, declared: DeclaredTensor, value: Expression) -> Array:
    array = array_of(source, value, declared.dtype)
    if array.size == 0 and prod(declared.shape) == 0:
        return array.reshape(declared.shape)
    if array.shape != declared.shape:
        hint = ""
        if array.ndim == 0:
            hint = (
                f"`constant({value.value})` fills the tensor" if isinstance(value, Number) else ""
            )
        source.mismatch(
            value.span,
            f"this has the shape {text(array.shape)}, the type says {text(declared.shape)}",
            hint,
        )
        raise Failed
    return array


def _initialised(
    source: Source, declared: DeclaredTensor, name: Name, arguments: tuple[Argument, ...]
) -> Array | Drawn:
    make = INITIALIZERS.get(name.text)
    if make is None:
        known = [*INITIALIZERS, LOAD]
        close = closest(name.text, known, 0.5)
        hint = f"did you mean `{close}`?" if close else f"one of {', '.join(known)}"
        source.parse_error(name.span, f"there is no initialiser `{name.text}`", hint)
        raise Failed
    given = bound(source, name, make, arguments, partial(_number, source))
    if "seed" in parameters(make):
        given.setdefault("seed", crc32(declared.full_name.encode()))
        _check_float(source, declared, name)
    source.fill(name.span, work(make, declared.shape))
    try:
        if declared.is_weight and "seed" in given:
            make((1,), **given)  # Wrong arguments fail here, in any shape.
            dtype = dtypes.BY_NAME[declared.dtype].numpy
            origin = f"{name.text} {sorted(given.items())}"
            drawn = partial(make, declared.shape, **given)
            return Drawn(origin, declared.shape, dtype, lambda: drawn().astype(dtype))
        wide = make(declared.shape, **given)
    except (ValueError, OverflowError) as error:
        source.parse_error(name.span, f"{name.text}: {error}")
        raise Failed from error
    return _narrowed(source, declared, name, wide)


def _check_float(source: Source, declared: DeclaredTensor, name: Name) -> None:
    if declared.dtype == STRING or not dtypes.BY_NAME[declared.dtype].is_float:
        source.mismatch(
            name.span,
            f"`{name.text}` generates floating-point numbers, but `{declared.name}` has type "
            f"{declared.dtype}",
        )
        raise Failed


def _narrowed(source: Source, declared: DeclaredTensor, name: Name, wide: Array) -> Array:
    if declared.dtype == STRING:
        source.mismatch(
            name.span, f"`{name.text}` generates numbers, but `{declared.name}` holds strings"
        )
        raise Failed
    row = dtypes.BY_NAME[declared.dtype]
    narrow = wide.astype(row.numpy)
    if not row.is_float and not np.array_equal(narrow.astype(wide.dtype), wide):
        source.mismatch(name.span, f"these values do not fit into {declared.dtype}")
        raise Failed
    return narrow


def _number(source: Source, argument: Argument, key: str) -> int | float:
    value = argument.value
    if isinstance(value, Number) and (
        key != "seed" or (isinstance(value.value, int) and value.value >= 0)
    ):
        return value.value
    expected = "a non-negative integer" if key == "seed" else "a number"
    source.parse_error(value.span, f"`{key}` is {expected}")
    raise Failed


def _loaded(context: FileContext, declared: DeclaredTensor | None, call: Call) -> Array | Narrow:
    """Loads an array from a file in the folder of the text, or below it."""
    source = context.source
    given = {
        one.keyword.text if one.keyword else place: one for place, one in enumerate(call.arguments)
    }
    file, key, offset = (given.pop(one, None) for one in (0, 1, "offset"))
    if file is None or not isinstance(file.value, Text) or given:
        source.parse_error(
            call.span, f"`{LOAD}` takes a file and a key", f'`{LOAD}("weights.npz", "w")`'
        )
        raise Failed
    path = path_beside(context, file.value.value, file.value.span)
    try:
        array = _read(context, path, declared, call, key, offset)
    except Unreadable as error:
        source.parse_error(file.span, f"{file.value.value!r} cannot be read: {error}")
        raise Failed from error
    except KeyError as error:
        assert key is not None
        name = str(python_value(key.value))
        source.parse_error(
            key.span, f"{file.value.value!r} holds no array {name!r}", _closest(context, path, name)
        )
        raise Failed from error
    context.store.files.setdefault(path, state_of(path))
    if declared is not None:
        return _as_declared(source, declared, array)
    return array.floats() if isinstance(array, Blocks) else array


def _closest(context: FileContext, path: Path, name: str) -> str:
    """The hint for a name that a weight file does not have."""
    opened = context.checkpoints.get(path)
    close = opened.closest(name) if opened else ""
    return f"did you mean {close!r}?" if close else ""


def _from_weights(context: FileContext, declared: DeclaredTensor, place: Name) -> Array | Narrow:
    """The array in the weight file with the weight's full name, or with dots in it."""
    source, path = context.source, context.weights
    if path is None:
        source.parse_error(
            place.span,
            f"`{LOAD}` without a file needs a weights file of the graph",
            f'`@weights("model.safetensors")` before the graph, or `{LOAD}("w.npz", "key")`',
        )
        raise Failed
    try:
        array = _read_key(context, path, declared.full_name, declared)
    except Unreadable as error:
        source.parse_error(place.span, f"{path.name!r} cannot be read: {error}")
        raise Failed from error
    except KeyError as error:
        source.parse_error(
            place.span,
            f"{path.name!r} holds no array {declared.full_name!r}",
            _closest(context, path, declared.full_name),
        )
        raise Failed from error
    context.store.files.setdefault(path, state_of(path))
    return _as_declared(source, declared, array)


def path_beside(context: FileContext, file: str, span: Span) -> Path:
    """The path of a file below the folder of the text; fails for any other."""
    try:
        return path_inside(context.folder, file)
    except Outside as error:
        context.source.parse_error(
            span,
            f"{file!r} is not in the folder of this text",
            "weights are read from there and from folders below it only",
        )
        raise Failed from error
    except Unreadable as error:
        context.source.parse_error(span, f"{file!r} cannot be read: {error}")
        raise Failed from error


def _read_key(
    context: FileContext, path: Path, key: str, declared: DeclaredTensor | None
) -> Array | Blocks:
    """The array of a key; `KeyError` if the file has none."""
    if path.suffix == ".npz":
        check = None if declared is None else partial(_check_type, context.source, declared)
        return read_npz(path, key, check)
    opened = context.checkpoint(path)
    found = opened.find(key)
    if found is None:
        raise KeyError(key)
    return opened.read(found)


def _read(
    context: FileContext,
    path: Path,
    declared: DeclaredTensor | None,
    call: Call,
    key: Argument | None,
    offset: Argument | None,
) -> Array | Blocks:
    """Reads a file as the arguments of `load` specify."""
    source = context.source
    match path.suffix, key and key.value, offset and offset.value:
        case ((".npz" | ".safetensors" | ".gguf" | ".json"), Text(value=name), None):
            return _read_key(context, path, name, declared)
        case ".npy", None, None:
            return read_npy(path, mapped=True)
        case suffix, None, (None | Number(value=int())) as place if declared is not None and (
            suffix not in (*SUFFIXES, ".npy") and declared.dtype != STRING
        ):
            first = place.value if isinstance(place, Number) else 0
            return read_part(path, dtypes.BY_NAME[declared.dtype].numpy, declared.shape, int(first))
    source.parse_error(
        call.span,
        f"`{LOAD}` takes a file and a key",
        f'`{LOAD}("weights.npz", "w")`, `{LOAD}("w.npy")`, `{LOAD}("model.bin", offset=64)`',
    )
    raise Failed


def _as_declared(source: Source, declared: DeclaredTensor, array: Array | Blocks) -> Array | Narrow:
    fits = declared.dtype == "f32" and array.shape == declared.shape and declared.is_weight
    if isinstance(array, Blocks):
        if not fits:
            _refuse_type(source, declared, "blocks of f32", array.shape)
        return Narrow(array)
    if fits and array.dtype in _NARROW:
        return Narrow(array)
    _check_type(source, declared, array.dtype, array.shape)
    found = as_type(array, dtypes.BY_NAME[declared.dtype].numpy, declared.shape)
    assert found is not None, "its type was checked"
    return np.ascontiguousarray(found).reshape(declared.shape)


def _check_type(
    source: Source, declared: DeclaredTensor, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> None:
    """Fails unless an array of a file has the declared type and shape."""
    if declared.dtype == STRING:
        source.mismatch(declared.span, "strings cannot be loaded from a file")
        raise Failed
    if not is_type(dtype, shape, dtypes.BY_NAME[declared.dtype].numpy, declared.shape):
        _refuse_type(source, declared, str(dtype), shape)


def _refuse_type(
    source: Source, declared: DeclaredTensor, held: str, shape: tuple[int, ...]
) -> NoReturn:
    source.mismatch(
        declared.span,
        f"the file holds {held} of shape {text(shape)}, "
        f"the type says {declared.dtype} of shape {text(declared.shape)}",
    )
    raise Failed
