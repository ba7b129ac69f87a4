"""C of a whole program: a function per kernel, one for a step and one for loading."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from xdsl.dialects import func
from xdsl.dialects.builtin import MemRefType, ModuleOp
from xdsl.ir import Attribute, SSAValue

from popgraph.backends.c.memory.table import ARENA, PERSISTENT, THREADS, Literal, Slot, Table
from popgraph.backends.c.print import types
from popgraph.backends.c.print.statements import Body
from popgraph.backends.c.print.unit import PREAMBLE, Kernel, Unit
from popgraph.dialects import element_types
from popgraph.dialects.program.attributes import BlobAttr, DataAttr
from popgraph.dialects.tile import BufferOp, CallOp, ProgramOp
from popgraph.support.cache_files import digest
from popgraph.support.errors import BackendError, PopgraphError

_NUMBER = re.compile(r"_\d+$")
"""What tells kernels of one module apart; their content does that for C."""

DIGITS = 12
"""Of the digest of a kernel's content: one in 2^48 is another's."""


class Layout:
    """Which memory does a program use, and where in the table does each piece stand?"""

    def __init__(self, program: ProgramOp) -> None:
        self.slots: list[Slot] = [THREADS, ARENA, PERSISTENT]
        self._sizes = program.arena.value.data, program.persistent.value.data
        self._checks = program.index_checks
        self._numbers: dict[tuple[str, object], int] = {("arena", ""): 1, ("persistent", ""): 2}
        bodies = (program.body.block, program.prepare.block)
        for prepared, block in zip((False, True), bodies, strict=True):
            for op in block.ops:
                if isinstance(op, BufferOp) and _key(op) not in self._numbers:
                    self._numbers[_key(op)] = len(self.slots)
                    self.slots.append(_slot(op, prepared))

    def slot_number(self, op: BufferOp) -> int:
        """The number of a buffer's slot."""
        return self._numbers[_key(op)]

    @property
    def table(self) -> Table:
        """The memory, apart from the IR that it was read from."""
        return Table(tuple(self.slots), *self._sizes, self._checks)


def _key(op: BufferOp) -> tuple[str, object]:
    space = op.space.data
    if space in ("arena", "persistent"):
        return space, ""
    return space, op.literal if space == "constant" else op.label.text


def _slot(op: BufferOp, prepared: bool) -> Slot:
    """The first buffer of a name says what it holds; later ones are views of it."""
    memory = op.memory.type
    assert isinstance(memory, MemRefType)
    dtype = element_types.from_ir(memory.element_type)
    return Slot(op.space.data, op.label.text, dtype, memory.get_shape(), _literal(op), prepared)


def _literal(op: BufferOp) -> Literal | None:
    literal = op.literal
    if not isinstance(literal, DataAttr | BlobAttr):
        return None
    dtype, shape = element_types.from_ir(literal.type.element_type), literal.type.get_shape()
    if isinstance(literal, DataAttr):
        return Literal(dtype, shape, data=literal.payload.data)
    return Literal(dtype, shape, key=literal.key.text)


def find_program(module: ModuleOp, name: str) -> ProgramOp:
    """The program of that name."""
    programs = [op for op in module.ops if isinstance(op, ProgramOp)]
    for program in programs:
        if program.sym_name.data == name:
            return program
    known = ", ".join(repr(program.sym_name.data) for program in programs) or "none"
    raise BackendError(
        f"the module has no tile.program {name!r}",
        hint="run the passes up to plan-memory, without POPGRAPH_STOP_AFTER; "
        f"programs here: {known}",
    )


def location_text(location: Attribute | None) -> str:
    """A location in the user's words; nothing when it is unknown."""
    text = "" if location is None else str(location)
    text = re.sub(r"^loc\((.*)\)$", r"\1", text)
    return "" if text in ("unknown", "none") else text.strip('"')


def kernel_name(symbol: str) -> str:
    """The C name of a kernel: its own, kept apart from the names of libc."""
    return "kernel_" + re.sub(r"\W", lambda match: f"_{ord(match[0]):x}_", symbol)


def print_kernel(function: func.FuncOp) -> Kernel:
    """One kernel as C; equal ones have the same name in every program."""
    location = location_text(function.location)
    symbol = function.sym_name.data
    body = Body()
    parameters = []
    try:
        for number, argument in enumerate(function.body.block.args):
            if isinstance(argument.type, MemRefType):
                body.bind(argument, f"a{number - 1}")
                parameters.append(f"{types.pointer(argument.type)}a{number - 1}")
            else:
                body.bind(argument, "chunk")
                body.natural.add(argument)
                parameters.append(f"{types.value(argument.type)} chunk")
        body.block(function.body.block)
    except PopgraphError as error:
        where = f"kernel {symbol}" + (f", from {location}" if location else "")
        raise type(error)(error.what, error.where or where, error.hint) from error
    content = digest(*parameters, *body.lines)[:DIGITS]
    name = f"{kernel_name(_NUMBER.sub('', symbol))}_{content}"
    prototype = f"void {name}({', '.join(parameters)})"
    text = "\n".join([f"{prototype} {{", *body.lines, "}", ""])
    return Kernel(symbol, name, text, prototype, location)


