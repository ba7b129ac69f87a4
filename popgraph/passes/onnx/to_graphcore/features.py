"""Lowers what ai.onnx.ml does to features: scaling, normalizing, imputing, encoding, choosing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.passes.onnx.to_graphcore.arithmetic import cast
from popgraph.passes.onnx.to_graphcore.movement import reshaped, sliced
from popgraph.passes.onnx.to_graphcore.node import Node
from popgraph.passes.onnx.to_graphcore.registry import Lowered, lowers
from popgraph.passes.onnx.to_graphcore.scores import F32, F64, ML, constant
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import NeedsHostError, TypeMismatchError
from popgraph.support.shapes import prod


@lowers("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(node: Node) -> Lowered:
    """Some columns, by their places along the last axis."""
    data = node[0] if node.rank > 1 else reshaped(node[0], (1, *node.shape))
    known, width = node.lowering.array(node[1]), shape_of(data)[-1]
    if known is not None and known.size and not 0 <= known.min() <= known.max() < width:
        raise TypeMismatchError(
            f"ArrayFeatureExtractor has places {int(known.min())} to {int(known.max())} "
            f"of {width} columns",
            hint="columns are counted from 0",
        )
    places = reshaped(node[1], (prod(shape_of(node[1])),))
    return gc.GatherOp(data, places, axis=len(shape_of(data)) - 1)


@lowers("Binarizer", domain=ML)
def binarizer(node: Node) -> Lowered:
    """1 above the threshold, else 0; the threshold is compared as it is, also with integers."""
    threshold = np.array(node.real("threshold"), np.float32)
    wide = node[0] if node.dtype.is_float else cast(node[0], F64)
    above = gc.CompareOp(wide, constant(node, threshold, wide), predicate="gt")
    return cast(above, node.dtype)


@lowers("Scaler", domain=ML)
def scaler(node: Node) -> Lowered:
    """`(x - offset) * scale`, each one number or one per feature; in single precision."""
    wide = cast(node[0], F64 if node.dtype == F64 else F32)
    value: Operand = wide
    for name, operation in (("offset", gc.SubOp), ("scale", gc.MulOp)):
        if given := node.reals(name):
            value = operation(value, _per_feature(node, wide, np.array(given, np.float32), name))
    return cast(value, F32)


def _per_feature(node: Node, like: SSAValue, given: Array, name: str) -> SSAValue:
    if len(given) not in (1, node.shape[-1]):
        raise TypeMismatchError(
            f"`{name}` of {node.op.op_type} has {len(given)} numbers for {node.shape[-1]} features",
            hint="give one number, or one for each feature",
        )
    return constant(node, given if len(given) > 1 else given[0], like)


@lowers("Normalizer", domain=ML)
def normalizer(node: Node) -> Lowered:
    """Rows divided by their largest element or by a norm; rows whose divisor is 0 stay."""
    value = cast(node[0], F64 if node.dtype == F64 else F32)
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
            raise node.unsupported(f"the norm {other!r}", "one of MAX, L1, L2")
    zero, one = constant(node, np.array(0), value), constant(node, np.array(1), value)
    is_zero = gc.CompareOp(size, zero, predicate="eq")
    return cast(gc.DivOp(value, gc.WhereOp(is_zero, one, size)), F32)


@lowers("Imputer", domain=ML)
def imputer(node: Node) -> Lowered:
    """Elements equal to one number (or NaN) become another one, the same or one per feature."""
    if node.dtype.is_float:
        given: Array = np.array(node.reals("imputed_value_floats"), np.float32)
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
        what = constant(node, np.array(replaced), node[0])
        is_missing = gc.CompareOp(node[0], what, predicate="eq")
    values = _per_feature(node, node[0], given, "imputed_value")
    return gc.WhereOp(is_missing, gc.BroadcastOp(values, shape=node.shape), node[0])


@lowers("FeatureVectorizer", domain=ML)
def feature_vectorizer(node: Node) -> Lowered:
    """Features side by side, each input cut or filled with zeros to its dimension."""
    sizes = node.integers("inputdimensions")
    parts = [_as_rows(value) for value in node.inputs]
    if len(sizes) != len(parts):
        raise TypeMismatchError(
            f"FeatureVectorizer has {len(sizes)} dimensions for {len(parts)} inputs",
            hint="`inputdimensions` has a number for each input",
        )
    return gc.ConcatOp(
        [_of_size(one, size) for one, size in zip(parts, sizes, strict=True)], axis=1
    )


def _as_rows(value: SSAValue) -> SSAValue:
    """A matrix of single precision; a list is one row."""
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


@lowers("OneHotEncoder", domain=ML)
def one_hot_encoder(node: Node) -> Lowered:
    """For each element, a row that has 1 at the place of its category."""
    if not node.integer("zeros", 1):
        raise NeedsHostError(
            "OneHotEncoder with `zeros` of 0 refuses what is no category",
            hint="set `zeros` to 1 if unknown categories may be rows of zeros",
        )
    categories = np.array(node.integers("cats_int64s"), np.int64)
    # A category of a number with a fraction is that of its whole part.
    whole = cast(node[0], dtypes.BY_NAME["i64"])
    column = gc.ReshapeOp(whole, shape=(*node.shape, 1))
    return cast(gc.CompareOp(column, node.literal(categories), predicate="eq"), F32)


# Label encoding


def numbers_encoded(node: Node) -> Lowered:
    """The value of each key of a LabelEncoder, found by bisection of the sorted keys."""
    keys, values, default = key_values(node)
    if keys.dtype != node.dtype.numpy:
        raise TypeMismatchError(
            f"LabelEncoder has keys of {keys.dtype} for an input of {node.dtype.numpy}",
            hint="give the keys in the attribute of the input's type",
        )
    if node.version < 4:  # NaN is a key since then
        known = np.equal(keys, keys)
        keys, values = keys[known], values[known]
    return looked_up(node, node[0], keys, values, default)


def key_values(node: Node) -> tuple[Array, Array, Array]:
    """Keys, values and the value for what is no key."""
    keys = _given(node, "keys")
    values = _given(node, "values")
    if len(keys) != len(values):
        raise TypeMismatchError(
            f"LabelEncoder has {len(keys)} keys and {len(values)} values",
            hint="give every key its value",
        )
    if node.has("default_tensor"):
        default = np.asarray(node.value("default_tensor")).reshape(-1)[0]
    elif values.dtype == np.float32:
        default = np.float32(node.real("default_float", -0.0))
    else:
        default = np.array(node.integer("default_int64", -1))
    return keys, values, np.asarray(default, values.dtype)


def _given(node: Node, what: str) -> Array:
    if node.has(f"{what}_tensor"):
        return np.asarray(node.value(f"{what}_tensor")).reshape(-1)
    if found := node.integers(f"{what}_int64s"):
        return np.array(found, np.int64)
    if words := node.texts(f"{what}_strings"):
        return np.array(words, object)
    return np.array(node.reals(f"{what}_floats"), np.float32)


def looked_up(node: Node, x: SSAValue, keys: Array, values: Array, default: Array) -> SSAValue:
    """`values[i]` where `x` is `keys[i]`, the first of equal ones; else the default."""
    is_nan = keys != keys
    sorted_keys, first = np.unique(keys[~is_nan], return_index=True)
    result: SSAValue = gc.BroadcastOp(node.literal(default), shape=shape_of(x)).result
    if len(sorted_keys):
        table, found = node.literal(sorted_keys), node.literal(values[~is_nan][first])
        place = _bisected(node, x, table, len(sorted_keys))
        hit = gc.CompareOp(gc.GatherOp(table, place, axis=0), x, predicate="eq")
        result = gc.WhereOp(hit, gc.GatherOp(found, place, axis=0), result).result
    if is_nan.any():
        value = node.literal(values[is_nan][0])
        result = gc.WhereOp(gc.IsNanOp(x), value, result).result
    return result


def _bisected(node: Node, x: SSAValue, keys: SSAValue, count: int) -> SSAValue:
    """The place of the last key that is not above each element, or 0."""

    def whole(number: int) -> SSAValue:
        return node.literal(np.array(number, np.uint64))

    place: SSAValue = gc.BroadcastOp(whole(0), shape=shape_of(x)).result
    for step in _steps(count):
        further = gc.MinOp(gc.AddOp(place, whole(step)), whole(count - 1))
        key = gc.GatherOp(keys, further, axis=0)
        place = gc.WhereOp(gc.CompareOp(key, x, predicate="le"), further, place).result
    return place


def _steps(count: int) -> Sequence[int]:
    """The powers of two below a number, the largest first."""
    return [1 << bit for bit in reversed(range((count - 1).bit_length()))]
