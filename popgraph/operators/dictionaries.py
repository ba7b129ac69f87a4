"""Evaluates operators of ai.onnx.ml on strings, dictionaries and lookup tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.ir import Attribute

from popgraph.dialects import element_types
from popgraph.dialects.onnx.host_values import holds_text, plain
from popgraph.dialects.onnx.types import STRING, MapType
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.record import chooses, computes
from popgraph.support.arrays import Array

ML = "ai.onnx.ml"
FILLING = {"TO_FLOAT": 0.0, "TO_INT64": 0, "TO_STRING": "0.f"}
"""What CastMap puts where a sparse map has nothing; the text is onnxruntime's."""


def _looked_up(
    x: Array, keys: Iterable[Any], values: Sequence[Any], default: object, dtype: Any
) -> Array:
    """The value of each element; of equal keys the first one counts, and NaN is a key."""
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


@computes("LabelEncoder", domain=ML)
def label_encoder(node: NodeView, x: Array) -> Array:
    if node.op.since_version == 1:
        classes = node.listed("classes_strings")
        return _between(node, x, classes, list(range(len(classes))))
    tensors = ("tensor",) if node.op.since_version >= 4 else ()
    kinds = (*tensors, "strings", "int64s", "floats")
    _, keys = node.first_listed(*(f"keys_{kind}" for kind in kinds))
    name, values = node.first_listed(*(f"values_{kind}" for kind in kinds))
    if len(keys) != len(values):
        raise node.fail(
            f"LabelEncoder has {len(keys)} keys and {len(values)} values",
            "give every key its value",
        )
    if node.op.since_version < 4:  # NaN is a key since then
        kept = [at for at, key in enumerate(keys) if key == key]
        keys, values = [keys[at] for at in kept], [values[at] for at in kept]
    default, dtype = _default(node, name.removeprefix("values_"), values)
    return _looked_up(x, keys, values, default, dtype)


def _default(node: NodeView, kind: str, values: Sequence[Any]) -> tuple[object, Any]:
    """What stands for what is no key, and the element type of the result."""
    if kind == "tensor":
        dtype: Any = object if isinstance(values[0], str) else values[0].dtype
        own = {"O": "default_string", "f": "default_float"}.get(np.dtype(dtype).kind)
        found = node.listed("default_tensor") or [node.attribute(own or "default_int64")]
        return found[0], dtype
    names = {"strings": "string", "int64s": "int64", "floats": "float"}
    dtypes = {"strings": object, "int64s": np.int64, "floats": np.float32}
    return node.attribute(f"default_{names[kind]}"), dtypes[kind]


@computes("CategoryMapper", domain=ML)
def category_mapper(node: NodeView, x: Array) -> Array:
    return _between(node, x, node.listed("cats_strings"), node.listed("cats_int64s"))


def _between(node: NodeView, x: Array, strings: Sequence[str], numbers: Sequence[int]) -> Array:
    """Numbers for strings, or strings for numbers."""
    if len(strings) != len(numbers):
        raise node.fail(
            f"{node.op.op_type} has {len(strings)} strings for {len(numbers)} numbers",
            "give every string its number",
        )
    if holds_text(np.asarray(x)):
        return _looked_up(x, strings, numbers, node.attribute("default_int64"), np.int64)
    return _looked_up(x, numbers, strings, node.attribute("default_string"), object)


@computes("OneHotEncoder", domain=ML)
def one_hot_encoder(node: NodeView, x: Array) -> Array:
    is_text = holds_text(np.asarray(x))
    categories = node.listed("cats_strings" if is_text else "cats_int64s")
    if not categories:
        raise node.fail(
            f"OneHotEncoder has no categories of {'strings' if is_text else 'integers'}",
            "`cats_strings` are for strings, `cats_int64s` for numbers",
        )
    whole = np.asarray(plain(x)) if is_text else np.asarray(x).astype(np.int64)
    made = np.stack([whole == one for one in categories], axis=-1).astype(np.float32)
    unknown = whole[made.sum(axis=-1) == 0]
    if unknown.size and not node.attribute("zeros"):
        raise node.fail(
            f"OneHotEncoder knows no category {unknown.tolist()[0]!r}",
            "set `zeros` to 1 if unknown categories may be rows of zeros",
        )
    return made


@computes("DictVectorizer", domain=ML)
def dict_vectorizer(node: NodeView, x: Mapping[Any, Any]) -> Array:
    """The values of a dictionary in the order of a vocabulary, nothing where there is none."""
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


@computes("CastMap", domain=ML)
def cast_map(node: NodeView, x: Mapping[int, Any]) -> Array:
    """The values of a dictionary by their keys, without gaps or as far as `max_map`."""
    to = node.attribute("cast_to")
    cells = {int(key): _cast(plain(value), to) for key, value in x.items()}
    if any(key < 0 for key in cells):
        raise node.fail("CastMap has a negative key", "keys are places, counted from 0")
    if node.attribute("map_form") == "DENSE":
        row = [cells[key] for key in sorted(cells)]
    else:
        size = node.attribute("max_map")
        if any(key >= size for key in cells):
            raise node.fail(
                f"CastMap has key {max(cells)} for {size} places", "raise `max_map` of the node"
            )
        row = [cells.get(key, FILLING[to]) for key in range(size)]
    dtypes: dict[str, Any] = {"TO_FLOAT": np.float32, "TO_INT64": np.int64, "TO_STRING": object}
    made = np.empty((1, len(row)), dtypes[to])
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
    """A dictionary from labels to numbers for each row."""
    name, labels = node.first_listed("classlabels_strings", "classlabels_int64s")
    rows = np.atleast_2d(x)
    if rows.shape[1] != len(labels):
        raise node.fail(
            f"ZipMap has {len(labels)} labels for rows of {rows.shape[1]} numbers",
            f"`{name}` has a label for each column",
        )
    return [dict(zip(labels, row, strict=True)) for row in rows.tolist()]


chooses(
    "CastMap",
    domain="ai.onnx.ml",
    cast_to=("TO_FLOAT", "TO_STRING", "TO_INT64"),
    map_form=("DENSE", "SPARSE"),
)