def print_kernels(module: ModuleOp) -> list[Kernel]:
    """All kernels of a module."""
    functions = [op for op in module.ops if isinstance(op, func.FuncOp) and op.body.blocks]
    return [print_kernel(function) for function in functions]


ENTRIES = {"prepare": "void *const *memory", "run": "void *const *memory", "stop": "void"}
"""What can be called of a program, by how its name ends, with the parameters."""


MOST_CALLS = 1000
"""In one function: GCC's time grows faster than a function does."""

NOINLINE = "static __attribute__((noinline)) "
"""What GCC is not to make part of the function that calls it."""


def print_program(program: ProgramOp, layout: Layout, kernels: Sequence[Kernel]) -> str:
    """The functions of `ENTRIES`, and one small function per call that has chunks."""
    name = program.sym_name.data
    names = {kernel.name: kernel.symbol for kernel in kernels}
    parts: list[str] = []
    for ending, block in (("prepare", program.prepare.block), ("run", program.body.block)):
        lines, helpers = list[str](), list[str]()
        buffers: dict[SSAValue, str] = {}
        for op in block.ops:
            if isinstance(op, BufferOp):
                buffers[op.memory] = _address(op, layout)
            elif isinstance(op, CallOp):
                callee = names[op.callee.string_value()]
                _call(op, callee, buffers, f"{name}_{ending}_{len(lines)}", lines, helpers)
        parts += [*helpers, *_bounded(f"{name}_{ending}", lines)]
    parts.append(f"void {name}_stop(void) {{ popgraph_stop_workers(); }}\n")
    return "\n".join(parts)


def _bounded(name: str, lines: Sequence[str]) -> Iterator[str]:
    """A function of these calls; of more than `MOST_CALLS`, one that calls others in turn."""
    if len(lines) > MOST_CALLS:
        starts = range(0, len(lines), MOST_CALLS)
        parts = [f"{name}_part_{number}" for number in range(len(starts))]
        for part, start in zip(parts, starts, strict=True):
            yield f"{NOINLINE}{_function(part, lines[start : start + MOST_CALLS])}"
        lines = [f"{part}(memory);" for part in parts]
    yield _function(name, lines)


def _function(name: str, lines: Sequence[str]) -> str:
    body = "".join(f"    {line}\n" for line in lines) or "    (void)memory;\n"
    return f"void {name}(void *const *memory) {{\n{body}}}\n"


def _address(op: BufferOp, layout: Layout) -> str:
    memory = op.memory.type
    assert isinstance(memory, MemRefType)
    base, offset = f"memory[{layout.slot_number(op)}]", op.offset.value.data
    address = f"((char *){base} + {offset})" if offset else base
    return f"({types.pointer(memory)}){address}"


def _call(
    op: CallOp,
    callee: str,
    buffers: Mapping[SSAValue, str],
    name: str,
    lines: list[str],
    helpers: list[str],
) -> None:
    chunks = op.chunks.value.data
    arguments = [buffers[argument] for argument in op.arguments]
    if chunks == 1:
        lines.append(f"{callee}({', '.join(['0', *arguments])});")
        return
    helpers.append(
        f"static void {name}(i64 chunk, void *const *memory) {{\n"
        f"    {callee}({', '.join(['chunk', *arguments])});\n}}\n"
    )
    lines.append(f"popgraph_share((i64)(intptr_t)memory[0], {chunks}, {name}, memory);")


_POOL = f"#define _GNU_SOURCE\n#define POPGRAPH_POOL\n{PREAMBLE}"


def program_unit(program: ProgramOp, layout: Layout, kernels: Sequence[Kernel]) -> Unit:
    """The translation unit that holds the program; kernels are in others."""
    prototypes = "".join(f"{kernel.prototype};\n" for kernel in kernels)
    text = f"{visible(program)}\n{print_program(program, layout, kernels)}"
    return Unit(f"{_POOL}{prototypes}{text}")


def visible(program: ProgramOp) -> str:
    """Declares the functions of a program, for others to find in its library."""
    name = program.sym_name.data
    return "".join(
        f'__attribute__((visibility("default"))) void {name}_{ending}({parameters});\n'
        for ending, parameters in ENTRIES.items()
    )
