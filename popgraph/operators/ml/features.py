"""
Feature operators of ai.onnx.ml: scaling, imputing, encoding by tables, dictionaries.

Operators on numbers are compiled; strings and dictionaries are computed in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.ir import Attribute, SSAValue

from popgraph.dialects import element_types
from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.dialects.onnx.host_values import holds_text, plain
from popgraph.dialects.onnx.open_containers import code_points
from popgraph.dialects.onnx.types import STRING, MapType
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.arithmetic import cast
from popgraph.operators.compared_strings import all_equal, hashes_of
from popgraph.operators.elements import codes_of, is_strings
from popgraph.operators.lookups import found_by_key
from popgraph.operators.ml.scores import F32, F64, computed_in, constant, reals
from popgraph.operators.movement import reshaped, sliced
from popgraph.operators.node import Node
from popgraph.operators.record import (
    ML,
    STEPS,
    Bounds,
    Lowered,
    bounds,
    chooses,
    computes,
    lowers,
    without_gradient,
)
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import NeedsHostError, TypeMismatchError
from popgraph.support.shapes import prod


@bounds("ArrayFeatureExtractor", domain=ML)
def columns(node: NodeView) -> Iterator[Bounds]:
    """Indices into the last axis; negative ones are out of range."""
    data = node.static_shape_of(0)
    if data:
        yield Bounds(1, "index", (0,), (data[-1] - 1,))


@lowers("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(node: Node) -> Lowered:
    """Gathers columns by their indices along the last axis."""
    data = node[0] if node.rank > 1 else reshaped(node[0], (1, *node.shape))
    known, width = node.lowering.array(node[1]), shape_of(data)[-1]
    if known is not None and known.size and not 0 <= known.min() <= known.max() < width:
        raise TypeMismatchError(
            f"ArrayFeatureExtractor has indices {int(known.min())} to {int(known.max())} "
            f"for {width} columns",
            hint=f"use 0 to {width - 1}",
        )
    places = reshaped(node[1], (prod(shape_of(node[1])),))
    return gc.GatherOp(data, places, axis=len(shape_of(data)) - 1)


without_gradient("Binarizer", STEPS, domain=ML)


@lowers("Binarizer", domain=ML)
def binarizer(node: Node) -> Lowered:
    """1 if x > threshold, else 0; integers are compared with the unrounded threshold."""
    threshold = np.array(node.real("threshold"), np.float32)
    wide = node[0] if node.dtype.is_float else cast(node[0], F64)
    above = gc.CompareOp(wide, constant(node, threshold, wide), predicate="gt")
    return cast(above, node.dtype)


@lowers("Scaler", domain=ML)
def scaler(node: Node) -> Lowered:
    """`(x - offset) * scale` in f32; offset and scale are scalars or vectors of features."""
    wide = cast(node[0], computed_in(node))
    value: Operand = wide
    for name, operation in (("offset", gc.SubOp), ("scale", gc.MulOp)):
        if (given := reals(node, name)).size:
            value = operation(value, _per_feature(node, wide, given, name))
    return cast(value, F32)


def _per_feature(node: Node, like: SSAValue, given: Array, name: str) -> SSAValue:
    if len(given) not in (1, node.shape[-1]):
        raise TypeMismatchError(
            f"`{name}` of {node.op.op_type} has {len(given)} elements for {node.shape[-1]} "
            "features",
            hint="give one, or one per feature",
        )
    return constant(node, given if len(given) > 1 else given[0], like)


chooses("Normalizer", domain=ML, norm=("MAX", "L1", "L2"))


@lowers("Normalizer", domain=ML)
def normalizer(node: Node) -> Lowered:
    """Rows divided by their maximum or norm; rows with divisor 0 stay unchanged."""
    value = cast(node[0], computed_in(node))
    axes = [node.rank - 1] if node.rank < 2 else [1]
    match node.text("norm", "MAX"):
        case "MAX":
            size: Operand = gc.ReduceMaxOp(value, axes=axes, keepdims=True)
        case "L1":
            size = gc.ReduceSumOp(gc.AbsOp(value), axes=axes, keepdims=True)
        case "L2":
            squares = gc.ReduceSumOp(gc.MulOp(value, value), axes=axes, keepdims=True)
            size = gc.SqrtOp(squares)
        case other:
            raise node.unsupported(f"the norm {other!r}", "use MAX, L1 or L2")
    zero, one = constant(node, 0, value), constant(node, 1, value)
    is_zero = gc.CompareOp(size, zero, predicate="eq")
    return cast(gc.DivOp(value, gc.WhereOp(is_zero, one, size)), F32)


@lowers("Imputer", domain=ML)
def imputer(node: Node) -> Lowered:
    """Replaces elements equal to a value (or NaN) by a value for all, or one per feature."""
    if node.dtype.is_float:
        given: Array = reals(node, "imputed_value_floats")
        replaced: float = float(np.float32(node.real("replaced_value_float")))
    else:
        given = np.array(node.integers("imputed_value_int64s"), np.int64)
        replaced = node.integer("replaced_value_int64")
    if not len(given):
        raise TypeMismatchError(
            f"Imputer has no values for elements of {node.dtype.name}",
            hint="give imputed_value_floats for floats, imputed_value_int64s for integers",
        )
    if np.isnan(replaced):
        is_missing: Operand = gc.IsNanOp(node[0])
    else:
        what = constant(node, replaced, node[0])
        is_missing = gc.CompareOp(node[0], what, predicate="eq")
    values = _per_feature(node, node[0], given, "imputed_value")
    return gc.WhereOp(is_missing, gc.BroadcastOp(values, shape=node.shape), node[0])


@lowers("FeatureVectorizer", domain=ML)
def feature_vectorizer(node: Node) -> Lowered:
    """Concatenates inputs, each cropped or zero-padded to its entry of `inputdimensions`."""
    sizes = node.integers("inputdimensions")
    parts = [_as_rows(value) for value in node.inputs]
    if len(sizes) != len(parts):
        raise TypeMismatchError(
            f"FeatureVectorizer has {len(sizes)} dimensions for {len(parts)} inputs",
            hint="give one element of `inputdimensions` per input",
        )
    return gc.ConcatOp(
        [_of_size(one, size) for one, size in zip(parts, sizes, strict=True)], axis=1
    )


def _as_rows(value: SSAValue) -> SSAValue:
    """The input as an f32 matrix; a vector is one row."""
    shape = shape_of(value)
    rows = (1, prod(shape)) if len(shape) < 2 else (shape[0], prod(shape[1:]))
    return SSAValue.get(reshaped(cast(value, F32), rows))


def _of_size(value: SSAValue, size: int) -> SSAValue:
    width = shape_of(value)[1]
    if width > size:
        return SSAValue.get(sliced(value, {1: (0, size, 1)}))
    if width == size:
        return value
    more = [0, size - width]
    return gc.PadOp(value, low=[0, 0], high=more, interior=[0, 0], value=0.0).result


# Encoding by tables


without_gradient("LabelEncoder OneHotEncoder", "it only compares its input with keys", domain=ML)


LISTS: dict[str, Any] = {
    "tensor": None,
    "strings": object,
    "int64s": np.int64,
    "floats": np.float32,
}
"""The suffixes of LabelEncoder's key and value attributes, with their element types."""


