"""The loops level: launches of kernels with explicit loops, on tensors."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from xdsl.dialects.builtin import (
    ArrayAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    SymbolRefAttr,
    TensorType,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    base,
    irdl_op_definition,
    prop_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.program.interned import NOTHING, integer, symbol
from popgraph.dialects.tile.attributes import memory_span
from popgraph.dialects.tile.loops.soundness import called, check_body, check_chunks

_INDEX = IndexType()


def memory_type(value: SSAValue) -> MemRefType[Attribute]:
    """
    The memref of a tensor: its physical elements as one row, or the span of a part.

    One dimension lets a loop run across rows and a vector start anywhere, and makes kernels of
    different shapes equal.
    """
    assert isinstance(value.type, TensorType)
    return row_type(value.type.element_type, memory_span(value.type)[1])


@functools.cache
def row_type(element: Attribute, size: int) -> MemRefType[Attribute]:
    """
    The memref of one row of elements.

    Cached: xDSL verifies each type that it constructs, and programs repeat the same ones.

    `MemRefType(element, [size])` would also build a constraint to check the shape attribute.
    """
    return MemRefType.new([ArrayAttr([integer(size)]), element, NOTHING, NOTHING])


def kernel_arguments(operands: Sequence[SSAValue], results: Sequence[SSAValue]) -> list[Attribute]:
    """Argument types of a kernel: chunk number, then the memory of each operand and result."""
    return [_INDEX, *map(memory_type, operands), *map(memory_type, results)]


@irdl_op_definition
class LaunchOp(IRDLOperation):
    """
    Runs a kernel on tensors: a function of the module with explicit loops.

    A kernel is a `func.func` on memory (scf, arith, math, memref, vector). Its arguments are the
    chunk number, then the memory of each operand and each result. It runs once for each chunk
    number in `0 .. chunks`. Chunks write disjoint memory, so they may run in any order and in
    parallel; together they write every element of the results. `inplace` lists pairs
    (operand, result) that may share memory: each element of the operand is last read before that
    of the result is written.
    """

    name = "tile.launch"
    callee = prop_def(SymbolRefAttr)
    inputs = var_operand_def(base(TensorType))
    chunks = prop_def(IntegerAttr)
    inplace = prop_def(IntsAttr)
    outputs = var_result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = (
        "$callee `chunks` $chunks `inplace` $inplace `(` $inputs `)` attr-dict "
        "`:` functional-type($inputs, $outputs)"
    )

    def __init__(
        self,
        callee: str,
        inputs: Sequence[SSAValue],
        result_types: Sequence[Attribute],
        chunks: IntegerAttr,
        inplace: IntsAttr,
    ) -> None:
        Operation.__init__(
            self,
            operands=inputs,
            properties={"callee": symbol(callee), "chunks": chunks, "inplace": inplace},
            result_types=result_types,
        )

    def verify_(self) -> None:
        check_chunks(self.chunks)
        kernel = called(self, self.callee)
        if kernel is None:
            return
        if [*kernel.function_type.inputs] != kernel_arguments(self.inputs, self.outputs):
            raise VerifyException(
                "a kernel must take the chunk number and the memory of all operands and results"
            )
        check_body(kernel)
