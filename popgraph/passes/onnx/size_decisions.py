"""Finds models that compare numbers of their shapes, and so may do something else at some sizes."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.op import OnnxOp

READS_SHAPES = frozenset({"Shape", "Size"})
DECIDES = frozenset(
    {
        *("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "Where", "If", "Loop"),
        *("Min", "Max", "Clip", "Mod", "Sign", "Abs", "Relu"),
    }
)
"""Operators whose results may change at some number, and stay as they are around it."""
FILLS = frozenset({"Range", "ConstantOfShape"})
REPEATS = frozenset({"Expand", "Tile"})
"""Operators that make tensors as large as dimensions say, which are compared as constants."""


def sizes_decide(module: ModuleOp) -> bool:
    """
    Whether an operator decides by a number that is made of dimensions alone.

    Numbers are followed from Shape and Size through operators that have no other data.
    """
    made = set[SSAValue]()
    for op in module.walk():
        if not isinstance(op, OnnxOp):
            continue
        read = [value for value in op.operands if value in made]
        if op.op_type in FILLS or (op.op_type in REPEATS and op.operands[0] not in made):
            continue
        if op.op_type in DECIDES and read:
            return True
        known = all(value in made or _is_constant(value) for value in op.operands)
        if op.op_type in READS_SHAPES or (read and known):
            made |= {*op.results}
    return False


def _is_constant(value: SSAValue) -> bool:
    owner = value.owner
    return isinstance(owner, Initializer) or (
        isinstance(owner, OnnxOp) and owner.op_type == "Constant"
    )