@lowers("LabelEncoder", domain=ML)
def label_encoder(node: Node) -> Lowered:
    """Maps each element to the value of its key (the first of duplicates), else the default."""
    if is_strings(node[0]):
        return _labels_of_strings(node)
    keys, values, default = _table(node)
    if keys.dtype != node.dtype.numpy:
        raise TypeMismatchError(
            f"LabelEncoder has keys of {keys.dtype} for an input of {node.dtype.numpy}",
            hint="give the keys in the attribute of the input's type",
        )
    return found_by_key(node, node[0], keys, values, np.asarray(default, values.dtype))


def _labels_of_strings(node: Node) -> SSAValue:
    """Looks up a hash of the code points, then compares with the only key that may match."""
    keys, values, default = _table(node)
    codes = codes_of(node[0])
    width = shape_of(codes)[-1]
    first = {key: at for at, key in reversed([*enumerate(keys.tolist())]) if len(key) <= width}
    table = code_points(np.array([*first, ""], object), width)
    hashes, powers = hashes_of(table[:-1])
    last = len(shape_of(codes)) - 1
    digits = gc.MulOp(cast(codes, dtypes.BY_NAME["u64"]), node.literal(powers))
    hashed = gc.ReduceSumOp(digits, axes=[last], keepdims=False)
    none = len(first)
    place = found_by_key(node, hashed.result, hashes, np.arange(none), np.array(none))
    found = gc.GatherOp(node.literal(table), place, axis=0)
    is_there = gc.CompareOp(place, node.literal(np.array(none)), predicate="lt")
    is_key = gc.AndOp(all_equal(node, found, codes), is_there)
    own = np.asarray(default, values.dtype)
    given = node.literal(np.array([*values[[*first.values()]], own], values.dtype))
    return gc.WhereOp(is_key, gc.GatherOp(given, place, axis=0), node.literal(own)).result


