"""
Type inference of one node by its ONNX schema, with cached answers.

Requirements of operators beyond ONNX's own inference checks come first (`unmet`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import lru_cache
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np
from onnx import TensorProto, TypeProto, helper, numpy_helper
from onnx.checker import ValidationError
from onnx.defs import OpSchema, get_schema
from onnx.shape_inference import InferenceError, infer_node_outputs, infer_shapes
from xdsl.dialects.builtin import IntegerAttr, TensorType, f16, f32, i32, i64
from xdsl.ir import Attribute, Operation, SSAValue

from popgraph.dialects import element_types
from popgraph.dialects.onnx.attributes import as_bytes
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.protos import write_node
from popgraph.dialects.onnx.record import Conflicts, record_of
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.type_errors import TypeConflict, mismatch, refusal, type_conflict
from popgraph.dialects.onnx.typeproto import read_type, write_type
from popgraph.dialects.onnx.types import (
    UNKNOWN,
    UnknownType,
    dims,
    erased,
    static_shape,
    tensor_type,
)
from popgraph.dialects.onnx.view import Known, NodeView
from popgraph.dialects.program import BytesAttr, WeightStore
from popgraph.dialects.program.interned import number_of
from popgraph.support.arrays import Array

InferredTypes: TypeAlias = tuple[Attribute, ...]
"""The type of each result; unknown if the schema does not define it."""

Reading: TypeAlias = tuple[OpSchema, Mapping[SSAValue, Attribute], Mapping[SSAValue, TensorProto]]
"""A schema to query, types of operands, and the elements of known ones."""

FLAGS = frozenset(
    [
        "align_corners",
        "allowzero",
        "antialias",
        "ceil_mode",
        "count_include_pad",
        "detect_negative",
        "detect_positive",
        "exclude_outside",
        "exclusive",
        "fmod",
        "input_forget",
        "interleaved",
        "inverse",
        "is_causal",
        "keepdims",
        "largest",
        "layout",
        "noop_with_empty_axes",
        "onesided",
        "periodic",
        "reverse",
        "saturate",
        "select_last_index",
        "sorted",
        "storage_order",
        "training_mode",
        "transA",
        "transB",
        "upper",
    ]
)
"""Attributes that must be 0 or 1, for any operator."""

CORRECTED = frozenset(["AveragePool", "MaxPool"])
"""
Operators whose latest schema infers the shape for all versions.

Earlier ones also count windows that `ceil_mode` adds after the data.
"""

ANSWERS = 1 << 12
"""The capacity of the cache of answers."""


class InferenceQuery(NamedTuple):
    """
    Everything that the result types of a node without graphs depend on.

    Also its results, if all operands are known and no attribute is a large tensor.
    """

    operator: type[SchemaOp]
    names: tuple[str, ...]
    """Names of the properties: attributes, and sizes that mark absent operands and results."""
    properties: tuple[int, ...]
    """Their values; attributes are numbers here (`number_of`)."""
    trailing: Attribute | None
    outputs: tuple[int, int]
    """The numbers of results and of listed outputs: the rest are absent."""
    types: tuple[int, ...]
    elements: tuple[Hashable, ...]
    opsets: tuple[tuple[str, int], ...]

    @classmethod
    def about(cls, op: SchemaOp, known: Known, opsets: Mapping[str, int]) -> InferenceQuery:
        operands = op.operands
        return cls(
            type(op),
            tuple(op.properties),
            tuple(map(number_of, op.properties.values())),
            op.attributes.get("trailing"),
            (len(op.results), len(op.node_outputs.data)),
            tuple([number_of(value.type) for value in operands]),
            tuple([elements(known[value]) if value in known else None for value in operands]),
            tuple(opsets.items()),
        )


_answers: dict[InferenceQuery, InferredTypes] = {}
"""Cached answers: most nodes equal another one, and a model is inferred several times."""


def infer_types(
    op: SchemaOp,
    known: Known,
    store: WeightStore,
    opsets: Mapping[str, int],
    question: InferenceQuery,
) -> InferredTypes:
    """The result types by the schema; TypeMismatchError if it refuses the node."""
    if op.GRAPHS:
        return _ask(op, known, store, opsets)
    found = _answers.get(question)
    if found is None:
        found = _ask(op, known, store, opsets)
        if len(_answers) >= ANSWERS:
            _answers.clear()
        _answers[question] = found
    return found


def elements(array: Array) -> Hashable:
    """A key that is equal for arrays with equal elements."""
    held = tuple(array.flat) if array.dtype == np.object_ else array.tobytes()
    return array.dtype, array.shape, held


def _ask(
    op: SchemaOp, known: Known, store: WeightStore, opsets: Mapping[str, int]
) -> InferredTypes:
    """Queries the schema; unknown where an operand's type is unknown."""
    # Checked first: ONNX's inference reads out of bounds for values out of range.
    if complaint := unmet(op, known):
        raise refusal(op, type_conflict(op) or complaint)
    names: dict[SSAValue, str] = {}

    def name_of(value: SSAValue) -> str:
        return names.setdefault(value, f"v{len(names)}")

    node = write_node(op, store, name_of)
    if op.op_type == "Squeeze":
        for attribute in node.attribute:  # ONNX's inference is wrong for unsorted axes
            attribute.ints[:] = sorted(attribute.ints)
    if op.op_type == "STFT" and not any(one.name == "onesided" for one in node.attribute):
        # ONNX's inference assumes 0; the default is 1.
        node.attribute.append(helper.make_attribute("onesided", 1))
    inside = set(_values_inside(op))
    outer = {value: name for value, name in names.items() if value not in inside}
    error: Exception | None = None
    standard = _standard_schema(op)
    imported = {**dict.fromkeys(_domains_inside(op), 1), **opsets}
    for schema, types, arrays in _readings(op, outer, known):
        try:
            found = infer_node_outputs(
                schema,
                node,
                {name: _type_proto(types[value]) for value, name in outer.items()},
                {names[value]: tensor for value, tensor in arrays.items()},
                opset_imports=[helper.make_opsetid(*pair) for pair in imported.items()],
            )
            break
        except (InferenceError, ValidationError, RuntimeError, ValueError) as failure:
            error = failure if schema is standard else error
    else:
        if any(isinstance(value.type, UnknownType) for value in outer) or _calls_unknown(op):
            return (UNKNOWN,) * len(op.results)
        narrow = any(array.dtype == np.int32 for array in _known_of(outer, known))
        about_shapes = narrow and "ShapeInferenceError" in str(error)  # of the int64 variant
        raise mismatch(op, str(error), elements=not about_shapes) from error
    read = {name: _type_of(proto.SerializeToString()) for name, proto in found.items()}
    return tuple([read.get(names.get(value, ""), UNKNOWN) for value in op.results])


