"""Copy kernels, one per size and element type, for values that have to be moved."""

from __future__ import annotations

from itertools import chain, count

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import func, memref
from xdsl.dialects.builtin import IndexType, MemRefType, ModuleOp, StringAttr
from xdsl.ir import Attribute, Block, Region

from popgraph.dialects import element_types


class Copies:
    """Kernels that copy memory unchanged, one per size and element type."""

    def __init__(self, module: ModuleOp) -> None:
        self._module = module
        self._taken = {op.sym_name.data for op in module.ops if isinstance(op, func.FuncOp)}
        self._functions: dict[Attribute, func.FuncOp] = {}

    def function(self, type_: MemRefType[Attribute]) -> str:
        """The name of the kernel for this type, which is created at the first request."""
        if type_ not in self._functions:
            (size,) = type_.get_shape()
            wanted = f"copy_{size}_{element_types.from_ir(type_.element_type).name}"
            numbered = (f"{wanted}_{number}" for number in count())
            name = next(name for name in chain([wanted], numbered) if name not in self._taken)
            self._taken.add(name)
            self._functions[type_] = copy_function(name, type_)
        return self._functions[type_].sym_name.data

    def insert(self) -> None:
        """Inserts the kernels at the start of the module."""
        first = self._module.body.block.first_op
        if first is not None:
            self._module.body.block.insert_ops_before(list(self._functions.values()), first)


def copy_function(name: str, type_: MemRefType[Attribute]) -> func.FuncOp:
    """A kernel that copies its first memory to its second."""
    body = Block(arg_types=[IndexType(), type_, type_])
    _, source, target = body.args
    with ImplicitBuilder(body):
        memref.CopyOp(source, target)
        func.ReturnOp()
    inputs = [argument.type for argument in body.args]
    return func.FuncOp(name, (inputs, []), Region(body), StringAttr("private"))
