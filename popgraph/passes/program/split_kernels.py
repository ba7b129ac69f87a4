"""Splits kernels of many statements into several functions, called one after the other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.traits import is_side_effect_free

from popgraph.dialects.tile import CallOp, ProgramOp
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options
from popgraph.passes.properties import UNHANDED
from popgraph.support.tuning import Tuning


@dataclass(frozen=True)
class SplitKernels(Pass):
    """
    Splits kernels of many straight-line statements, such as concatenations of many pieces.

    func.func @k + tile.call @k  ->  func.func @k_part_0, @k_part_1 ... + a tile.call of each

    Only if no part needs a value that another part loads or computes in a loop. Operations without
    effects, such as index arithmetic, are repeated. A part takes only the memories that it uses.

    A part has `statements` statements at most: GCC searches all stores of a function for vectors,
    in quadratic time. A concatenation of 10,000 pieces takes it 3 s instead of 36 s.
    """

    name = "split-kernels"
    WRITES_CALLS = True
    NEEDS = (UNHANDED,)
    statements: int = Tuning().most_statements

    @classmethod
    def of(cls, options: Options) -> SplitKernels:
        return cls(options.target.tuning.most_statements)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        functions = [op for op in module.ops if isinstance(op, func.FuncOp) and op.body.blocks]
        taken = {function.sym_name.data for function in functions}
        made: dict[str, list[Part]] = {}
        for function in functions:
            parts = list(parts_of(function.body.block, self.statements))
            if len(parts) > 1:
                made[function.sym_name.data] = parts
                new = [part.function(_unused(function, taken), function) for part in parts]
                Rewriter.replace_op(function, new, [], safe_erase=False)
        for program in [op for op in module.ops if isinstance(op, ProgramOp)] if made else ():
            for block in (program.prepare.block, program.body.block):
                for call in [op for op in block.ops if isinstance(op, CallOp)]:
                    if call.callee.string_value() in made:
                        Rewriter.replace_op(call, calls(call, made[call.callee.string_value()]), [])


@dataclass
class Part:
    """Operations of a kernel in order, with everything that they depend on."""

    operations: list[Operation]
    arguments: list[int]
    """Positions of the kernel's arguments that they use, always with 0, the chunk number."""
    name: str = ""

    def function(self, name: str, whole: func.FuncOp) -> func.FuncOp:
        """A function of these operations."""
        self.name = name
        old = [whole.body.block.args[number] for number in self.arguments]
        block = Block(arg_types=[argument.type for argument in old])
        values: dict[SSAValue, SSAValue] = dict(zip(old, block.args, strict=True))
        block.add_ops([op.clone(values) for op in self.operations])
        block.add_op(func.ReturnOp())
        types = [argument.type for argument in block.args]
        function = func.FuncOp(name, (types, []), Region(block), StringAttr("private"))
        function.location = whole.location
        return function


def parts_of(block: Block, most: int) -> Iterator[Part]:
    """Splits the body of a kernel into parts; yields none if it stays whole."""
    operations = list(block.ops)[:-1]
    if len(operations) <= most:
        return
    free = {op for op in operations if is_side_effect_free(op)}
    statements = [at for at, op in enumerate(operations) if op not in free and not op.results]
    ends = [at + 1 for at in statements[most - 1 : -1 : most]]
    if not ends:
        return
    position = {op: at for at, op in enumerate(operations)}
    arguments: dict[SSAValue, int] = {value: at for at, value in enumerate(block.args)}
    parts = []
    for start, end in zip([0, *ends], [*ends, len(operations)], strict=True):
        needed = _needed(block, [op for op in operations[start:end] if op not in free])
        own = set(operations[start:end])
        if any(op not in own and op not in free for op in needed):
            return
        read = set(chain.from_iterable(map(_read, needed)))
        used = {0, *(arguments[value] for value in read & arguments.keys())}
        parts.append(Part(sorted(needed, key=position.__getitem__), sorted(used)))
    yield from parts


def _needed(block: Block, operations: Sequence[Operation]) -> set[Operation]:
    """These operations and all operations of the block that they depend on."""
    needed, waiting = set[Operation](), list(operations)
    while waiting:
        op = waiting.pop()
        if op in needed:
            continue
        needed.add(op)
        for operand in _read(op):
            owner = operand.owner
            if owner is not block and owner.parent is block and owner not in needed:
                assert isinstance(owner, Operation)
                waiting.append(owner)
    return needed


def _read(op: Operation) -> Iterable[SSAValue]:
    """The operands of an operation, and of all that is in it."""
    if not op.regions:
        return op.operands
    return chain.from_iterable(inner.operands for inner in op.walk())


def calls(call: CallOp, parts: Sequence[Part]) -> list[CallOp]:
    """A call of every part, with the memories that it uses."""
    made, memories = list[CallOp](), list(call.arguments)
    for part in parts:
        arguments = [memories[number - 1] for number in part.arguments[1:]]
        new = CallOp(part.name, arguments, call.chunks)
        new.attributes |= call.attributes
        new.location = call.location
        made.append(new)
    return made


def _unused(function: func.FuncOp, taken: set[str]) -> str:
    """A name for a part: `move_96_f32_0` has parts `move_96_f32_part_0`, `..._1` and so on."""
    whole = re.sub(r"_\d+$", "", function.sym_name.data)
    name = next(name for n in count() if (name := f"{whole}_part_{n}") not in taken)
    taken.add(name)
    return name
