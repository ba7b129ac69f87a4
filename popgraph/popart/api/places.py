"""Places that ArgMax, ArgMin and TopK find, beside numbers of 32 bits."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import TensorType, i32, i64
from xdsl.ir import SSAValue

from popgraph.dialects.onnx import OnnxOp
from popgraph.dialects.onnx.schema_op import SchemaOp

_FINDERS = {("", "ArgMax"): 0, ("", "ArgMin"): 0, ("", "TopK"): 1}
"""Which output of an operator is places."""


def to_narrow(kind: type[SchemaOp], operands: Sequence[SSAValue | None]) -> set[int]:
    """
    Which operands are places that stand where others of one type with them have 32 bits.

    ONNX gives places 64 bits, and PopART 32, so programs for PopART compare them with labels.
    """
    formals = kind.SCHEMA.inputs
    types = [formals[min(at, len(formals) - 1)].type_str for at in range(len(operands))]
    short = {type_ for type_, one in zip(types, operands, strict=True) if _has(one, i32)}
    return {
        at
        for at, (type_, one) in enumerate(zip(types, operands, strict=True))
        if type_ in short and one is not None and _has(one, i64) and _is_place(one)
    }


def _has(value: SSAValue | None, element: object) -> bool:
    return (
        value is not None
        and isinstance(value.type, TensorType)
        and value.type.element_type == element
    )


def _is_place(value: SSAValue) -> bool:
    node = value.owner
    if not isinstance(node, OnnxOp):
        return False
    output = _FINDERS.get((node.domain, node.op_type))
    return output is not None and node.output_values()[output] is value