@computes("LabelEncoder", domain=ML)
def encoded_labels(node: NodeView, x: Array) -> Array:
    if node.version == 1:
        classes = node.listed("classes_strings")
        return _between(node, x, classes, list(range(len(classes))))
    keys, values, default = _table(node)
    return _looked_up(x, keys, values, default, values.dtype)


def _table(node: NodeView) -> tuple[Array, Array, object]:
    """Keys, values, and the default value."""
    keys, values = _listed(node, "keys"), _listed(node, "values")
    if len(keys) != len(values):
        raise node.fail(
            f"LabelEncoder has {len(keys)} keys and {len(values)} values",
            "give one value per key",
        )
    if node.version < 4:  # NaN is a key since version 4
        known = np.equal(keys, keys).astype(bool)
        keys, values = keys[known], values[known]
    own = {"O": "default_string", "f": "default_float"}.get(values.dtype.kind, "default_int64")
    default = node.listed("default_tensor") or [node.attribute(own)]
    return keys, values, default[0]


def _listed(node: NodeView, what: str) -> Array:
    name, found = node.first_listed(*(f"{what}_{kind}" for kind in LISTS))
    dtype = LISTS[name.removeprefix(f"{what}_")]
    return np.array(found, dtype or (object if isinstance(found[0], str) else found[0].dtype))


def _looked_up(
    x: Array, keys: Iterable[Any], values: Iterable[Any], default: object, dtype: Any
) -> Array:
    """Maps each element to the value of its key; the first of duplicates wins, NaN is a key."""
    table: dict[object, Any] = {}
    for key, value in zip(keys, values, strict=True):
        table.setdefault(_key(key), value)
    found = [table.get(_key(one), default) for one in np.asarray(plain(x)).reshape(-1).tolist()]
    made = np.empty(len(found), dtype)
    made[:] = found
    return made.reshape(np.shape(x))


def _key(value: Any) -> object:
    own = value.item() if isinstance(value, np.generic) else plain(value)
    return "NaN" if isinstance(own, float) and own != own else own


@computes("CategoryMapper", domain=ML)
def category_mapper(node: NodeView, x: Array) -> Array:
    return _between(node, x, node.listed("cats_strings"), node.listed("cats_int64s"))


def _between(node: NodeView, x: Array, strings: Sequence[str], numbers: Sequence[int]) -> Array:
    """Numbers for strings, or strings for numbers."""
    if len(strings) != len(numbers):
        raise node.fail(
            f"{node.op.op_type} has {len(strings)} strings for {len(numbers)} numbers",
            "give one number per string",
        )
    if holds_text(np.asarray(x)):
        return _looked_up(x, strings, numbers, node.attribute("default_int64"), np.int64)
    return _looked_up(x, numbers, strings, node.attribute("default_string"), object)


@lowers("OneHotEncoder", domain=ML)
def one_hot_encoder(node: Node) -> Lowered:
    """A row for each element, with 1 at the index of its category."""
    if not node.integer("zeros", 1):
        raise NeedsHostError(
            "OneHotEncoder with `zeros` 0 must refuse unknown categories",
            hint="set `zeros` to 1 if unknown categories may become rows of zeros",
        )
    categories = np.array(node.integers("cats_int64s"), np.int64)
    # Floats are truncated to find their category.
    whole = cast(node[0], dtypes.BY_NAME["i64"])
    column = gc.ReshapeOp(whole, shape=(*node.shape, 1))
    return cast(gc.CompareOp(column, node.literal(categories), predicate="eq"), F32)


