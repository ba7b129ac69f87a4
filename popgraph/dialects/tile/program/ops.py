"""The program level: buffers, calls, and the program that runs them in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import (
    ArrayAttr,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    base,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import IsolatedFromAbove, NoTerminator, Pure, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.program.attributes import BytesAttr
from popgraph.dialects.program.checks import IndexChecksAttr, checks_of
from popgraph.dialects.program.interned import symbol, whole
from popgraph.dialects.tile.loops.soundness import called, check_body, check_chunks
from popgraph.support.errors import BackendError
from popgraph.support.index_checks import IndexCheck
from popgraph.support.shapes import prod

ALIGNMENT = 64
"""
Arena buffers start at multiples of this; the padding after a buffer counts as used.

A cache line, and the widest vector (AVX-512).
"""


@irdl_op_definition
class BufferOp(IRDLOperation):
    """
    A range of memory, by its address.

    `space` is "arena" (at byte `offset` of scratch memory, which is undefined between steps),
    "persistent" (at byte `offset` of memory that `prepare` fills once), "input", "output" or
    "variable" (the array of that name; `literal` is a variable's initial value), or "constant"
    (`literal`). The first buffer of an input, output or variable in the program's body has the
    shape that the caller sees; later ones give the same memory the shape that kernels see.
    """

    name = "tile.buffer"
    space = prop_def(StringAttr)
    offset = prop_def(IntegerAttr)
    label = prop_def(BytesAttr)
    literal = opt_prop_def()
    memory = result_def(MemRefType)
    traits = traits_def(Pure())
    assembly_format = (
        "$space `at` $offset `named` $label (`holding` $literal^)? attr-dict `:` type($memory)"
    )

    def __init__(
        self,
        space: str,
        memory: MemRefType[Attribute],
        *,
        offset: int = 0,
        label: str = "",
        literal: Attribute | None = None,
    ) -> None:
        Operation.__init__(
            self,
            properties={
                "space": StringAttr(space),
                "offset": whole(offset),
                "label": BytesAttr.of(label),
                **({"literal": literal} if literal else {}),
            },
            result_types=[memory],
        )

    def check_within(self, size: int) -> None:
        """Raises VerifyException unless the buffer lies within memory of `size` bytes."""
        memory = self.memory.type
        assert isinstance(memory, MemRefType)
        element = element_bytes(memory)
        begin = self.offset.value.data
        end = begin + prod(memory.get_shape()) * element
        if begin < 0 or end > size:
            raise VerifyException(
                f"a buffer of bytes {begin} to {end} exceeds the {size} bytes "
                f"of {self.space.data} memory"
            )


@irdl_op_definition
class CallOp(IRDLOperation):
    """Runs a kernel on memory: its inputs, then the results that it writes."""

    name = "tile.call"
    callee = prop_def(SymbolRefAttr)
    chunks = prop_def(IntegerAttr)
    arguments = var_operand_def(base(MemRefType))
    assembly_format = "$callee `chunks` $chunks `(` $arguments `)` `:` type($arguments) attr-dict"

    def __init__(self, callee: str, arguments: Sequence[SSAValue], chunks: IntegerAttr) -> None:
        Operation.__init__(
            self,
            operands=arguments,
            properties={"callee": symbol(callee), "chunks": chunks},
        )

    @property
    def label(self) -> str:
        """The name in profiles."""
        name: str = self.callee.string_value()
        return name

    def verify_(self) -> None:
        check_chunks(self.chunks)


@irdl_op_definition
class ProgramOp(IRDLOperation):
    """
    A graph after memory planning: buffers, then calls in order.

    `prepare` runs once, after constants and variables are loaded; `body` runs in every step.
    `arena` and `persistent` are sizes in bytes. `lower_bound` is the largest number of arena bytes
    that are live at once: no plan needs less. `checks` names the outputs that report indices out of
    range. `donations` lists pairs of an input and an output that may share its memory.
    """

    name = "tile.program"
    sym_name = prop_def(SymbolNameConstraint())
    arena = prop_def(IntegerAttr)
    persistent = prop_def(IntegerAttr)
    lower_bound = prop_def(IntegerAttr)
    checks = opt_prop_def(IndexChecksAttr)
    donations = opt_prop_def(ArrayAttr[BytesAttr])
    prepare = region_def("single_block")
    body = region_def("single_block")
    traits = traits_def(SymbolOpInterface(), NoTerminator(), IsolatedFromAbove())
    assembly_format = (
        "$sym_name `arena` $arena `persistent` $persistent `lower_bound` $lower_bound "
        "(`checks` $checks^)? (`donations` $donations^)? `prepare` $prepare `body` $body attr-dict"
    )

    def __init__(
        self,
        name: str,
        arena: int,
        persistent: int,
        lower_bound: int,
        checks: IndexChecksAttr | None = None,
    ) -> None:
        super().__init__(
            properties={
                "sym_name": StringAttr(name),
                "arena": IntegerAttr(arena, i64),
                "persistent": IntegerAttr(persistent, i64),
                "lower_bound": IntegerAttr(lower_bound, i64),
                **({"checks": checks} if checks else {}),
            },
            regions=[Region(Block()), Region(Block())],
        )

    @property
    def index_checks(self) -> tuple[IndexCheck, ...]:
        return checks_of(self.checks)

    @property
    def donated(self) -> dict[str, str]:
        """{input: output}: the output may reuse the input's memory."""
        names = [name.text for name in self.donations or ()]
        return dict(zip(names[::2], names[1::2], strict=True))

    @donated.setter
    def donated(self, outputs: Mapping[str, str]) -> None:
        if outputs:
            names = [BytesAttr.of(name) for pair in outputs.items() for name in pair]
            self.properties["donations"] = ArrayAttr(names)

    def verify_(self) -> None:
        sizes = {"arena": self.arena.value.data, "persistent": self.persistent.value.data}
        kernels = dict[str, SymbolRefAttr]()
        for op in (*self.prepare.block.ops, *self.body.block.ops):
            if isinstance(op, BufferOp) and op.space.data in sizes:
                op.check_within(sizes[op.space.data])
            elif isinstance(op, CallOp):
                # Once per kernel: finding it scans all functions of the module.
                kernels[op.callee.string_value()] = op.callee
        for callee in kernels.values():
            kernel = called(self, callee)
            if kernel is not None:
                check_body(kernel)


def find_program(module: ModuleOp, name: str) -> ProgramOp:
    """The program of this name; BackendError if there is none."""
    programs = [op for op in module.ops if isinstance(op, ProgramOp)]
    for program in programs:
        if program.sym_name.data == name:
            return program
    known = ", ".join(repr(program.sym_name.data) for program in programs) or "none"
    raise BackendError(
        f"the module has no tile.program {name!r}",
        hint="run the passes up to plan-memory, without POPGRAPH_STOP_AFTER; "
        f"the module has the programs {known}",
    )
