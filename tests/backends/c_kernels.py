"""Builds small kernels for tests: a loop over elements that applies one operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, func, math, memref, scf, vector
from xdsl.dialects.builtin import (
    IndexType,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    StringAttr,
    VectorType,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from popgraph.backends.c.build_program import build
from popgraph.backends.c.run.executable import CExecutable
from popgraph.dialects import element_types
from popgraph.dialects.program import WeightStore
from popgraph.dialects.tile import TILE, BufferOp, CallOp, ProgramOp

INDEX = IndexType()

OPERATIONS: Mapping[str, type[Operation]] = {
    op.name: op
    for dialect in (arith.Arith, math.Math, vector.Vector, TILE)
    for op in dialect.operations
}

Compute = Callable[[Sequence[SSAValue]], SSAValue]


def index(value: int) -> SSAValue:
    return arith.ConstantOp.from_int_and_width(value, INDEX).result


def make(
    name: str,
    operands: Sequence[SSAValue],
    result: Attribute,
    properties: Mapping[str, Attribute] | None = None,
) -> SSAValue:
    """Creates an operation by name, unverified: xDSL's verifiers reject vectors of booleans."""
    op = OPERATIONS[name].create(
        operands=operands, result_types=[result], properties=dict(properties or {})
    )
    return op.results[0]


def function(name: str, types: Sequence[Attribute], body: Callable[..., None]) -> func.FuncOp:
    """A kernel whose operations `body(chunk, *memories)` emits."""
    block = Block(arg_types=[INDEX, *types])
    with ImplicitBuilder(block):
        body(*block.args)
        func.ReturnOp()
    inputs = [argument.type for argument in block.args]
    return func.FuncOp(name, (inputs, []), Region(block), StringAttr("private"))


def loop(size: int, step: int, body: Callable[[SSAValue], object]) -> None:
    block = Block(arg_types=[INDEX])
    with ImplicitBuilder(block):
        body(block.args[0])
        scf.YieldOp()
    scf.ForOp(index(0), index(size), index(step), [], block)


def elementwise(
    name: str,
    elements: Sequence[Attribute],
    result: Attribute,
    size: int,
    compute: Compute,
    lanes: int | None = None,
) -> func.FuncOp:
    """A kernel that applies `compute` to every element, or to every vector of `lanes`."""

    def body(_chunk: SSAValue, *memories: SSAValue) -> None:
        def one(i: SSAValue) -> None:
            *sources, target = memories
            if lanes is None:
                values = [memref.LoadOp.get(source, [i]).res for source in sources]
                memref.StoreOp.get(compute(values), target, [i])
                return
            values = [
                vector.LoadOp(source, [i], VectorType(element, [lanes])).result
                for source, element in zip(sources, elements, strict=True)
            ]
            vector.StoreOp(compute(values), target, [i])

        loop(size, lanes or 1, one)

    return function(name, [MemRefType(each, [size]) for each in (*elements, result)], body)


def program(
    functions: Sequence[tuple[func.FuncOp, Sequence[str], str]], chunks: int = 1
) -> ModuleOp:
    """A module that runs every function on named inputs and one output."""
    planned = ProgramOp("main", 0, 0, 0)
    buffers: dict[str, SSAValue] = {}

    def buffer(space: str, name: str, type_: Attribute) -> SSAValue:
        if name not in buffers:
            assert isinstance(type_, MemRefType)
            buffers[name] = BufferOp(space, type_, label=name).memory
        return buffers[name]

    with ImplicitBuilder(planned.body.block):
        for op, inputs, output in functions:
            types = list(op.function_type.inputs)[1:]
            names = [*((name, "input") for name in inputs), (output, "output")]
            memories = [
                buffer(space, name, type_)
                for (name, space), type_ in zip(names, types, strict=True)
            ]
            CallOp(op.sym_name.data, memories, IntegerAttr(chunks, i64))
    return ModuleOp([*(op for op, _, _ in functions), planned])


def executable(module: ModuleOp, threads: int = 1) -> CExecutable:
    return build(module, WeightStore(), threads)


def numpy_type(type_: Attribute) -> np.dtype[np.generic]:
    return element_types.from_ir(type_).numpy
