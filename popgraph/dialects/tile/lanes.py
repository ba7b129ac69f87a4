"""What do the stock dialects lack in kernels? Lanes that decide for themselves, and prefetches."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import (
    AnyFloatConstr,
    IndexType,
    IntegerAttr,
    MemRefType,
    VectorType,
    i1,
    i64,
)
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    VarConstraint,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException


def mask_type(value: SSAValue) -> VectorType:
    """A boolean for every lane of a vector."""
    assert isinstance(value.type, VectorType)
    return VectorType(i1, value.type.get_shape())


@irdl_op_definition
class CompareOp(IRDLOperation):
    """`arith.cmpf` on vectors, lane by lane; the predicates have the same numbers."""

    T: ClassVar = VarConstraint("T", VectorType.constr(AnyFloatConstr))
    name = "tile.compare"
    predicate = prop_def(IntegerAttr)
    lhs = operand_def(T)
    rhs = operand_def(T)
    result = result_def(VectorType)
    traits = traits_def(Pure())
    assembly_format = "$predicate $lhs `,` $rhs attr-dict `:` type($lhs) `->` type($result)"

    def __init__(self, predicate: int, lhs: SSAValue | Operation, rhs: SSAValue) -> None:
        super().__init__(
            operands=[lhs, rhs],
            properties={"predicate": IntegerAttr(predicate, i64)},
            result_types=[mask_type(SSAValue.get(lhs))],
        )

    def verify_(self) -> None:
        if self.result.type != mask_type(self.lhs):
            raise VerifyException("a comparison gives a boolean per lane")


@irdl_op_definition
class SelectOp(IRDLOperation):
    """`arith.select` on vectors, lane by lane."""

    T: ClassVar = VarConstraint("T", VectorType.constr(AnyAttr()))
    name = "tile.select"
    condition = operand_def(VectorType)
    lhs = operand_def(T)
    rhs = operand_def(T)
    result = result_def(T)
    traits = traits_def(Pure())
    assembly_format = "$condition `,` $lhs `,` $rhs attr-dict `:` type($condition) `,` type($lhs)"

    def __init__(self, condition: SSAValue, lhs: SSAValue, rhs: SSAValue) -> None:
        super().__init__(operands=[condition, lhs, rhs], result_types=[lhs.type])

    def verify_(self) -> None:
        if self.condition.type != mask_type(self.lhs):
            raise VerifyException("a condition has a boolean per lane")


@irdl_op_definition
class PrefetchOp(IRDLOperation):
    """
    Asks for an element of a memory that will be read later. It changes nothing.

    The element may be behind the end of the memory: then nothing has to come.
    """

    name = "tile.prefetch"
    memory = operand_def(MemRefType)
    index = operand_def(IndexType)
    assembly_format = "$memory `[` $index `]` attr-dict `:` type($memory)"

    def __init__(self, memory: SSAValue, index: SSAValue) -> None:
        super().__init__(operands=[memory, index])