def types_if_admitted(
    op: SchemaOp, known: Known, store: WeightStore, opsets: Mapping[str, int]
) -> InferredTypes:
    """The types that ONNX infers for a node despite element types that its schema refuses."""
    unknown = (UNKNOWN,) * len(op.results)
    if op.GRAPHS or unmet(op, known):
        return unknown
    names: dict[SSAValue, str] = {}
    node = write_node(op, store, lambda value: names.setdefault(value, f"v{len(names)}"))
    inputs = [
        helper.make_value_info(names[value], _type_proto(value.type))
        for value in dict.fromkeys(op.operands)
    ]
    graph = helper.make_graph([node], "g", inputs, [])
    imported = [helper.make_opsetid(*pair) for pair in opsets.items()]
    inferred = infer_shapes(helper.make_model(graph, opset_imports=imported)).graph.value_info
    read = {info.name: _type_of(info.type.SerializeToString()) for info in inferred}
    return tuple([read.get(names.get(value, ""), UNKNOWN) for value in op.results])


def _known_of(operands: Iterable[SSAValue], known: Known) -> list[Array]:
    return [known[value] for value in operands if value in known]


def _domains_inside(op: SchemaOp) -> set[str]:
    """The domains of nodes in graphs inside; ONNX may not know some of them."""
    if not op.GRAPHS:
        return set()
    return {inner.domain for inner in op.walk() if isinstance(inner, OnnxOp) and inner is not op}


@lru_cache(maxsize=1 << 14)
def _type_proto(type_: Attribute) -> TypeProto:
    return write_type(type_)


@lru_cache(maxsize=1 << 14)
def _type_of(data: bytes) -> Attribute:
    """The IR type of a serialized TypeProto, cached: building it costs more than the inference."""
    return read_type(TypeProto.FromString(data))


def _standard_schema(op: SchemaOp) -> OpSchema:
    """The schema of a node; the next version's if operands of Resize-11 are absent."""
    if (op.op_type, op.since_version) == ("Resize", 11) and None in op.input_values():
        return get_schema("Resize", 13)
    return op.SCHEMA


def _tensor(array: Array) -> TensorProto:
    """The known elements of an operand, for the schema; strings may have any bytes."""
    if array.dtype == object:
        array = np.asarray(np.frompyfunc(as_bytes, 1, 1)(array), object)
    return numpy_helper.from_array(array)


