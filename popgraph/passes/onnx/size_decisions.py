"""Finds models that compare their dimensions, and so may behave differently at some sizes."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.passes.onnx.partition import is_literal_value

READS_SHAPES = frozenset({"Shape", "Size"})
DECIDES = frozenset(
    {
        *("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "Where", "If", "Loop"),
        *("Min", "Max", "Clip", "Mod", "Sign", "Abs", "Relu"),
    }
)
"""Operators whose results may change at a threshold and are constant around it."""
FILLS = frozenset({"Range", "ConstantOfShape"})
REPEATS = frozenset({"Expand", "Tile"})
"""Operators that create tensors with computed dimensions; these are compared as constants."""


def sizes_decide(module: ModuleOp) -> bool:
    """
    Whether an operator decides by a number that depends on dimensions only.

    Numbers are followed from Shape and Size through operators without other data.
    """
    made = set[SSAValue]()
    for op in module.walk():
        if not isinstance(op, OnnxOp):
            continue
        read = [value for value in op.operands if value in made]
        if op.op_type in FILLS or (op.op_type in REPEATS and op.operands[0] not in made):
            continue
        if read and (op.op_type in DECIDES or not isinstance(op, SchemaOp)):
            return True  # Functions are not analyzed, so they count as decisions.
        known = all(value in made or is_literal_value(value) for value in op.operands)
        if op.op_type in READS_SHAPES or (read and known):
            made |= {*op.results}
    return False
