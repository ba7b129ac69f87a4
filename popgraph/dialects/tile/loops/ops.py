"""The loops level: kernels whose loops are written out, and launches of functions, on tensors."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from xdsl.dialects.builtin import (
    IndexType,
    IntegerAttr,
    MemRefType,
    SymbolRefAttr,
    TensorType,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    base,
    irdl_op_definition,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import IsolatedFromAbove, NoTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.program.interned import symbol
from popgraph.dialects.tile.attributes import memory_span
from popgraph.dialects.tile.loops.soundness import called, check_body, check_chunks


def memory_type(value: SSAValue) -> MemRefType[Attribute]:
    """
    The memref behind a tensor value: its physical elements in one row, or a part's span of them.

    One-dimensional, so that a loop may run across rows, a vector may be loaded anywhere, and
    kernels that differ in shape only are the same kernel.
    """
    assert isinstance(value.type, TensorType)
    return _memory(value.type.element_type, memory_span(value.type)[1])


@functools.cache
def _memory(element: Attribute, size: int) -> MemRefType[Attribute]:
    """Made once: xDSL checks every type that is made, and programs name the same ones again."""
    return MemRefType(element, [size])


def kernel_arguments(operands: Sequence[SSAValue], results: Sequence[SSAValue]) -> list[Attribute]:
    """The chunk number, then the memory of every operand and every result."""
    return [IndexType(), *map(memory_type, operands), *map(memory_type, results)]


@irdl_op_definition
class KernelOp(IRDLOperation):
    """
    A structured operation with its loops written out (scf, arith, math, memref, vector).

    The body runs once for every chunk number in `0 .. chunks`; chunks write disjoint memory, so
    they may run in any order and at once. It reads the operands' memory and writes every element
    of the results' memory. `inplace` lists pairs (operand, result) that may share memory because
    each element of the operand is last read before that of the result is written.
    """

    name = "tile.kernel"
    inputs = var_operand_def(base(TensorType))
    chunks = prop_def(IntegerAttr)
    inplace = prop_def(IntsAttr)
    body = region_def("single_block")
    outputs = var_result_def(TensorType)
    traits = traits_def(IsolatedFromAbove(), NoTerminator(), Pure())
    assembly_format = (
        "`chunks` $chunks `inplace` $inplace `ins` `(` $inputs `:` type($inputs) `)` "
        "$body attr-dict `->` type($outputs)"
    )

    def __init__(
        self,
        inputs: Sequence[SSAValue],
        result_types: Sequence[TensorType[Attribute]],
        chunks: int = 1,
        inplace: Sequence[tuple[int, int]] = (),
    ) -> None:
        super().__init__(
            operands=[inputs],
            properties={
                "chunks": IntegerAttr(chunks, i64),
                "inplace": IntsAttr.of([i for pair in inplace for i in pair]),
            },
            result_types=[result_types],
            regions=[Region()],
        )
        self.body.add_block(Block(arg_types=kernel_arguments(self.inputs, self.outputs)))

    def verify_(self) -> None:
        expected = kernel_arguments(self.inputs, self.outputs)
        if [argument.type for argument in self.body.block.args] != expected:
            raise VerifyException("the body takes the chunk number and the memory of all values")
        check_chunks(self.chunks)
        check_body(self)


@irdl_op_definition
class LaunchOp(IRDLOperation):
    """Runs a kernel that stands as a function of the module, on tensors; see `tile.kernel`."""

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
        if kernel is not None:
            check_body(kernel)