@computes("OneHotEncoder", domain=ML)
def one_hot_of_anything(node: NodeView, x: Array) -> Array:
    is_text = holds_text(np.asarray(x))
    categories = node.listed("cats_strings" if is_text else "cats_int64s")
    if not categories:
        raise node.fail(
            f"OneHotEncoder has no categories of {'strings' if is_text else 'integers'}",
            "set `cats_strings` for strings, `cats_int64s` for numbers",
        )
    whole = np.asarray(plain(x)) if is_text else np.asarray(x).astype(np.int64)
    made = np.stack([whole == one for one in categories], axis=-1).astype(np.float32)
    unknown = whole[made.sum(axis=-1) == 0]
    if unknown.size and not node.attribute("zeros"):
        raise node.fail(
            f"unknown category {unknown.tolist()[0]!r} of OneHotEncoder",
            "set `zeros` to 1 if unknown categories may become rows of zeros",
        )
    return made


# Dictionaries


@computes("DictVectorizer", domain=ML)
def dict_vectorizer(node: NodeView, x: Mapping[Any, Any]) -> Array:
    """The values of a dictionary in the order of a vocabulary; 0 or "" for absent words."""
    _, words = node.first_listed("string_vocabulary", "int64_vocabulary")
    dtype = _values_of(node.op.operands[0].type)
    table = {_key(key): value for key, value in x.items()}
    nothing: object = "" if dtype is object else 0
    made = np.empty((1, len(words)), dtype)
    made[0, :] = [table.get(_key(word), nothing) for word in words]
    return made


def _values_of(type_: Attribute) -> Any:
    """The element type of the values of a dictionary."""
    held = getattr(type_.value, "element_type", None) if isinstance(type_, MapType) else None
    return object if held is None or held == STRING else element_types.from_ir(held).numpy


chooses(
    "CastMap",
    domain=ML,
    cast_to=("TO_FLOAT", "TO_STRING", "TO_INT64"),
    map_form=("DENSE", "SPARSE"),
)
FILLING = {"TO_FLOAT": 0.0, "TO_INT64": 0, "TO_STRING": "0.f"}
"""The fill values of CastMap for absent keys of a sparse map; the text is onnxruntime's."""


@computes("CastMap", domain=ML)
def cast_map(node: NodeView, x: Mapping[int, Any]) -> Array:
    """The values of a dictionary: in the order of keys (DENSE), or at index key (SPARSE)."""
    to = node.attribute("cast_to")
    cells = {int(key): _cast(plain(value), to) for key, value in x.items()}
    if any(key < 0 for key in cells):
        raise node.fail("CastMap has a negative key", "keys are indices from 0 on")
    if node.attribute("map_form") == "DENSE":
        row = [cells[key] for key in sorted(cells)]
    else:
        size = node.attribute("max_map")
        if any(key >= size for key in cells):
            raise node.fail(
                f"key {max(cells)} of CastMap is not below `max_map` {size}", "raise `max_map`"
            )
        row = [cells.get(key, FILLING[to]) for key in range(size)]
    kinds: dict[str, Any] = {"TO_FLOAT": np.float32, "TO_INT64": np.int64, "TO_STRING": object}
    made = np.empty((1, len(row)), kinds[to])
    made[0, :] = row
    return made


def _cast(value: Any, to: str) -> object:
    match to:
        case "TO_FLOAT":
            return float(value)
        case "TO_INT64":
            return int(float(value)) if not isinstance(value, str) else int(value)
    return value if isinstance(value, str) else f"{float(value):f}"


@computes("ZipMap", domain=ML)
def zip_map(node: NodeView, x: Array) -> list[dict[Any, float]]:
    """For each row, a dictionary from labels to its elements."""
    name, labels = node.first_listed("classlabels_strings", "classlabels_int64s")
    rows = np.atleast_2d(x)
    if rows.shape[1] != len(labels):
        raise node.fail(
            f"ZipMap has {len(labels)} labels for rows of {rows.shape[1]} elements",
            f"give `{name}` one label per column",
        )
    return [dict(zip(labels, row, strict=True)) for row in rows.tolist()]
