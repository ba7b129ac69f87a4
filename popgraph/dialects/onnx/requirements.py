"""Requirements of operators on attributes and operands beyond ONNX's own inference checks."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr

from popgraph.dialects.onnx.record import Complaints, record_of
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.view import Known, NodeView
from popgraph.dialects.program import BytesAttr

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


def unmet(op: SchemaOp, known: Known) -> TypeConflict | None:
    """The first requirement of its operator that a node violates."""
    for complaint in _attributes(op):
        return complaint
    record = record_of(op.domain, op.op_type)
    if record is None or record.require is None:
        return None
    return next(record.require(NodeView(op, known)), None)


def _attributes(op: SchemaOp) -> Complaints:
    """Checks attributes whose allowed values are in a table."""
    for name, held in op.properties.items():
        if name in FLAGS and isinstance(held, IntegerAttr) and held.value.data not in (0, 1):
            yield TypeConflict(f"`{name}` is {held.value.data}", f"set `{name}` to 0 or 1")
        if isinstance(held, BytesAttr) and op.op_type != "Constant":
            yield from _words(op, name, held.data)


def _words(op: SchemaOp, name: str, data: bytes) -> Complaints:
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
