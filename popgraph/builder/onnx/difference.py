"""Compares two ONNX models up to their protobuf encoding, and locates the first difference."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

from onnx import (
    AttributeProto,
    FunctionProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TensorShapeProto,
    numpy_helper,
)

from popgraph.dialects.onnx.attributeproto import kind_of
from popgraph.dialects.onnx.containers import standard_domain
from popgraph.dialects.onnx.metadata import is_empty
from popgraph.dialects.onnx.tensorproto import PAYLOAD, read_array
from popgraph.support import dtypes

_SORTED = {
    "attribute": "name",
    "attribute_proto": "name",
    "initializer": "name",
    "sparse_initializer": "values.name",
    "value_info": "name",
    "functions": "name",
    "opset_import": "domain",
}
"""Lists without significant order, and the fields that identify their items."""


def model_difference(first: ModelProto, second: ModelProto) -> str:
    """
    The first difference of two models, with its path: `graph.node[3].attribute['axis'].i: 1, 2`.

    Empty if the models are equivalent. Elements of tensors are compared bit by bit. Names of nodes
    and values, declared types, doc strings and metadata are compared as well. The following are
    differences in encoding only, and ignored:

    - the field with the elements of a tensor, and the name of a tensor that is an attribute;
    - the order of attributes, initializers, declared types, operator sets and functions;
    - trailing absent inputs and outputs of a node;
    - present but empty fields, and an attribute's kind if missing, as in old files;
    - `ai.onnx` for the standard domain, and no operator set instead of the first one;
    - the encoding of an unknown dimension: missing, empty, `?`, or negative;
    - all but the last of several declarations of one value.
    """
    return next(_differences("", _plain(first), _plain(second)), "")


def _plain(model: ModelProto) -> ModelProto:
    """The model in the canonical encoding that is compared."""
    plain = ModelProto()
    plain.CopyFrom(model)
    if not plain.opset_import:
        plain.opset_import.add(version=1)
    for opset in plain.opset_import:
        opset.domain = standard_domain(opset.domain)
    _respell(plain)
    return plain


def _respell(message: Any) -> None:
    """Converts a message and all nested ones to that encoding."""
    if rule := _RULES.get(type(message)):
        rule(message)
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for one in [value] if hasattr(value, "ListFields") else value:
                _respell(one)
        elif is_empty(value) and not _is_repeated(value) and field.containing_oneof is None:
            message.ClearField(field.name)
    for name in _SORTED.keys() & {field.name for field, _ in message.ListFields()}:
        _sort(getattr(message, name), _SORTED[name])


def _is_repeated(value: object) -> bool:
    return hasattr(value, "extend")


def _sort(items: Any, key: str) -> None:
    if len(items) and hasattr(items[0], "ListFields"):
        last = {_key(item, key): item for item in items}
        kept = [last[one] for one in sorted(last)]
    else:
        kept = sorted(items)
    copies = [_copied(item) for item in kept]
    del items[:]
    items.extend(copies)


def _copied(item: Any) -> Any:
    if not hasattr(item, "ListFields"):
        return item
    copy = type(item)()
    copy.CopyFrom(item)
    return copy


def _key(item: Any, path: str) -> tuple[str, ...]:
    if isinstance(item, FunctionProto):
        return item.domain, item.name, item.overload
    for name in path.split("."):
        item = getattr(item, name)
    return (item,)


def _node(node: NodeProto) -> None:
    node.domain = standard_domain(node.domain)
    for names in (node.input, node.output):
        while names and not names[-1]:
            names.pop()


def _attribute(attribute: AttributeProto) -> None:
    attribute.type = AttributeProto.AttributeType.Value(kind_of(attribute))
    for tensor in (attribute.t, *attribute.tensors, attribute.sparse_tensor.values):
        tensor.name = ""
    for empty in ("t", "sparse_tensor"):
        if not getattr(attribute, empty).ListFields() and attribute.type not in (4, 11):
            attribute.ClearField(empty)


def _tensor(tensor: TensorProto) -> None:
    """Stores the elements as raw bytes."""
    tensor.ClearField("data_location")
    if tensor.data_type == TensorProto.STRING or tensor.data_type not in dtypes.BY_ONNX:
        return
    array = read_array(tensor)
    for name in PAYLOAD:
        tensor.ClearField(name)
    tensor.raw_data = numpy_helper.from_array(array).raw_data


def _dimension(dim: TensorShapeProto.Dimension) -> None:
    if (dim.HasField("dim_value") and dim.dim_value < 0) or (
        dim.HasField("dim_param") and dim.dim_param in ("", "?")
    ):
        dim.ClearField("dim_value")
        dim.ClearField("dim_param")


def _function(function: FunctionProto) -> None:
    for opset in function.opset_import:
        opset.domain = standard_domain(opset.domain)


_RULES: dict[type, Callable[[Any], None]] = {
    NodeProto: _node,
    AttributeProto: _attribute,
    TensorProto: _tensor,
    TensorShapeProto.Dimension: _dimension,
    FunctionProto: _function,
}


def _differences(path: str, first: Any, second: Any) -> Iterator[str]:
    if not hasattr(first, "ListFields"):
        if _bits(first) != _bits(second):
            yield f"{path}: {_shown(first)}, {_shown(second)}"
        return
    names = {field.name: field for field, _ in (*first.ListFields(), *second.ListFields())}
    for name, field in sorted(names.items(), key=lambda one: one[1].number):
        mine, other = getattr(first, name), getattr(second, name)
        where = f"{path}.{name}".removeprefix(".")
        if _is_repeated(mine):
            yield from _list_differences(where, mine, other)
        elif field.type == field.TYPE_MESSAGE and first.HasField(name) != second.HasField(name):
            there, absent = ("given", "not given")[:: 1 if first.HasField(name) else -1]
            yield f"{where}: {there}, {absent}"
        elif field.containing_oneof is not None and first.HasField(name) != second.HasField(name):
            shown = [_shown(getattr(m, name)) if m.HasField(name) else "?" for m in (first, second)]
            yield f"{where}: {', '.join(shown)}"
        else:
            yield from _differences(where, mine, other)


def _list_differences(path: str, first: Any, second: Any) -> Iterator[str]:
    name = path.rpartition(".")[2]
    if name in _SORTED and first and hasattr(first[0], "ListFields"):
        keyed = [{_key(item, _SORTED[name]): item for item in items} for items in (first, second)]
        for key in {**keyed[0], **keyed[1]}:
            label = f"{path}[{'::'.join(filter(None, key))!r}]"
            if key not in keyed[0] or key not in keyed[1]:
                yield f"{label}: only in the {'first' if key in keyed[0] else 'second'}"
            else:
                yield from _differences(label, keyed[0][key], keyed[1][key])
        return
    for index, (mine, other) in enumerate(zip(first, second, strict=False)):
        yield from _differences(f"{path}[{index}]", mine, other)
    if len(first) != len(second):
        yield f"{path}: {len(first)} of them, {len(second)}"


def _bits(value: Any) -> object:
    return struct.pack("<d", value) if isinstance(value, float) else value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
