"""Outlines kernels into functions of the module; equal kernels share one function."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache

from xdsl.dialects import func
from xdsl.dialects.builtin import IndexType, MemRefType, ModuleOp, StringAttr, VectorType
from xdsl.ir import Operation, SSAValue

from popgraph.dialects import element_types
from popgraph.dialects.tile import MESSAGES, KernelOp, LaunchOp
from popgraph.passes.analysis.replace import replace_op
from popgraph.passes.analysis.structural_hash import StructuralHasher
from popgraph.passes.base import Compilation, Pass

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
        functions = Functions(module)
        structures, names = StructuralHasher(), dict[Hashable, str]()
        for kernel in kernels:
            key = structures.of_region(kernel.body)
            name = names.get(key)
            if name is None:
                name = names[key] = functions.add(kernel)
            launch(kernel, name)
        functions.insert()


class Functions:
    """The kernels that become functions of a module, with names that nobody has yet."""

    def __init__(self, module: ModuleOp) -> None:
        self._block = module.body.block
        self._taken = {op.sym_name.data for op in module.ops if isinstance(op, func.FuncOp)}
        self._made: list[func.FuncOp] = []

    def add(self, kernel: KernelOp) -> str:
        """Makes a function of a kernel's body, which is taken from it; gives its name."""
        name = _unused(describe(kernel), self._taken)
        self._made.append(_function(kernel, name))
        return name

    def insert(self) -> None:
        """Puts the new functions before everything else."""
        first = self._block.first_op
        if first is None:
            self._block.add_ops(self._made)
        else:
            self._block.insert_ops_before(self._made, first)


def describe(kernel: KernelOp) -> str:
    """`mulf_addf_8x4_f32`: what a kernel computes with, and the memory that it fills."""
    words: dict[str, None] = {}
    for op in kernel.body.walk():
        word = _word(type(op))
        if word and word not in words and (not op.results or _is_data(op.results[0])):
            words[word] = None
            if len(words) == NAMED_OPERATIONS:
                break
    last = kernel.body.block.args[-1].type
    assert isinstance(last, MemRefType)
    shape = "x".join(map(str, last.get_shape())) or "scalar"
    told = list(words) or ["move"]
    return "_".join([*told, shape, element_types.from_ir(last.element_type).name])


@cache
def _word(kind: type[Operation]) -> str:
    """What a kernel's name says of operations of a class; empty if nothing."""
    dialect, _, word = kind.name.partition(".")
    computes = (dialect in ("arith", "math") and word != "constant") or kind.name == "vector.fma"
    return word if computes or issubclass(kind, MESSAGES) else ""


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
    body = kernel.detach_region(kernel.body)
    body.block.add_op(func.ReturnOp())
    inputs = [argument.type for argument in body.block.args]
    function = func.FuncOp(name, (inputs, []), body, StringAttr("private"))
    function.location = kernel.location
    return function


def launch(kernel: KernelOp, name: str) -> None:
    """`kernel` -> a launch of its function."""
    types = [result.type for result in kernel.outputs]
    launched = LaunchOp(name, list(kernel.inputs), types, kernel.chunks, kernel.inplace)
    launched.attributes |= kernel.attributes
    replace_op(kernel, launched)