def _readings(op: SchemaOp, operands: Iterable[SSAValue], known: Known) -> Iterator[Reading]:
    """
    Variants of a node, to be tried until its schema accepts one.

    The standard comes first, then variants that PopART's programs rely on: shapes in int32; scales
    of Resize in f16; f32 scalars and statistics next to f16 tensors; element types that only a
    later version allows; one-element tensors as bounds of Range, which ONNX's own function for
    RMSNormalization-23 once used.
    """
    types = {value: value.type for value in operands}
    arrays = {value: known[value] for value in types if value in known}
    tensors = {value: _tensor(array) for value, array in arrays.items()}
    latest = get_schema(op.op_type, op.domain)
    if op.op_type in CORRECTED:
        yield latest, types, tensors
    standard = _standard_schema(op)
    yield standard, types, tensors
    wide = {v: array.astype(np.int64) for v, array in arrays.items() if array.dtype == np.int32}
    if wide:
        yield (
            standard,
            types | {value: tensor_type(i64, array.shape) for value, array in wide.items()},
            tensors | {value: numpy_helper.from_array(array) for value, array in wide.items()},
        )
    if op.op_type in _NARROW:
        yield standard, *_widened(op, types, arrays)
    if op.op_type == "Range":
        yield standard, *_as_scalars(types, arrays)
    single = [value for value in types if _counts_as_half(op, value)]
    if single:
        halves = {value: tensor_type(f16, dims(value.type)) for value in single}
        yield op.SCHEMA, types | halves, {v: t for v, t in tensors.items() if v not in halves}
    knows_all = set(op.onnx_attributes()) <= set(latest.attributes)
    if knows_all and not latest.deprecated and latest.since_version != op.since_version:
        yield latest, types, tensors


_NARROW = {"Resize": ((i32, i64), (f16, f32)), "RoiAlign": ((i32, i64),)}
"""
Narrower types that operands after the first may have instead of the schema's.

f16 scales; int32 sizes and image numbers.
"""


def _widened(
    op: SchemaOp, types: Mapping[SSAValue, Attribute], arrays: Mapping[SSAValue, Array]
) -> tuple[dict[SSAValue, Attribute], dict[SSAValue, TensorProto]]:
    """Types and elements with narrow operands widened to the schema's types."""
    wide, known = dict(types), dict(arrays)
    for value in set(op.operands[1:]) - {op.operands[0]}:
        for narrow, kind in _NARROW[op.op_type]:
            if erased(value.type) == tensor_type(narrow, None):
                wide[value] = tensor_type(kind, dims(value.type))
                if value in known:
                    known[value] = known[value].astype(element_types.from_ir(kind).numpy)
    return wide, {value: numpy_helper.from_array(array) for value, array in known.items()}


def _as_scalars(
    types: Mapping[SSAValue, Attribute], arrays: Mapping[SSAValue, Array]
) -> tuple[dict[SSAValue, Attribute], dict[SSAValue, TensorProto]]:
    """Types and elements with 1-D tensors of one element as scalars."""
    alone = {
        value: tensor_type(type_.get_element_type(), ())
        for value, type_ in types.items()
        if isinstance(type_, TensorType) and dims(type_) == (1,)
    }
    scalars = {v: array.reshape(()) if v in alone else array for v, array in arrays.items()}
    return {**types, **alone}, {v: numpy_helper.from_array(one) for v, one in scalars.items()}


def _counts_as_half(op: SchemaOp, value: SSAValue) -> bool:
    """Whether an f32 operand may be treated as f16, like the other operands."""
    halves = any(erased(other.type) == tensor_type(f16, None) for other in op.operands)
    if not halves or erased(value.type) != tensor_type(f32, None):
        return False
    shape = static_shape(value.type)
    return op.op_type == "BatchNormalization" or (shape is not None and prod(shape) == 1)


def _calls_unknown(op: Operation) -> bool:
    """Whether a call in an operation's graphs still has unknown types."""
    calls = (inner for inner in op.walk() if inner is not op and not isinstance(inner, SchemaOp))
    return any(isinstance(value.type, UnknownType) for one in calls for value in one.results)


def _values_inside(op: Operation) -> Iterator[SSAValue]:
    """The results of an operation and everything that is defined in its regions."""
    yield from op.results
    for region in op.regions:
        for block in region.blocks:
            yield from block.args
            for inner in block.ops:
                yield from _values_inside(inner)


def unmet(op: SchemaOp, known: Known) -> TypeConflict | None:
    """The first requirement of its operator that a node violates."""
    for complaint in _unmet_attributes(op):
        return complaint
    record = record_of(op.domain, op.op_type)
    if record is None or record.require is None:
        return None
    return next(record.require(NodeView(op, known)), None)


def _unmet_attributes(op: SchemaOp) -> Conflicts:
    """Checks attributes whose allowed values are in a table."""
    for name, held in op.properties.items():
        if name in FLAGS and isinstance(held, IntegerAttr) and held.value.data not in (0, 1):
            yield TypeConflict(f"`{name}` is {held.value.data}", f"set `{name}` to 0 or 1")
        if isinstance(held, BytesAttr) and op.op_type != "Constant":
            yield from _unmet_strings(op, name, held.data)


def _unmet_strings(op: SchemaOp, name: str, data: bytes) -> Conflicts:
    try:
        word = data.decode()
    except UnicodeDecodeError:
        yield TypeConflict(f"`{name}` is not UTF-8", "the file is damaged: export the model again")
        return
    record = record_of(op.domain, op.op_type)
    choices = (word,) if record is None else record.choices.get(name, (word,))
    if word not in choices:
        listed = ", ".join(filter(None, choices))
        yield TypeConflict(f"`{name}` is {word!r}", f"use one of {listed}")
