"""How do kernels become functions, each different one once?"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.dialects.builtin import IndexType, MemRefType, ModuleOp, StringAttr, VectorType
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from popgraph.dialects.tile import KernelOp, LaunchOp
from popgraph.passes.base import Compilation, Pass
from popgraph.support import dtypes

NAMED_OPERATIONS = 3
"""How many of its operations a kernel's name tells."""


@dataclass(frozen=True)
class OutlineKernels(Pass):
    """
    Kernel bodies become functions of the module; equal bodies become one.

    tile.kernel -> func.func + tile.launch
    """

    name = "outline-kernels"

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        kernels = [op for op in module.walk() if isinstance(op, KernelOp)]
        taken = {op.sym_name.data for op in module.ops if isinstance(op, func.FuncOp)}
        names: dict[Hashable, str] = {}
        functions: list[func.FuncOp] = []
        for kernel in kernels:
            key = structure(kernel.body)
            if key not in names:
                names[key] = _unused(describe(kernel), taken)
                functions.append(_function(kernel, names[key]))
            _launch(kernel, names[key])
        first = module.body.block.first_op
        if first is None:
            module.body.block.add_ops(functions)
        else:
            module.body.block.insert_ops_before(functions, first)


def structure(region: Region) -> Hashable:
    """
    Equal for regions that differ in names and locations only; takes linear time.

    Values are numbered in the order of their definition.
    """
    numbers: dict[SSAValue, int] = {}
    return tuple(_block(block, numbers) for block in region.blocks)


def _block(block: Block, numbers: dict[SSAValue, int]) -> Hashable:
    types = []
    for argument in block.args:
        numbers[argument] = len(numbers)
        types.append(argument.type)
    return (tuple(types), tuple(_operation(op, numbers) for op in block.ops))


def _operation(op: Operation, numbers: dict[SSAValue, int]) -> Hashable:
    operands = tuple(numbers[operand] for operand in op.operands)
    regions = tuple(
        tuple(_block(block, numbers) for block in region.blocks) for region in op.regions
    )
    for result in op.results:
        numbers[result] = len(numbers)
    return (
        op.name,
        operands,
        tuple(sorted(op.properties.items())),
        tuple(sorted(op.attributes.items())),
        tuple(result.type for result in op.results),
        regions,
    )


def describe(kernel: KernelOp) -> str:
    """`mulf_addf_8x4_f32`: what a kernel computes with, and the memory that it fills."""
    words: dict[str, None] = {}
    for op in kernel.body.walk():
        dialect, _, word = op.name.partition(".")
        if dialect in ("arith", "math") and word != "constant" and _is_data(op.results[0]):
            words.setdefault(word)
        elif op.name == "vector.fma":
            words.setdefault("fma")
    last = kernel.body.block.args[-1].type
    assert isinstance(last, MemRefType)
    shape = "x".join(map(str, last.get_shape())) or "scalar"
    told = list(words)[:NAMED_OPERATIONS] or ["move"]
    return "_".join([*told, shape, dtypes.from_ir(last.element_type).name])


def _is_data(value: SSAValue) -> bool:
    type_ = value.type.element_type if isinstance(value.type, VectorType) else value.type
    return not isinstance(type_, IndexType)


def _unused(wanted: str, taken: set[str]) -> str:
    number = 0
    while f"{wanted}_{number}" in taken:
        number += 1
    taken.add(f"{wanted}_{number}")
    return f"{wanted}_{number}"


def _function(kernel: KernelOp, name: str) -> func.FuncOp:
    body = kernel.body.clone()
    body.block.add_op(func.ReturnOp())
    inputs = [argument.type for argument in body.block.args]
    function = func.FuncOp(name, (inputs, []), body, StringAttr("private"))
    function.location = kernel.location
    return function


def _launch(kernel: KernelOp, name: str) -> None:
    """`kernel` -> a launch of its function."""
    block = kernel.parent
    assert block is not None
    types = [result.type for result in kernel.outputs]
    launch = LaunchOp(name, list(kernel.inputs), types, kernel.chunks, kernel.inplace)
    launch.attributes |= kernel.attributes
    launch.location = kernel.location
    block.insert_op_before(launch, kernel)
    for old, new in zip(kernel.outputs, launch.outputs, strict=True):
        new.name_hint = old.name_hint
        old.replace_all_uses_with(new)
    Rewriter.erase_op(kernel)
